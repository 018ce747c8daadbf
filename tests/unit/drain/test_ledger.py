"""What was answered is answered again, and what is open is told on, once."""

from datetime import timedelta
from typing import Any

import pytest

from lockstep.contracts.events import RequestAccepted, RequestEvent, RequestProgressed, RequestRefused
from lockstep.contracts.hold import HoldPhase, HoldStatus, WorkerCounts
from lockstep.drain.decide_request import Address
from lockstep.drain.ledger import MAX_KEPT, Ledger, Told, done, has_ended, next_answers
from tests.builders import NOW, a_hold, ago

ADDRESS = Address("ops", "main", "hold", "r-1")


def about(address: Address = ADDRESS) -> dict[str, Any]:
    """What all answers to a request say."""
    return {"cluster": address.cluster, "request": address.id, "verb": address.verb, "by": address.user}


def accepted(address: Address = ADDRESS) -> RequestAccepted:
    """It was accepted a minute ago."""
    return RequestAccepted(id=f"{address.mark}:accepted", at=ago(60), hold="slurm/dimm", workers=2, **about(address))


def refused(address: Address = ADDRESS) -> RequestRefused:
    """It was refused."""
    return RequestRefused(id=f"{address.mark}:refused", at=ago(60), fault="x", **about(address))


def a_ledger(*events: RequestEvent) -> Ledger:
    """With these answers."""
    ledger = Ledger()
    for event in events:
        ledger.note(event)
    return ledger


def status(phase: HoldPhase, selected: int = 2, draining: int = 0, drained: int = 0) -> HoldStatus:
    """A Hold's status."""
    return HoldStatus(phase=phase, workers=WorkerCounts(selected=selected, draining=draining, drained=drained))


def test_the_same_id_of_another_user_cluster_or_verb_is_another_request() -> None:
    """Nobody is answered with what somebody else was told."""
    ledger = a_ledger(accepted())
    assert ledger.told(ADDRESS).answers == [accepted()]
    for other in ({"user": "eve"}, {"cluster": "test"}, {"verb": "release"}, {"id": "r-2"}):
        assert ledger.told(ADDRESS._replace(**other)).answers == []


def test_a_request_is_open_from_its_acceptance_to_its_outcome() -> None:
    """A refused one never is; a release is over with its answer."""
    assert a_ledger(refused()).open() == {}
    assert a_ledger(accepted(ADDRESS._replace(verb="release"))).open() == {}
    ledger = a_ledger(accepted())
    assert list(ledger.open()) == [ADDRESS]
    ledger.note(done(ADDRESS, "drained", NOW))
    assert ledger.open() == {}
    assert ledger.told(ADDRESS).is_final


def test_a_request_that_was_sent_again_after_a_refusal_may_be_accepted() -> None:
    """A replay of a dead letter; the refusal before no longer counts."""
    ledger = a_ledger(refused(), accepted())
    assert not ledger.told(ADDRESS).is_final


def test_what_is_remembered_is_bounded_and_what_is_open_is_kept() -> None:
    """The oldest that is over goes first."""
    ledger = a_ledger(accepted())
    for number in range(MAX_KEPT + 10):
        ledger.note(refused(ADDRESS._replace(id=f"n-{number}")))
    assert len(ledger) == MAX_KEPT
    assert list(ledger.open()) == [ADDRESS]
    assert ledger.told(ADDRESS._replace(id="n-0")).answers == []


def answers(told: Told, now: HoldStatus | None, *, ended: bool = False) -> list[str]:
    """What is said, in short."""
    found = []
    for event in next_answers(ADDRESS, told, now, NOW, ended=ended):
        assert (event.cause_id, event.by, event.verb) == ("r-1", "ops", "hold")
        if isinstance(event, RequestProgressed):
            found.append(f"{event.selected}/{event.draining}/{event.drained}")
        else:
            found.append(getattr(event, "outcome", "?"))
    return found


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        (None, None, []),
        (None, status(HoldPhase.PENDING, 0), []),
        (None, status(HoldPhase.DRAINING, 2, 1, 0), ["2/1/0"]),
        ((2, 1, 0), status(HoldPhase.DRAINING, 2, 1, 0), []),
        ((2, 1, 0), status(HoldPhase.DRAINING, 2, 1, 1), ["2/1/1"]),
        ((2, 1, 1), status(HoldPhase.DRAINED, 2, 0, 2), ["2/0/2", "drained"]),
        ((2, 0, 2), status(HoldPhase.DRAINED, 2, 0, 2), ["drained"]),
        ((2, 1, 1), status(HoldPhase.OVERDUE, 2, 1, 1), ["overdue"]),
        ((2, 1, 1), status(HoldPhase.EXPIRED, 0), ["0/0/0", "cancelled"]),
    ],
)
def test_progress_is_told_when_the_counts_change_and_the_outcome_once(
    before: tuple[int, int, int] | None, now: HoldStatus | None, said: list[str]
) -> None:
    """From the numbers of the Hold's status."""
    told = Told(accepted=accepted())
    if before is not None:
        names = ("selected", "draining", "drained")
        counts = dict(zip(names, before, strict=True))
        told.progressed = RequestProgressed(id="p", at=ago(5), **counts, **about())
    assert answers(told, now) == said


def test_a_hold_that_ended_before_it_was_drained_is_a_request_that_was_cancelled() -> None:
    """Whoever ended it."""
    assert answers(Told(accepted=accepted()), None, ended=True) == ["cancelled"]


def test_a_hold_that_is_not_seen_yet_is_not_taken_for_gone() -> None:
    """Only a reading of Kubernetes that is clearly later than the acceptance proves it."""
    told = Told(accepted=accepted())
    assert not has_ended(told, None, None)
    assert not has_ended(told, None, ago(58))
    assert has_ended(told, None, ago(60) + timedelta(seconds=6))
    assert not has_ended(told, a_hold(), NOW)
    assert has_ended(told, a_hold(deleting_since=NOW), NOW)
