"""What must hold of every worker, whatever happened. Pure.

Run by the reconciler's sweep, and after every step of the tests.
"""

from datetime import datetime, timedelta
from typing import NamedTuple

from lockstep.contracts.policy import Policy, Protect
from lockstep.fleet.drained import why_not_closed
from lockstep.fleet.holds import projected
from lockstep.fleet.pairing import believed
from lockstep.fleet.ready import why_not_ready
from lockstep.fleet.worker import Worker, is_fresh, is_live
from lockstep.slurm import reasons, states

STUCK_AFTER = timedelta(minutes=10)
"""A state in which Slurm offers a worker to nobody, and nobody holds it, should not last longer."""


class Broken(NamedTuple):
    """A rule that does not hold, and what was seen."""

    rule: str
    detail: str


def broken(worker: Worker, policy: Policy, now: datetime) -> list[Broken]:
    """The rules that this worker breaks. Right after a change one may be broken for a moment; it must not last.

    Nothing is said of what cannot be read.
    """
    slurm = believed(worker)
    fresh = all(is_fresh(as_of, now, policy.stale_after_s) for as_of in (worker.slurm_as_of, worker.kube_as_of))
    if slurm is None or worker.desired is None or not fresh:
        return []
    found = []
    held, drain = projected(worker.desired.holds), states.is_drain(slurm.base, slurm.flags)
    live = [pod for pod in (worker.pod, *worker.other_pods) if pod is not None and is_live(pod)]
    why_not = why_not_closed(worker, policy, now)
    if policy.protect is Protect.UNDRAINED and why_not and not all(pod.protected for pod in live):
        found.append(Broken("protected-until-drained", why_not))
    if held and not drain and states.is_schedulable(slurm.base, slurm.flags):
        found.append(Broken("held-is-drained", f"{held[0].id} stands and Slurm offers the worker"))
    if not held and drain and reasons.is_ours(slurm.reason) and not why_not_ready(worker, policy, now):
        found.append(Broken("drain-has-a-hold", f"Slurm shows {slurm.reason!r} and no hold stands"))
    if len(live) > 1:
        found.append(Broken("one-pod-a-worker", ", ".join(pod.identity for pod in live)))
    if not worker.desired.holds and _is_stuck(worker, policy, now):
        found.append(Broken("not-in-limbo", f"nobody holds it and Slurm shows {states.text(slurm.base, slurm.flags)}"))
    return found


def _is_stuck(worker: Worker, policy: Policy, now: datetime) -> bool:
    """Whether Slurm has shown the same state for long in which the worker neither works nor can be given work."""
    slurm = worker.slurm
    if slurm is None or slurm.read_at is None or now - slurm.read_at < STUCK_AFTER:
        return False
    works = states.is_busy(slurm.base, slurm.flags) or states.is_schedulable(
        slurm.base, slurm.flags, allow=policy.allowed_flags
    )
    return not works and not states.is_off(slurm.base, slurm.flags)
