"""Whether a worker is drained: the one place that says so. Pure, and it fails closed.

Two complete reads of a live source must have shown the worker empty and draining. The poller publishes a changed node
before the heartbeat of the read that found it, so a node fact older than the newest heartbeat was seen unchanged by at
least two reads, and a DRAIN that a read shows was acknowledged before that read.

A DRAIN of ours counts only when it was answered for the holds that stand now: what a read shows may be the drain of
the last ones, and the UNDRAIN that lifts it may be on its way.
"""

import re
from datetime import datetime

from lockstep.contracts.facts import SlurmNode
from lockstep.contracts.policy import Policy, Protect
from lockstep.fleet.holds import projected
from lockstep.fleet.worker import Worker, is_fresh
from lockstep.slurm import reasons, states

READ_ONCE = "it was read only once since"
JOBS_NOT_READ = "jobs were not read since"
WAITS_FOR_A_READ = frozenset({READ_ONCE, JOBS_NOT_READ})
"""Answers that change with the next heartbeat, without any fact changing."""
_GRES_COUNT = re.compile(r":(\d+)[KMGTP]?(?=\(|,|$)")


def why_not_drained(worker: Worker, policy: Policy, now: datetime) -> str:
    """Why a worker is not (yet) proven drained; the empty string when it is."""
    return why_not_closed(worker, policy, now) or _not_read_often_enough(worker, policy, now)


def why_not_closed(worker: Worker, policy: Policy, now: datetime) -> str:
    """Why the last reading does not show the worker drained; the empty string when it does.

    Keeps what was proven drained so (a change of words or of a comment need not be read twice); proves nothing.
    """
    slurm = worker.slurm
    if slurm is None:
        return "Slurm does not know the worker"
    if not is_fresh(worker.slurm_as_of, now, policy.stale_after_s):
        return "Slurm's nodes cannot be read"
    why_not = why_not_empty(slurm, policy)
    if why_not:
        return why_not
    if worker.jobs:
        return f"job {worker.jobs[0].job_id} still holds it"
    return "" if is_answered(worker) else "our drain for these holds is not answered yet"


def why_not_empty(slurm: SlurmNode, policy: Policy) -> str:
    """Why one reading of a Slurm node does not show it draining and empty; the empty string when it does.

    One reading proves nothing yet: see `why_not_drained`.
    """
    if not states.is_drain(slurm.base, slurm.flags):
        return "Slurm does not show DRAIN"
    return why_not_idle(slurm, policy)


def why_not_idle(slurm: SlurmNode, policy: Policy) -> str:
    """Why one reading of a Slurm node does not show it free of work and settled, whether it is drained or not."""
    if states.is_busy(slurm.base, slurm.flags):
        return "jobs run or complete"
    unsafe = states.unsafe_flags(slurm.flags, allow=policy.allowed_flags)
    if unsafe:
        return f"its state is not settled: {', '.join(unsafe)}"
    down = policy.down_is_drained and states.is_down(slurm.base, slurm.flags)
    if not states.is_idle(slurm.base, slurm.flags) and not down:
        return f"its base state is {slurm.base}"
    if slurm.alloc_cpus or slurm.alloc_memory_mib or gres_in_use(slurm.gres_used):
        return "resources are still allocated"
    return ""


def why_not_let_go(slurm: SlurmNode, policy: Policy) -> str:
    """Why one more reading, right before a pod may be evicted, speaks against it; the empty string when it does not."""
    return (why_not_idle if policy.protect is Protect.BUSY else why_not_empty)(slurm, policy)


def is_answered(worker: Worker) -> bool:
    """Whether the DRAIN that Slurm shows is nobody's that we are about to lift: foreign, or ours for today's holds."""
    slurm, desired, wrote = worker.slurm, worker.desired, worker.wrote
    if slurm is None or not reasons.is_ours(slurm.reason):
        return True
    if desired is None or wrote is None or not projected(desired.holds):
        return False
    return bool(wrote.words) and wrote.episode == desired.episode


def _not_read_often_enough(worker: Worker, policy: Policy, now: datetime) -> str:
    wrote, read_at = worker.wrote, worker.slurm.read_at if worker.slurm else None
    if read_at is None:
        return READ_ONCE
    since = max(at for at in (read_at, wrote and wrote.drained_at, wrote and wrote.undrained_at) if at)
    if worker.slurm_as_of is None or worker.slurm_as_of <= since:
        return READ_ONCE
    if not is_fresh(worker.jobs_as_of, now, policy.stale_after_s):
        return "Slurm's jobs cannot be read"
    return JOBS_NOT_READ if worker.jobs_as_of is None or worker.jobs_as_of <= since else ""


def gres_in_use(gres_used: str) -> int:
    """How many generic resources are allocated: `gpu:h100:2(IDX:0-1),nic:1` is 3. Text that has no count is 0.

    A count with a suffix (`shard:2K`) is taken by its number, which is enough to know that something is in use.
    """
    return sum(int(n) for n in _GRES_COUNT.findall(gres_used))
