"""What must hold of every worker, whatever happened. Pure.

Run by the reconciler's sweep, and after every step of the tests.
"""

from datetime import datetime
from typing import NamedTuple

from lockstep.contracts.policy import Policy, Protect
from lockstep.fleet.drained import why_not_drained
from lockstep.fleet.holds import projected
from lockstep.fleet.pairing import believed
from lockstep.fleet.worker import Worker, is_fresh
from lockstep.slurm import reasons, states


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
    if (
        policy.protect is Protect.UNDRAINED
        and worker.pod
        and not worker.pod.protected
        and not worker.pod.deleting_since
    ):
        why_not = why_not_drained(worker, policy, now)
        if why_not:
            found.append(Broken("protected-until-drained", why_not))
    if held and not drain and states.is_schedulable(slurm.base, slurm.flags):
        found.append(Broken("held-is-drained", f"{held[0].id} stands and Slurm offers the worker"))
    if not held and drain and reasons.is_ours(slurm.reason) and worker.desired.in_service:
        found.append(Broken("drain-has-a-hold", f"Slurm shows {slurm.reason!r} and no hold stands"))
    if len(worker.other_pods) > 1:
        found.append(Broken("one-pod-a-worker", ", ".join(pod.name for pod in worker.other_pods)))
    return found
