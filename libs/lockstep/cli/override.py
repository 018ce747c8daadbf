"""Ends a hold where it lives, with the rights of whoever asks, and puts an override on record."""

import msgspec

from lockstep.base.clock import now
from lockstep.base.errors import BadInput, LockstepError, Retry
from lockstep.base.text import one_line
from lockstep.bus.publisher import Publisher
from lockstep.cli.connect import Reach
from lockstep.cli.exits import Exit, Stop
from lockstep.cli.output import Out
from lockstep.cli.rows import HoldRow
from lockstep.cli.view import WorkerView
from lockstep.contracts.common import WorkerRef
from lockstep.contracts.events import HoldOverridden
from lockstep.contracts.facts import HoldView
from lockstep.contracts.hold import GROUP, VERSION
from lockstep.kube import keys
from lockstep.kube.port import KubeApi, Regarding
from lockstep.slurm import states

RECORD_WITHIN_S = 3.0


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A hold that is to be ended, and the workers that it keeps out."""

    row: HoldRow
    views: list[WorkerView]
    mine: bool
    uid: str = ""
    """Of the Hold resource that was looked at; another one by the same name is not meant."""

    @property
    def hold(self) -> HoldView:
        """The hold in the shape that events carry."""
        row = self.row
        found = (h for v in self.views for h in v.holds if h.id == row.id)
        view = HoldView(id=row.id, hold_class=row.hold_class, owner=row.owner, reason=row.reason, since=row.since)
        return next(found, view)


class Override(msgspec.Struct, frozen=True, kw_only=True):
    """Who insists, and why."""

    user: str
    why: str


async def end(reach: Reach, target: Target) -> str:
    """Ends one hold; what was done.

    Raises:
        BadInput: it cannot be ended from here; says how else.
        Stop: it changed meanwhile.
        LockstepError: the system that holds it refuses, or cannot be reached.
    """
    row = target.row
    kind, _, rest = row.id.partition("/")
    first, _, last = rest.partition("/")
    match kind:
        case "hold":
            return await _delete(await reach.kube(), first, last, target.uid)
        case "cordon":
            done = await (await reach.kube()).uncordon(first, only_ours=False)
            return "node uncordoned" if done else "the node was not cordoned any more"
        case "pod-cordon":
            return await _uncordon_pod(await reach.kube(), first, last)
        case "condition" | "taint" | "label":
            return await _ignore(await reach.kube(), kind, first, last)
        case "slurm":
            return await _undrain(reach, row.cluster, first)
        case _:
            raise BadInput([f"{row.id}: cannot be overridden; it ends with the {kind} itself"])


async def record(reach: Reach, target: Target, by: Override, out: Out) -> None:
    """Tells NATS and Kubernetes that somebody's hold was overridden; says so where that did not work."""
    at, hold = now(), target.hold
    events = [
        HoldOverridden(
            id=f"{v.cluster}/{v.name}:{hold.id}:{at.isoformat()}:overridden",
            at=at,
            worker=WorkerRef(cluster=v.cluster, name=v.name, kube_node=v.node, namespace=v.namespace, pod=v.pod),
            hold=hold,
            by=by.user,
            why=by.why,
        )
        for v in target.views
    ]
    try:
        await Publisher(await reach.bus(), source="cli", patience_s=RECORD_WITHIN_S).events(events)
    except Retry as e:
        out.note(f"The override is not among the events: {e}")
    message = one_line(f"{by.user} ended {hold.id} of {hold.owner}: {by.why}", limit=512)
    try:
        kube = await reach.kube()
        await kube.emit_event(regarding(target), reason="HoldOverridden", message=message, kind="Warning")
    except LockstepError as e:
        out.note(f"The override is not among Kubernetes' events: {e}")


def regarding(target: Target) -> Regarding:
    """The object that an Event about this hold is about."""
    kind, _, rest = target.row.id.partition("/")
    first, _, last = rest.partition("/")
    match kind:
        case "hold":
            return Regarding(kind="Hold", api_version=f"{GROUP}/{VERSION}", namespace=first, name=last)
        case "pod-cordon":
            return Regarding(kind="Pod", namespace=first, name=last)
        case "cordon" | "condition" | "taint" | "label":
            return Regarding(kind="Node", name=first)
    view = next(iter(target.views), None)
    if view is not None and view.pod:
        return Regarding(kind="Pod", namespace=view.namespace, name=view.pod)
    return Regarding(kind="Node", name=view.node if view and view.node else first)


async def _delete(kube: KubeApi, namespace: str, name: str, uid: str) -> str:
    return "released" if await kube.delete_hold(namespace, name, uid=uid) else "was gone already"


async def _uncordon_pod(kube: KubeApi, namespace: str, name: str) -> str:
    pod = await kube.get_pod(namespace, name)
    if pod is None:
        raise Stop(Exit.NOT_FOUND, f"pod {namespace}/{name}: is gone")
    await kube.annotate_pod(namespace, name, {keys.POD_CORDON: None}, uid=pod.metadata.uid)
    return "pod uncordoned"


async def _ignore(kube: KubeApi, kind: str, name: str, key: str) -> str:
    """A condition is ignored until it next changes; a taint or label as long as the annotation names it."""
    node = await kube.get_node(name)
    if node is None:
        raise Stop(Exit.NOT_FOUND, f"node {name}: is gone")
    said = [text.strip() for text in node.metadata.annotations.get(keys.IGNORE_CONDITIONS, "").split(",")]
    since = next(
        (c.last_transition_time for c in node.status.conditions if kind == "condition" and c.type == key), None
    )
    named = f"{key}={since.isoformat()}" if since else f"{kind}:{key}"
    kept = [text for text in said if text and text.partition("=")[0] not in {key, f"{kind}:{key}"}]
    await kube.annotate_node(name, {keys.IGNORE_CONDITIONS: ",".join([*kept, named])}, uid=node.metadata.uid)
    until = "until it next changes" if since else f"until its annotation {keys.IGNORE_CONDITIONS} is removed"
    return f"{key} is ignored on node {name} {until}"


async def _undrain(reach: Reach, cluster: str, name: str) -> str:
    slurm = await reach.slurm(cluster)
    node = await slurm.node(name)
    if not states.is_drain(node.base, node.flags):
        shown = states.text(node.base, node.flags)
        raise Stop(Exit.NO, f"{name}: Slurm shows {shown}; end that by: scontrol update nodename={name} state=resume")
    outcome = await slurm.undrain([name])
    if name in outcome.failed:
        raise outcome.failed[name]
    return "undrained in Slurm"
