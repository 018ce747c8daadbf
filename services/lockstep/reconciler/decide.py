"""The shortest safe list of writes. Pure.

Down: protect, DRAIN, (jobs), show, and unprotect only what is proven drained. Up: protect, show, and UNDRAIN last.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from lockstep.contracts.facts import Desired, KubeNode, KubePod, NodeCondition, SlurmNode
from lockstep.contracts.hold import Condition
from lockstep.contracts.policy import MirrorCordon as Mirror
from lockstep.contracts.policy import Policy
from lockstep.contracts.policy import Protect as ProtectPolicy
from lockstep.fleet.drained import why_not_drained
from lockstep.fleet.holds import is_mirrored, projected
from lockstep.fleet.pairing import believed
from lockstep.fleet.ready import why_not_ready
from lockstep.fleet.worker import Worker, is_fresh
from lockstep.kube import conditions, keys
from lockstep.reconciler.model import (
    DrainNode,
    EndJob,
    LiftMirror,
    MirrorCordon,
    NodeAction,
    Protect,
    ShowService,
    ShowState,
    UndrainNode,
    Unprotect,
    WorkerAction,
)
from lockstep.slurm import reasons, states

PING_AFTER_UNDRAIN = timedelta(seconds=5)
"""For so long Slurm may show NOT_RESPONDING after UNDRAIN without it being a fault."""
NEIGHBOUR_PREFIX = "slurm-operator: "
"""slurm-operator drains what is cordoned; a mirrored cordon of ours must not keep itself up through it."""


def decide(worker: Worker, policy: Policy, now: datetime) -> list[WorkerAction]:
    """What must be written for this worker, in the order in which it must be written."""
    desired = worker.desired
    if desired is None:
        return []
    guarded = _protection(worker, desired, policy, now)
    down_or_up = _slurm(worker, desired, policy, now)
    shown = _show_state(worker, policy, now)
    before = [a for a in guarded if isinstance(a, Protect)]
    after = [a for a in guarded if isinstance(a, Unprotect)]
    if any(isinstance(a, UndrainNode) for a in down_or_up):
        return [*before, *shown, *down_or_up]
    return [*before, *down_or_up, *shown, *_end_jobs(worker, desired), *after]


def _protection(worker: Worker, desired: Desired, policy: Policy, now: datetime) -> list[WorkerAction]:
    pod = worker.pod
    if pod is None or pod.deleting_since is not None or policy.protect is ProtectPolicy.OFF:
        return []
    if worker.slurm is None and not pod.protected:
        return []
    why = _why_protected(worker, desired, policy, now)
    if why and not pod.protected:
        return [Protect(namespace=pod.namespace, pod=pod.name, uid=pod.uid, because=why)]
    if not why and pod.protected:
        return [Unprotect(namespace=pod.namespace, pod=pod.name, uid=pod.uid, because="drained")]
    return []


def _why_protected(worker: Worker, desired: Desired, policy: Policy, now: datetime) -> str:
    """Why the pod may not be evicted; the empty string when it may. What cannot be read is protected."""
    drained = why_not_drained(worker, policy, now)
    slurm = worker.slurm
    if policy.protect is ProtectPolicy.BUSY and slurm is not None and drained:
        idle = states.is_idle(slurm.base, slurm.flags) and not states.unsafe_flags(slurm.flags)
        fresh = is_fresh(worker.slurm_as_of, now, policy.stale_after_s)
        return "" if idle and fresh and not worker.jobs else drained
    believed_drain = believed(worker)
    if believed_drain is not None and not states.is_drain(believed_drain.base, believed_drain.flags):
        return "Slurm does not show DRAIN"
    return drained or ("" if projected(desired.holds) else "nothing on Kubernetes' side wants it gone")


def _slurm(worker: Worker, desired: Desired, policy: Policy, now: datetime) -> list[WorkerAction]:
    node = believed(worker)
    if node is None or not is_fresh(worker.slurm_as_of, now, policy.stale_after_s):
        return []
    held = projected(desired.holds)
    if held:
        return _down(worker, node, desired, policy, now)
    ours = states.is_drain(node.base, node.flags) and reasons.is_ours(node.reason)
    if ours and not why_not_ready(worker, policy, now):
        return [UndrainNode(because="no hold stands" if desired.in_service else "the last hold of ours ended")]
    return []


def _down(worker: Worker, node: SlurmNode, desired: Desired, policy: Policy, now: datetime) -> list[WorkerAction]:
    words, because = desired.words, projected(desired.holds)[0].id
    ours = reasons.is_ours(node.reason)
    if states.is_drain(node.base, node.flags):
        if ours and not reasons.same(node.reason, words):
            return [DrainNode(words=words, because=because)]
        return []
    if states.is_fail(node.base, node.flags):
        return []
    if states.is_down(node.base, node.flags) and not ours:
        if not reasons.by_slurmctld(node.reason):
            return []
        words = reasons.keep_behind(words, node.reason)
    wrote = worker.wrote
    resumed = wrote is not None and bool(wrote.words) and wrote.episode == desired.episode
    again = wrote.reasserted_at if wrote is not None and resumed else None
    if again is not None and now - again < timedelta(seconds=policy.reassert_every_s):
        return []
    return [DrainNode(words=words, reassert=resumed, because=because)]


def _end_jobs(worker: Worker, desired: Desired) -> list[WorkerAction]:
    """The runs that the drain ends, as far as they still run here."""
    running = {(job.job_id, job.start) for job in worker.jobs}
    return [
        EndJob(job_id=a.job_id, act=a.act, start=a.start, because="the drain's policy")
        for a in desired.job_acts
        if (a.job_id, a.start) in running
    ]


def _show_state(worker: Worker, policy: Policy, now: datetime) -> list[WorkerAction]:
    pod = worker.pod
    fresh = is_fresh(worker.slurm_as_of, now, policy.stale_after_s)
    if pod is None or pod.deleting_since is not None or not policy.conditions or not fresh:
        return []
    wanted = _conditions(worker, now)
    if _said(wanted) == _shown(pod):
        return []
    because = states.text(worker.slurm.base, worker.slurm.flags) if worker.slurm else "Slurm does not know it"
    return [ShowState(namespace=pod.namespace, pod=pod.name, uid=pod.uid, conditions=wanted, because=because)]


def _conditions(worker: Worker, now: datetime) -> list[Condition]:
    slurm, wrote = worker.slurm, worker.wrote
    if slurm is None:
        return []
    flags = set(slurm.flags)
    if wrote and wrote.undrained_at and now - wrote.undrained_at < PING_AFTER_UNDRAIN:
        flags.discard(states.NOT_RESPONDING)
    return conditions.slurm_conditions(slurm.base, flags, slurm.reason)


def _said(wanted: Sequence[Condition]) -> set[tuple[str, str, str]]:
    return {(c.type, c.status, c.message) for c in wanted}


def _shown(pod: KubePod) -> set[tuple[str, str, str]]:
    return {(c.type, c.status, c.message) for c in pod.conditions if c.type.startswith(keys.SLURM_STATE_PREFIX)}


def decide_node(node: KubeNode, workers: Sequence[Worker], policy: Policy, now: datetime) -> list[NodeAction]:
    """What must be written on a Kubernetes node, for all the workers on it together."""
    known = [w for w in workers if w.desired is not None]
    if not known or node.deleting_since is not None or not is_fresh(known[0].kube_as_of, now, policy.stale_after_s):
        return []
    return [*_service(node, known), *_mirror(node, known, policy)]


def _service(node: KubeNode, workers: Sequence[Worker]) -> list[NodeAction]:
    each = sorted((w.desired for w in workers if w.desired), key=lambda d: (d.in_service, d.cluster, d.name))
    wanted = conditions.in_service(each[0])
    shown = node.in_service or NodeCondition(type="", status="")
    if (shown.status, shown.reason, shown.message) == (wanted.status, wanted.reason, wanted.message):
        return []
    return [ShowService(node=node.name, condition=wanted, because=each[0].words or "in service")]


def _mirror(node: KubeNode, workers: Sequence[Worker], policy: Policy) -> list[NodeAction]:
    """Our own cordon: set once for a hold, never against somebody's uncordon, taken back with the last hold."""
    reason = next((r for w in workers if (r := _mirrored_reason(w))), "") if policy.mirror is Mirror.CORDON else ""
    if reason:
        if node.unschedulable or node.mirror_mark:
            return []
        return [MirrorCordon(node=node.name, because=reason)]
    if node.mirror_mark:
        return [LiftMirror(node=node.name, uid=node.uid, cordoned=is_mirrored(node), because="no hold stands")]
    return []


def _mirrored_reason(worker: Worker) -> str:
    """The first hold that a cordon can mirror: not a cordon itself, and not slurm-operator's answer to one."""
    for hold in worker.desired.holds if worker.desired else []:
        neighbour = hold.id.startswith("slurm/") and hold.reason.startswith(NEIGHBOUR_PREFIX.strip())
        if not hold.id.startswith(("cordon/", "pod-cordon/", "pod/")) and not neighbour:
            return hold.id
    return ""
