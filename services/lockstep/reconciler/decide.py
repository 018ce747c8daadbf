"""The shortest safe list of writes. Pure.

Down: protect, DRAIN, (jobs), show, and unprotect only what is proven drained. Up: protect, show, and UNDRAIN last.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from lockstep.contracts.facts import Desired, HoldView, KubeNode, KubePod, SlurmNode
from lockstep.contracts.hold import Condition
from lockstep.contracts.policy import MirrorCordon as Mirror
from lockstep.contracts.policy import Policy
from lockstep.contracts.policy import Protect as ProtectPolicy
from lockstep.fleet.drained import why_not_closed, why_not_drained, why_not_idle
from lockstep.fleet.holds import ends_jobs, is_foreign, is_mirrored, projected, standing
from lockstep.fleet.pairing import believed
from lockstep.fleet.ready import why_not_ready
from lockstep.fleet.worker import Worker, is_fresh, is_live
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
    guarded = _protection(worker, policy, now)
    before = [a for a in guarded if isinstance(a, Protect)]
    desired = worker.desired
    if desired is None:
        return list[WorkerAction](before)
    after = [a for a in guarded if isinstance(a, Unprotect)]
    standing_here = projected(standing(worker, policy, now))
    down_or_up = _slurm(worker, desired, standing_here, policy, now)
    shown = _show_state(worker, policy, now)
    if any(isinstance(a, UndrainNode) for a in down_or_up):
        return [*before, *shown, *down_or_up]
    return [*before, *down_or_up, *shown, *_end_jobs(worker, desired, standing_here, policy, now), *after]


def _protection(worker: Worker, policy: Policy, now: datetime) -> list[Protect | Unprotect]:
    """For every pod that claims the worker: it is not known which of two runs the slurmd."""
    if policy.protect is ProtectPolicy.OFF:
        return []
    found: list[Protect | Unprotect] = []
    for pod in (worker.pod, *worker.other_pods):
        if pod is None or not is_live(pod) or (worker.slurm is None and not pod.protected):
            continue
        why = _why_protected(worker, policy, now, protected=pod.protected)
        if why and not pod.protected:
            found.append(Protect(namespace=pod.namespace, pod=pod.name, uid=pod.uid, because=why))
        elif not why and pod.protected:
            found.append(Unprotect(namespace=pod.namespace, pod=pod.name, uid=pod.uid, because="drained"))
    return found


def _why_protected(worker: Worker, policy: Policy, now: datetime, *, protected: bool) -> str:
    """Why a pod may not be evicted; the empty string when it may. What cannot be read is protected.

    To be let go it must be proven drained; then it is enough that every reading shows it so.
    """
    drained = (why_not_drained if protected else why_not_closed)(worker, policy, now)
    slurm = worker.slurm
    if policy.protect is ProtectPolicy.BUSY:
        idle = slurm is not None and not why_not_idle(slurm, policy) and not worker.jobs
        return "" if idle and is_fresh(worker.slurm_as_of, now, policy.stale_after_s) else drained
    held = worker.desired is not None and projected(worker.desired.holds)
    return drained or ("" if held else "nothing on Kubernetes' side wants it gone")


def _slurm(
    worker: Worker, desired: Desired, standing_here: Sequence[HoldView], policy: Policy, now: datetime
) -> list[WorkerAction]:
    node = believed(worker)
    if node is None or not is_fresh(worker.slurm_as_of, now, policy.stale_after_s):
        return []
    if projected(desired.holds):
        return _down(worker, node, desired, policy, now)
    ours = states.is_drain(node.base, node.flags) and reasons.is_ours(node.reason)
    if ours and not standing_here and not why_not_ready(worker, policy, now):
        return [UndrainNode(because="no hold stands" if desired.in_service else "the last hold of ours ended")]
    return []


def _down(worker: Worker, node: SlurmNode, desired: Desired, policy: Policy, now: datetime) -> list[WorkerAction]:
    if is_foreign(node):
        return []
    words, because, wrote = desired.words, projected(desired.holds)[0].id, worker.wrote
    answered = wrote is not None and bool(wrote.words) and wrote.episode == desired.episode
    if states.is_drain(node.base, node.flags):
        if not reasons.same(node.reason, words):
            return [DrainNode(words=words, because=because)]
        return [] if answered else [DrainNode(words=node.reason, because=because)]
    if states.is_down(node.base, node.flags):
        words = reasons.keep_behind(words, node.reason)
    again = wrote.reasserted_at if wrote is not None and answered else None
    if again is not None and now - again < timedelta(seconds=policy.reassert_every_s):
        return []
    return [DrainNode(words=words, reassert=answered, because=because)]


def _end_jobs(
    worker: Worker, desired: Desired, standing_here: Sequence[HoldView], policy: Policy, now: datetime
) -> list[WorkerAction]:
    """The runs that the drain ends, as far as they still run here, and a hold that ends them still stands."""
    node = believed(worker)
    if node is None or not states.is_drain(node.base, node.flags):
        return []
    if not is_fresh(worker.slurm_as_of, now, policy.stale_after_s):
        return []
    running = {(job.job_id, job.start) for job in worker.jobs}
    acts = {ends_jobs(hold, now) for hold in standing_here}
    return [
        EndJob(job_id=a.job_id, act=a.act, start=a.start, because="the drain's policy")
        for a in desired.job_acts
        if a.act in acts and (a.job_id, a.start) in running
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


def decide_node(
    node: KubeNode, workers: Sequence[Worker], policy: Policy, now: datetime, *, kube_as_of: datetime | None = None
) -> list[NodeAction]:
    """What must be written on a Kubernetes node, for all the workers on it together.

    `kube_as_of` is needed only for a node without workers, which may bear a mirror that its last worker left.
    """
    as_of = workers[0].kube_as_of if workers else kube_as_of
    if node.deleting_since is not None or not is_fresh(as_of, now, policy.stale_after_s):
        return []
    known = [w for w in workers if w.desired is not None]
    service = _service(node, known) if known else []
    return [*service, *_mirror(node, workers, policy)]


def _service(node: KubeNode, workers: Sequence[Worker]) -> list[NodeAction]:
    each = sorted((w.desired for w in workers if w.desired), key=lambda d: (d.in_service, d.cluster, d.name))
    wanted = conditions.in_service(each[0])
    shown = node.in_service
    if shown and (shown.status, shown.reason, shown.message) == (wanted.status, wanted.reason, wanted.message):
        return []
    because = each[0].words or "in service"
    return [ShowService(node=node.name, uid=node.uid, shown=shown, condition=wanted, because=because)]


def _mirror(node: KubeNode, workers: Sequence[Worker], policy: Policy) -> list[NodeAction]:
    """Our own cordon: set once for a hold, never against somebody's uncordon, taken back with the last hold."""
    reason = next((r for w in workers if (r := _mirrored_reason(w))), "") if policy.mirror is Mirror.CORDON else ""
    if reason:
        if node.unschedulable or node.mirror_mark:
            return []
        return [MirrorCordon(node=node.name, because=reason)]
    if (node.mirror_mark or is_mirrored(node)) and all(w.desired is not None for w in workers):
        return [LiftMirror(node=node.name, uid=node.uid, cordoned=is_mirrored(node), because="no hold stands")]
    return []


def _mirrored_reason(worker: Worker) -> str:
    """The first hold that a cordon can mirror: not a cordon itself, and not slurm-operator's answer to one."""
    for hold in worker.desired.holds if worker.desired else []:
        neighbour = hold.id.startswith("slurm/") and hold.reason.startswith(NEIGHBOUR_PREFIX.strip())
        if not hold.id.startswith(("cordon/", "pod-cordon/", "pod/", "node/")) and not neighbour:
            return hold.id
    return ""
