"""What Kubernetes' objects say, as facts; and what happened between two facts. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import NamedTuple, TypeVar

import msgspec

from lockstep.base.text import one_line
from lockstep.contracts.common import WorkerRef
from lockstep.contracts.events import (
    Event,
    NodeConditionChanged,
    NodeCordoned,
    NodeGone,
    NodeRebooted,
    NodeTaintsChanged,
    NodeUncordoned,
    PodBound,
    PodCreated,
    PodEvent,
    PodFinished,
    PodGone,
    PodReady,
    PodTerminating,
    PodUnready,
)
from lockstep.contracts.facts import Fact, KubeHold, KubeNode, KubePod, NodeCondition, Taint
from lockstep.contracts.hold import Condition, HoldPhase
from lockstep.fleet.facts import key_of
from lockstep.fleet.holds import is_mirrored
from lockstep.kube import keys
from lockstep.kube.wire import Hold, Node, Pod
from lockstep.pod_watcher.model import Reading

F = TypeVar("F", bound=Fact)

MAX_TEXT = 256
"""Characters of a condition's reason or message."""
MAX_ANNOTATION = 1024
SLURMD = "slurmd"
"""The name of the container that runs slurmd in Slinky's pods."""


READY = "Ready"


class News(NamedTuple):
    """What is to be published, and the event or request because of which the facts are as they are."""

    facts: list[Fact]
    events: list[Event]
    cause: str = ""


def news(before: Fact | None, after: Fact | None, at: datetime, quiet: bool = False, skipped: bool = False) -> News:
    """What follows from two readings of one object; `after` is None when it is gone.

    A difference in `epoch`, `revision` and `read_at` alone is none, unless readings in between were skipped: then
    somebody may wait to see that what he wrote was undone. An object that is told under another name leaves no fact
    behind. `quiet`: what was there before we came has not happened now.
    """
    if before is not None and after is not None and not skipped and _content(before) == _content(after):
        return News([], [])
    facts: list[Fact] = []
    if before is not None and (after is None or key_of(before) != key_of(after)):
        facts.append(msgspec.structs.replace(before, gone=True, read_at=at, epoch=0))
    if after is not None:
        facts.append(msgspec.structs.replace(after, read_at=at))
    events = [] if quiet and before is None else list(_happened(before, after, at))
    request = after.request if isinstance(after, KubeHold) else ""
    return News(facts, events, events[0].id if events else request)


def node_fact(node: Node, reading: Reading) -> KubeNode:
    """A Node, as far as the settings name it."""
    meta, wanted = node.metadata, reading.labels
    ignored = meta.annotations.get(keys.IGNORE_CONDITIONS)
    conditions = node.status.conditions
    return KubeNode(
        revision=meta.resource_version,
        name=meta.name,
        uid=meta.uid,
        boot_id=node.status.node_info.boot_id,
        ready=node.ready,
        unschedulable=node.spec.unschedulable,
        mirror_mark=meta.annotations.get(keys.MIRRORED_CORDON) == keys.TRUE,
        cordon_reason=one_line(meta.annotations.get(keys.NODE_CORDON_REASON, ""), limit=MAX_TEXT),
        cordoned_by=node.cordoned_by,
        taints=[Taint(key=t.key, value=t.value, effect=t.effect) for t in node.spec.taints if t.key in reading.taints],
        conditions=_shown(c for c in conditions if c.type == READY or c.type in reading.conditions),
        labels=meta.labels if wanted is None else {k: v for k, v in meta.labels.items() if k in wanted},
        annotations={keys.IGNORE_CONDITIONS: one_line(ignored, limit=MAX_ANNOTATION)} if ignored else {},
        deleting_since=meta.deletion_timestamp,
        in_service=next(iter(_shown(c for c in conditions if c.type == keys.IN_SERVICE)), None),
    )


def pod_fact(pod: Pod, cluster: str, nodename_label: str) -> KubePod | None:
    """A worker's pod; None while it cannot be said which worker it is (hostNetwork, and no node yet)."""
    meta = pod.metadata
    worker = meta.labels.get(nodename_label) or _own_name(pod)
    if not worker:
        return None
    return KubePod(
        revision=meta.resource_version,
        cluster=cluster,
        worker=worker,
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        node=pod.spec.node_name,
        phase=pod.status.phase,
        ready=pod.ready,
        ready_since=pod.ready_since,
        started_at=pod.status.started_at(SLURMD),
        deleting_since=meta.deletion_timestamp,
        pod_cordon=meta.annotations.get(keys.POD_CORDON) == keys.TRUE,
        protected=meta.labels.get(keys.POD_PROTECT) == keys.TRUE,
        labels={k: v for k, v in meta.labels.items() if k != keys.POD_PROTECT},
        conditions=_shown(c for c in pod.status.conditions if c.type.startswith(keys.SLURM_STATE_PREFIX)),
    )


