"""What was answered to each request, and what is still to be said. No I/O: events in, events out."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import msgspec

from lockstep.contracts.events import (
    Event,
    RequestAccepted,
    RequestDone,
    RequestEvent,
    RequestProgressed,
    RequestRefused,
)
from lockstep.contracts.facts import KubeHold
from lockstep.contracts.hold import HoldPhase, HoldStatus, WorkerCounts
from lockstep.drain.decide_request import Address

MAX_KEPT = 10_000
"""Requests that are remembered; of those that are done the oldest are forgotten first."""
MARGIN = timedelta(seconds=5)
"""By so much Kubernetes must have been read later than a request was accepted before its Hold counts as gone."""
OUTCOMES = {
    HoldPhase.DRAINED: "drained",
    HoldPhase.OVERDUE: "overdue",
    HoldPhase.EXPIRED: "cancelled",
    HoldPhase.REFUSED: "cancelled",
}
"""What a Hold's phase means to the request for which it stands."""


class Told(msgspec.Struct):
    """The answers to one request so far."""

    accepted: RequestAccepted | None = None
    refused: RequestRefused | None = None
    progressed: RequestProgressed | None = None
    done: RequestDone | None = None
    steps: int = 0
    """How often progress was told."""

    @property
    def counts(self) -> WorkerCounts:
        """How far it was when progress was told last."""
        last = self.progressed
        if last is None:
            return WorkerCounts()
        return WorkerCounts(selected=last.selected, draining=last.draining, drained=last.drained)

    @property
    def is_final(self) -> bool:
        """There is nothing more to come."""
        return self.refused is not None or self.done is not None

    @property
    def answers(self) -> list[Event]:
        """All of them, in order."""
        each = (self.accepted, self.refused, self.progressed, self.done)
        return [answer for answer in each if answer is not None]


class Ledger:
    """The answers to all requests that are remembered."""

    def __init__(self) -> None:
        self._told: dict[Address, Told] = {}

    def __len__(self) -> int:
        return len(self._told)

    def note(self, event: Event) -> None:
        """Remembers an answer that the stream has."""
        if not isinstance(event, RequestEvent):
            return
        told = self._told.setdefault(Address(event.by, event.cluster, event.verb, event.request), Told())
        match event:
            case RequestAccepted():
                told.accepted, told.refused = event, None
            case RequestRefused():
                told.refused = event
            case RequestProgressed():
                told.progressed, told.steps = event, told.steps + 1
            case RequestDone():
                told.done = event
        if len(self._told) > MAX_KEPT:
            final = next((address for address, each in self._told.items() if each.is_final), None)
            if final is not None:
                del self._told[final]

    def told(self, address: Address) -> Told:
        """The answers to one request; none if it is new."""
        return self._told.get(address) or Told()

    def open(self) -> dict[Address, Told]:
        """The requests for a hold that are accepted and not done."""
        return {a: t for a, t in self._told.items() if a.verb == "hold" and t.accepted and not t.is_final}


def has_ended(told: Told, hold: KubeHold | None, kube_as_of: datetime | None) -> bool:
    """Whether the Hold of an accepted request is gone, and not merely not seen yet."""
    if hold is not None:
        return hold.deleting_since is not None
    return told.accepted is not None and kube_as_of is not None and kube_as_of > told.accepted.at + MARGIN


def next_answers(
    address: Address, told: Told, status: HoldStatus | None, now: datetime, *, ended: bool
) -> Iterator[RequestEvent]:
    """What is to be said now of an open request for a hold: its Hold has this status (None: not seen), or has ended."""
    counts = told.counts
    if status is not None and status.workers != counts:
        counts = status.workers
        numbers = f"{counts.selected}/{counts.draining}/{counts.drained}"
        yield RequestProgressed(
            id=f"{address.mark}:progressed:{told.steps}:{numbers}",
            at=now,
            cause_id=address.id,
            cluster=address.cluster,
            request=address.id,
            verb=address.verb,
            by=address.user,
            selected=counts.selected,
            draining=counts.draining,
            drained=counts.drained,
        )
    outcome = "cancelled" if ended else OUTCOMES.get(status.phase) if status is not None else None
    if outcome:
        yield done(address, outcome, now, selected=counts.selected, drained=counts.drained)


def done(address: Address, outcome: str, now: datetime, *, selected: int = 0, drained: int = 0) -> RequestDone:
    """The outcome of a request."""
    return RequestDone(
        id=f"{address.mark}:done",
        at=now,
        cause_id=address.id,
        cluster=address.cluster,
        request=address.id,
        verb=address.verb,
        by=address.user,
        outcome=outcome,
        selected=selected,
        drained=drained,
    )
