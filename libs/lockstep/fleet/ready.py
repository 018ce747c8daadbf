"""Whether a worker may come back into service: machine, pod and slurmd are there anew. Pure; fails closed."""

from datetime import datetime, timedelta

from lockstep.contracts.policy import Policy
from lockstep.fleet.holds import is_mirrored
from lockstep.fleet.worker import Worker, is_fresh
from lockstep.slurm import states

CLOCK_SKEW = timedelta(seconds=5)
"""How far the clocks of a worker and of the Kubernetes node under it may lie apart."""

NEWS_S = 5.0
"""The door is opened on news that are at most so many seconds old, however long silence is borne elsewhere."""


def why_not_ready(worker: Worker, policy: Policy, now: datetime) -> str:
    """Why our DRAIN may not be lifted yet, were no hold standing; the empty string when it may."""
    fresh_s = min(policy.stale_after_s, NEWS_S)
    if not is_fresh(worker.kube_as_of, now, fresh_s):
        return "Kubernetes cannot be read"
    if not is_fresh(worker.slurm_as_of, now, fresh_s):
        return "Slurm's nodes cannot be read"
    return _why_not_in_kube(worker) or _why_not_in_slurm(worker)


def _why_not_in_kube(worker: Worker) -> str:
    node, pod = worker.node, worker.pod
    if node is not None and node.deleting_since is not None:
        return "its Kubernetes node is being deleted"
    if node is not None and node.unschedulable and not is_mirrored(node):
        return "its Kubernetes node is cordoned"
    if worker.hybrid:
        return "its Kubernetes node is gone" if node is None and worker.node_name else ""
    if pod is None:
        return "it has no pod"
    if pod.deleting_since is not None:
        return "its pod is terminating"
    if node is None or not pod.node:
        return "its pod is on no Kubernetes node"
    return "" if pod.ready and pod.started_at is not None else "its pod is not ready"


def _why_not_in_slurm(worker: Worker) -> str:
    slurm, pod = worker.slurm, worker.pod
    if slurm is None:
        return "Slurm does not know the worker"
    if states.is_down(slurm.base, slurm.flags):
        return f"Slurm shows {slurm.base}"
    if states.phase_of(slurm.base, slurm.flags) is states.NodePhase.POWER:
        return "it is off, or on its way up or down"
    if not states.is_registered(slurm.base, slurm.flags) or not states.is_responding(slurm.base, slurm.flags):
        return "slurmd is not registered or does not respond"
    started = pod.started_at if pod else None
    if started is not None and (slurm.slurmd_start is None or slurm.slurmd_start < started - CLOCK_SKEW):
        return "slurmd has not registered since its pod started"
    return ""