def hold_fact(hold: Hold, clusters: Sequence[str]) -> KubeHold:
    """A Hold in a namespace with these clusters. One that names none of them is the first one's, which refuses it."""
    meta, spec = hold.metadata, hold.spec
    cluster, fault = clusters[0], hold.fault
    if spec is not None:
        cluster, fault = _cluster_of(spec.cluster, meta.namespace, clusters)
    status = hold.status
    refused = status.phase is HoldPhase.REFUSED and status.observed_generation == meta.generation
    accepted = any(c.type == "Accepted" and c.status == "True" for c in hold.status.conditions)
    return KubeHold(
        revision=meta.resource_version,
        cluster=cluster,
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        generation=meta.generation,
        created_at=meta.creation_timestamp,
        owner=hold.owner,
        request=hold.request,
        requested_by=hold.requested_by,
        traceparent=hold.traceparent,
        deleting_since=meta.deletion_timestamp,
        spec=None if fault else spec,
        fault=fault,
        accepted=accepted,
        refused=refused,
    )


def is_echo(before: Fact | None, after: Fact | None) -> bool:
    """The only difference is what Lockstep writes: conditions, protection, our mirror, the status of a Hold."""
    match before, after:
        case KubeHold(), KubeHold():
            same: Fact = msgspec.structs.replace(before, accepted=after.accepted, refused=after.refused)
        case KubePod(), KubePod():
            same = msgspec.structs.replace(before, conditions=after.conditions, protected=after.protected)
        case KubeNode(), KubeNode():
            same = msgspec.structs.replace(before, in_service=after.in_service)
            if is_mirrored(after) or (before.mirror_mark and not after.mirror_mark and not after.unschedulable):
                same = msgspec.structs.replace(
                    same,
                    unschedulable=after.unschedulable,
                    mirror_mark=after.mirror_mark,
                    cordoned_by=after.cordoned_by,
                )
        case _:
            return False
    return _content(same) == _content(after)


def pod_state(pod: KubePod | None) -> str:
    """Where a pod is on its way: pending, bound, ready, terminating, succeeded or failed; empty for no pod."""
    if pod is None:
        return ""
    if pod.phase in {"Succeeded", "Failed"}:
        return pod.phase.lower()
    if pod.deleting_since is not None:
        return "terminating"
    if not pod.node:
        return "pending"
    return "ready" if pod.ready else "bound"


def _own_name(pod: Pod) -> str:
    """What slurmd calls itself: the host's name, the pod's host name, or the pod's name."""
    if pod.spec.host_network:
        return pod.spec.node_name
    return pod.spec.hostname or pod.metadata.name


def _cluster_of(asked: str, namespace: str, clusters: Sequence[str]) -> tuple[str, str]:
    """The cluster that is meant, and what is wrong with that."""
    if asked in clusters:
        return asked, ""
    if not asked and len(clusters) == 1:
        return clusters[0], ""
    what = f"{one_line(asked, limit=64)!r} is no cluster of namespace {namespace}" if asked else "is left out"
    return clusters[0], f"spec.cluster: {what}; want {' or '.join(clusters)}"


def _shown(conditions: Iterable[Condition]) -> list[NodeCondition]:
    return [
        NodeCondition(
            type=c.type,
            status=c.status,
            reason=one_line(c.reason, limit=MAX_TEXT),
            message=one_line(c.message, limit=MAX_TEXT),
            since=c.last_transition_time,
        )
        for c in conditions
    ]


def _content(fact: Fact) -> Fact:
    return msgspec.structs.replace(fact, epoch=0, revision="", read_at=None)


def _happened(before: Fact | None, after: Fact | None, at: datetime) -> Iterator[Event]:
    either = before or after
    if isinstance(either, KubeNode):
        yield from _on_node(_as(KubeNode, before), _as(KubeNode, after), at)
    elif isinstance(either, KubePod):
        yield from _on_pod(_as(KubePod, before), _as(KubePod, after), at)


