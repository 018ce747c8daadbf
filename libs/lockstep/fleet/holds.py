"""Which reasons to keep a worker out of service stand, wherever each of them lives. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import lru_cache

from lockstep.base.text import one_line
from lockstep.contracts.facts import HoldView, KubeHold, KubeNode, SlurmNode
from lockstep.contracts.hold import MAX_REASON, AtDeadline, DrainPolicy, HoldClass, HoldSpec, WorkerSelector, seconds_of
from lockstep.contracts.policy import Policy
from lockstep.fleet import signals
from lockstep.fleet.worker import Worker
from lockstep.kube import keys
from lockstep.slurm import hostlist, reasons, states

_ORDER = {each: i for i, each in enumerate(HoldClass)}
_NOBODY = "unknown"
MAX_DEADLINE_S = 366 * 24 * 3600
"""A longer deadline is a slip."""


def standing(worker: Worker, policy: Policy, now: datetime) -> list[HoldView]:
    """The holds that stand on a worker, the one that gives the words first.

    A mirror of ours (a cordon that we set, a DRAIN with our reason) is never a hold.
    """
    return in_order(
        [*_resources(worker, now), *_from_node(worker, policy), *_from_pods(worker, policy), *_from_slurm(worker, now)]
    )


def in_order(found: Iterable[HoldView]) -> list[HoldView]:
    """Each hold once, the one that gives the words first."""
    once = {hold.id: hold for hold in found}
    return sorted(once.values(), key=lambda h: (_ORDER[h.hold_class], h.id))


def is_slurms_own(hold: HoldView) -> bool:
    """Whether Slurm itself keeps the worker out (an administrator's drain, a reservation), so that we need not."""
    return hold.id.startswith(("slurm/", "reservation/"))


def projected(holds: Sequence[HoldView]) -> list[HoldView]:
    """The holds that need our DRAIN in Slurm: all but Slurm's own."""
    return [hold for hold in holds if not is_slurms_own(hold)]


def words(holds: Sequence[HoldView], slurm_reason: str = "") -> str:
    """The one text for both systems: our words when there is a hold of ours, else the reason that stands in Slurm."""
    ours = projected(holds)
    if ours:
        return reasons.ours(ours[0].owner, ours[0].reason, more=len(ours) - 1)
    return (_theirs(slurm_reason, limit=reasons.MAX) or holds[0].reason) if holds else ""


def ends_jobs(hold: HoldView, now: datetime) -> DrainPolicy:
    """What a hold does to the jobs now: its policy, or, once a waiting drain's deadline has passed, what it said."""
    if hold.policy is not DrainPolicy.WAIT or hold.deadline is None or now < hold.deadline:
        return hold.policy
    return {AtDeadline.CANCEL: DrainPolicy.CANCEL, AtDeadline.REQUEUE: DrainPolicy.REQUEUE}.get(
        hold.at_deadline, DrainPolicy.WAIT
    )


def is_mirrored(node: KubeNode) -> bool:
    """Whether the node's cordon is our own mirror, by the server's record of who set it."""
    return node.unschedulable and node.cordoned_by == keys.FIELD_MANAGER


def selects(wanted: WorkerSelector, worker: Worker) -> bool:
    """Whether a Hold is meant for this worker."""
    if wanted.names is not None:
        return worker.name in wanted.names
    if wanted.hostlist is not None:
        return worker.name in _names(wanted.hostlist)
    if wanted.nodes is not None:
        return bool(worker.node_name) and worker.node_name in wanted.nodes
    if wanted.selector is not None:
        labels = worker.pod.labels if worker.pod else worker.node.labels if worker.node else {}
        match = wanted.selector.match_labels
        return bool(match) and all(labels.get(k) == v for k, v in match.items())
    if wanted.partitions is not None:
        return worker.slurm is not None and not set(worker.slurm.partitions).isdisjoint(wanted.partitions)
    return False


def faults(hold: KubeHold) -> list[str]:
    """What makes a Hold unusable, each naming the field, the value and what is allowed. Empty: it is good."""
    return [hold.fault or "spec: cannot be read"] if hold.spec is None else faults_of(hold.spec)


def faults_of(spec: HoldSpec) -> list[str]:
    """The same of what somebody wants a Hold to be."""
    found = []
    wanted = spec.workers
    given = [f for f in wanted.__struct_fields__ if getattr(wanted, f) is not None]
    if len(given) != 1:
        found.append(f"spec.workers: {', '.join(given) or 'nothing'} given; want exactly one selector")
    elif wanted.blocks is not None:
        found.append("spec.workers.blocks: needs the topology service, which does not run; use names or hostlist")
    elif not _content(wanted, given[0]):
        found.append(f"spec.workers.{given[0]}: is empty and would select all or nothing; name the workers")
    if wanted.hostlist is not None and (fault := _fault_of(wanted.hostlist)):
        found.append(f"spec.workers.hostlist: {fault}")
    if spec.drain.deadline is not None and (fault := _fault_of_deadline(spec.drain.deadline)):
        found.append(f"spec.drain.deadline: {fault}")
    if not one_line(spec.reason, limit=MAX_REASON):
        found.append("spec.reason: is empty; say why, in at most 200 characters")
    if spec.hold_class is HoldClass.SLURM:
        found.append("spec.class: slurm is for what stands in Slurm itself; use manual")
    return found


def _fault_of_deadline(text: str) -> str:
    try:
        length = seconds_of(text)
    except ValueError as error:
        return str(error)
    return "" if length <= MAX_DEADLINE_S else f"{text} is longer than a year; leave it out to wait for ever"


def is_expired(hold: KubeHold, now: datetime) -> bool:
    """Whether the Hold's time is over."""
    return hold.spec is not None and hold.spec.expires_at is not None and hold.spec.expires_at <= now


def hold_id(hold: KubeHold) -> str:
    """The stable id of a Hold resource among all holds."""
    return f"hold/{hold.namespace}/{hold.name}"


def view_of(hold: KubeHold) -> HoldView | None:
    """A Hold resource in the one shape that all holds have."""
    if hold.spec is None:
        return None
    drain = hold.spec.drain
    deadline = None
    if drain.deadline is not None and hold.created_at is not None:
        deadline = hold.created_at + timedelta(seconds=seconds_of(drain.deadline))
    return HoldView(
        id=hold_id(hold),
        hold_class=hold.spec.hold_class,
        owner=one_line(hold.owner, limit=64) or _NOBODY,
        reason=one_line(hold.spec.reason, limit=MAX_REASON),
        since=hold.created_at,
        until=hold.spec.expires_at,
        policy=drain.policy,
        deadline=deadline,
        at_deadline=drain.at_deadline,
    )


def _resources(worker: Worker, now: datetime) -> Iterator[HoldView]:
    for hold in worker.holds:
        if hold.deleting_since is None and not is_expired(hold, now) and not faults(hold):
            view = view_of(hold)
            if view is not None:
                yield view


def _from_node(worker: Worker, policy: Policy) -> Iterator[HoldView]:
    node = worker.node
    if node is None:
        return
    if node.unschedulable and not is_mirrored(node):
        yield HoldView(
            id=f"cordon/{node.name}",
            hold_class=HoldClass.CORDON,
            owner=one_line(node.cordoned_by, limit=64) or "kubernetes",
            reason=one_line(node.cordon_reason, limit=MAX_REASON) or "Kubernetes node cordoned",
        )
    if node.deleting_since is not None:
        yield HoldView(
            id=f"node/{node.name}",
            hold_class=HoldClass.MAINTENANCE,
            owner="kubernetes",
            reason="Kubernetes node is being deleted",
        )
    for signal, said in signals.told(node, policy.node_conditions):
        yield HoldView(
            id=f"{signal.kind}/{node.name}/{signal.key}",
            hold_class=HoldClass.HEALTH if signal.kind == "condition" else HoldClass.MAINTENANCE,
            owner="kubernetes",
            reason=one_line(said, limit=MAX_REASON),
        )


def _from_pods(worker: Worker, policy: Policy) -> Iterator[HoldView]:
    pod = worker.pod
    if pod is None:
        return
    if pod.pod_cordon and policy.pod_cordon:
        yield HoldView(
            id=f"pod-cordon/{pod.namespace}/{pod.name}",
            hold_class=HoldClass.CORDON,
            owner="kubernetes",
            reason="pod cordoned",
        )
    if pod.deleting_since is not None:
        yield HoldView(
            id=f"pod/{pod.namespace}/{pod.name}",
            hold_class=HoldClass.MAINTENANCE,
            owner="kubernetes",
            reason="pod is terminating",
        )


def _from_slurm(worker: Worker, now: datetime) -> Iterator[HoldView]:
    slurm = worker.slurm
    if slurm is not None and (is_foreign(slurm) or _is_down_behind_ours(slurm)):
        ours = reasons.is_ours(slurm.reason)
        yield HoldView(
            id=f"slurm/{slurm.name}",
            hold_class=HoldClass.SLURM,
            owner="slurm" if ours else one_line(slurm.reason_by, limit=64) or "slurm",
            reason=_theirs(slurm.reason, limit=MAX_REASON) or "no reason given",
            since=None if ours else slurm.reason_at,
        )
    for reservation in worker.reservations:
        if reservation.maintenance and _runs(reservation.start, reservation.end, now):
            yield HoldView(
                id=f"reservation/{reservation.name}",
                hold_class=HoldClass.MAINTENANCE,
                owner="slurm",
                reason=one_line(f"maintenance reservation {reservation.name}", limit=MAX_REASON),
                since=reservation.start,
                until=reservation.end,
            )


def is_foreign(slurm: SlurmNode) -> bool:
    """Whether somebody else than us (and than slurmctld by itself) keeps the node out of service in Slurm.

    Then nothing is written on it. FAIL is never ours, whatever the reason says: it clears DRAIN and leaves the words.
    """
    if states.is_fail(slurm.base, slurm.flags):
        return True
    if reasons.is_ours(slurm.reason):
        return False
    if states.is_drain(slurm.base, slurm.flags):
        return True
    return states.is_down(slurm.base, slurm.flags) and not reasons.by_slurmctld(slurm.reason)


def _is_down_behind_ours(slurm: SlurmNode) -> bool:
    """Whether somebody set the node DOWN and our words stand there.

    She gave none, or they met a write of ours in flight. Slurm's own DOWN does not respond, or lifts itself when the
    slurmd registers (`ReturnToService` 2); where it does not, it waits for somebody's resume as well.
    """
    if not (reasons.is_ours(slurm.reason) and states.is_down(slurm.base, slurm.flags)):
        return False
    settled = states.phase_of(slurm.base, slurm.flags) is states.NodePhase.DOWN
    return settled and states.is_responding(slurm.base, slurm.flags)


def _theirs(reason: str, *, limit: int) -> str:
    return "" if reasons.is_ours(reason) else one_line(reason, limit=limit)


def _runs(start: datetime | None, end: datetime | None, now: datetime) -> bool:
    return (start is None or start <= now) and (end is None or now < end)


def _content(wanted: WorkerSelector, field: str) -> bool:
    value = getattr(wanted, field)
    return bool(value.match_labels) if wanted.selector is not None else bool(value) and all(value)


@lru_cache(maxsize=1024)
def _names(text: str) -> frozenset[str]:
    """The names of a host list; none of one that cannot be read, of which `faults` tells."""
    try:
        return frozenset(hostlist.expand(text))
    except ValueError:
        return frozenset()


def _fault_of(text: str) -> str:
    try:
        hostlist.expand(text)
    except ValueError as error:
        return str(error)
    return ""
