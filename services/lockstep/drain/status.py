"""What a Hold resource says of itself: whether it is accepted, and how far its workers are. Pure."""

from collections.abc import Sequence
from datetime import datetime

from lockstep.contracts.events import HoldRefused
from lockstep.contracts.facts import Desired, KubeHold, Progress
from lockstep.contracts.hold import Condition, HoldPhase, HoldStatus, WaitingFor, WorkerCounts
from lockstep.fleet.holds import faults, is_expired, view_of

MAX_WAITING = 20
"""Workers that a status names with their jobs."""
SELECTS_ALL = (
    "spec.workers.selector: takes every worker of the cluster; name them by hostlist or names if that is meant"
)
_OUT = frozenset({Progress.DRAINING, Progress.DRAINED, Progress.OVERDUE})


def status_of(hold: KubeHold, selected: Sequence[Desired], *, refused: bool, now: datetime) -> HoldStatus:
    """The status of one Hold, from the desired states of the workers on which it stands."""
    wrong = faults(hold) or ([SELECTS_ALL] if refused else [])
    if wrong:
        return _status(hold, HoldPhase.REFUSED, [], _accepted(now, "Invalid", "; ".join(wrong)), now)
    if is_expired(hold, now):
        return _status(hold, HoldPhase.EXPIRED, [], _accepted(now, "Expired", "its time is over; delete it"), now)
    if not selected:
        names = hold.spec.workers.names if hold.spec else None
        what = f"spec.workers.names: {', '.join(names)}" if names else "spec.workers"
        text = f"{what} is no worker of cluster {hold.cluster}"
        return _status(hold, HoldPhase.PENDING, [], _accepted(now, "NoSuchWorker", text), now)
    accepted = Condition(type="Accepted", status="True", reason="Accepted", last_transition_time=now)
    return _status(hold, _phase(hold, selected, now), selected, accepted, now)


def refusal(hold: KubeHold, status: HoldStatus, now: datetime) -> HoldRefused | None:
    """The event that tells of a Hold that cannot be used; None once its status says so, which comes after the event."""
    if status.phase is not HoldPhase.REFUSED or hold.refused:
        return None
    mark = f"{hold.uid}:{hold.generation}:refused"
    return HoldRefused(
        id=mark, at=now, cause_id=hold.request, cluster=hold.cluster, name=hold.name, fault=status.message
    )


def same(before: HoldStatus | None, after: HoldStatus) -> bool:
    """Whether two statuses say the same, but for the times of their conditions."""
    return before is not None and _timeless(before) == _timeless(after)


def _timeless(status: HoldStatus) -> tuple[object, ...]:
    conditions = [(c.type, c.status, c.reason, c.message) for c in status.conditions]
    return (
        status.phase,
        status.owner,
        status.message,
        status.observed_generation,
        status.workers,
        status.waiting_for,
        conditions,
    )


def _phase(hold: KubeHold, selected: Sequence[Desired], now: datetime) -> HoldPhase:
    if all(d.progress is Progress.DRAINED for d in selected):
        return HoldPhase.DRAINED
    view = view_of(hold)
    if view is not None and view.deadline is not None and view.deadline <= now:
        return HoldPhase.OVERDUE
    return HoldPhase.DRAINING if any(d.progress in _OUT for d in selected) else HoldPhase.PENDING


def _accepted(now: datetime, reason: str, message: str) -> Condition:
    return Condition(type="Accepted", status="False", reason=reason, message=message, last_transition_time=now)


def _status(
    hold: KubeHold, phase: HoldPhase, selected: Sequence[Desired], accepted: Condition, now: datetime
) -> HoldStatus:
    drained = sum(d.progress is Progress.DRAINED for d in selected)
    draining = sum(d.progress in _OUT for d in selected) - drained
    all_drained = bool(selected) and drained == len(selected)
    waiting = sorted((d for d in selected if d.waiting_for), key=lambda d: d.name)
    why_not = next((d.why_not for d in selected if d.why_not), "")
    return HoldStatus(
        phase=phase,
        owner=hold.owner,
        message=accepted.message or why_not,
        observed_generation=hold.generation,
        workers=WorkerCounts(selected=len(selected), draining=draining, drained=drained),
        waiting_for=[WaitingFor(worker=d.name, jobs=d.waiting_for) for d in waiting[:MAX_WAITING]],
        conditions=[
            accepted,
            Condition(
                type="Drained",
                status="True" if all_drained else "False",
                reason="Drained" if all_drained else phase.value,
                message=why_not,
                last_transition_time=now,
            ),
        ],
    )