def _on_node(before: KubeNode | None, after: KubeNode | None, at: datetime) -> Iterator[Event]:
    if before is not None and (after is None or after.uid != before.uid):
        yield NodeGone(id=f"{before.uid}:gone", at=at, node=before.name)
    if after is None:
        return
    booted = before.boot_id if before else ""
    if before is not None and before.uid != after.uid:
        before = None
    mark = f"{after.uid}:{after.revision}"
    was, now = _is_cordoned(before), _is_cordoned(after)
    if now and not was:
        yield NodeCordoned(
            id=f"{mark}:cordoned", at=at, node=after.name, by=after.cordoned_by, reason=after.cordon_reason
        )
    elif (was and not after.unschedulable) or _lifted_our_mirror(before, after):
        yield NodeUncordoned(id=f"{mark}:uncordoned", at=at, node=after.name)
    yield from _conditions_changed(before, after, at, mark)
    added, removed = _without(after, before), _without(before, after)
    if added or removed:
        yield NodeTaintsChanged(id=f"{mark}:taints", at=at, node=after.name, added=added, removed=removed)
    if booted and after.boot_id and booted != after.boot_id:
        yield NodeRebooted(
            id=f"{after.uid}:{after.boot_id}:rebooted",
            at=at,
            node=after.name,
            before=booted,
            after=after.boot_id,
        )


def _conditions_changed(before: KubeNode | None, after: KubeNode, at: datetime, mark: str) -> Iterator[Event]:
    """A condition that is absent is the same as one that is False, so that a new node tells only of what it has."""
    had, has = _by_type(before), _by_type(after)
    for kind in sorted(had.keys() | has.keys()):
        was, now = had.get(kind), has.get(kind)
        if (was.status if was else "False") != (now.status if now else "False"):
            yield NodeConditionChanged(
                id=f"{mark}:condition:{kind}",
                at=at,
                node=after.name,
                condition=kind,
                before=was.status if was else "",
                after=now.status if now else "",
                reason=now.reason if now else "",
                message=now.message if now else "",
            )


def _by_type(node: KubeNode | None) -> dict[str, NodeCondition]:
    """A node's conditions. Facts of former versions say of Ready only whether it is True."""
    if node is None:
        return {}
    return {READY: NodeCondition(type=READY, status=str(node.ready)), **{c.type: c for c in node.conditions}}


def _without(node: KubeNode | None, other: KubeNode | None) -> list[Taint]:
    """The taints that one reading shows and the other does not."""
    return [t for t in (node.taints if node else []) if t not in (other.taints if other else [])]


def _is_cordoned(node: KubeNode | None) -> bool:
    """By somebody else than us."""
    return node is not None and node.unschedulable and not is_mirrored(node)


def _lifted_our_mirror(before: KubeNode | None, after: KubeNode) -> bool:
    """Somebody uncordoned what our mirror had cordoned: we would have taken our mark along."""
    return before is not None and is_mirrored(before) and not after.unschedulable and after.mirror_mark


def _on_pod(before: KubePod | None, after: KubePod | None, at: datetime) -> Iterator[Event]:
    if before is not None and (after is None or after.uid != before.uid):
        was = pod_state(before)
        yield PodGone(id=f"{before.uid}:gone", at=at, worker=_ref(before), before=was, after="gone", uid=before.uid)
        before = None
    was, now = pod_state(before), pod_state(after)
    if after is not None and was != now:
        mark = f"{after.uid}:{after.revision}:{now}"
        yield _kind_of(was, now)(id=mark, at=at, worker=_ref(after), before=was, after=now, uid=after.uid)


def _kind_of(was: str, now: str) -> type[PodEvent]:
    if was == "ready" and now == "bound":
        return PodUnready
    return _POD_EVENTS[now]


_POD_EVENTS: dict[str, type[PodEvent]] = {
    "pending": PodCreated,
    "bound": PodBound,
    "ready": PodReady,
    "terminating": PodTerminating,
    "succeeded": PodFinished,
    "failed": PodFinished,
}


def _ref(pod: KubePod) -> WorkerRef:
    return WorkerRef(cluster=pod.cluster, name=pod.worker, kube_node=pod.node, namespace=pod.namespace, pod=pod.name)


def _as(kind: type[F], fact: Fact | None) -> F | None:
    return fact if isinstance(fact, kind) else None
