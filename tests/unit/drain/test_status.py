"""What is told of a Hold that cannot be used."""

import msgspec

from lockstep.contracts.events import HoldRefused
from lockstep.contracts.hold import HoldPhase, WorkerSelector
from lockstep.drain.status import SELECTS_ALL, refusal, status_of
from tests.builders import NOW, a_hold

BAD = a_hold(workers=WorkerSelector(names=[]), request="r-1", generation=2)


def test_a_refused_hold_is_told_with_its_fault_and_its_request() -> None:
    """The field, the value and what is allowed; the same version of it is the same happening."""
    status = status_of(BAD, [], refused=False, now=NOW)
    told = refusal(BAD, status, NOW)

    assert status.phase is HoldPhase.REFUSED
    assert told == HoldRefused(
        id="hold-dimm:2:refused",
        at=NOW,
        cause_id="r-1",
        cluster="main",
        name="dimm",
        fault="spec.workers.names: is empty and would select all or nothing; name the workers",
    )


def test_a_hold_that_takes_every_worker_is_refused_too() -> None:
    """Its schema is good."""
    told = refusal(a_hold(), status_of(a_hold(), [], refused=True, now=NOW), NOW)
    assert told is not None
    assert told.fault == SELECTS_ALL


def test_a_refusal_that_the_status_shows_is_not_told_again() -> None:
    """Neither by a service that was started anew."""
    shown = msgspec.structs.replace(BAD, refused=True)
    assert refusal(shown, status_of(shown, [], refused=False, now=NOW), NOW) is None


def test_a_good_hold_is_not_refused() -> None:
    """Also while it waits for workers that do not exist yet."""
    assert refusal(a_hold(), status_of(a_hold(), [], refused=False, now=NOW), NOW) is None
