"""What two looks at a stream mean: what is a loss and what is not, and who says what once."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from lockstep.bus.losses import agreed, happened, is_later, loss, used
from lockstep.bus.streams import StreamState
from lockstep.contracts.events import GapFound, SourceBack, StreamFilling
from lockstep.contracts.facts import StreamHealth
from lockstep.contracts.subjects import DEAD, EVENTS, FACTS, REQUESTS, Stream

NOW = datetime(2026, 1, 8, tzinfo=UTC)
KNOWN = StreamHealth(stream="S", losses=2)


def a_state(**fields: Any) -> StreamState:
    """A stream with messages 11 to 100, the oldest an hour old, half full."""
    usual: dict[str, Any] = {"created": "c", "first": 11, "last": 100, "messages": 90, "bytes": 50, "max_bytes": 100}
    return StreamState(**usual | {"max_age_s": 7 * 24 * 3600, "first_at": NOW - timedelta(hours=1)} | fields)


@pytest.mark.parametrize(
    ("stream", "after", "standing", "says"),
    [
        pytest.param(EVENTS, {}, 0, "", id="nothing happened"),
        pytest.param(EVENTS, {"last": 105, "messages": 95}, 0, "", id="it grew"),
        pytest.param(EVENTS, {"created": "d"}, 0, "made anew", id="it was deleted and made again"),
        pytest.param(EVENTS, {"last": 90, "messages": 80}, 0, "ends with 90; it had 100", id="its end is missing"),
        pytest.param(EVENTS, {"first": 101, "messages": 0}, 0, "11 to 100 were removed", id="events were purged"),
        pytest.param(EVENTS, {"first": 13, "messages": 88}, 0, "11 to 12 were removed", id="the oldest were purged"),
        pytest.param(FACTS, {"first": 60, "messages": 90, "last": 150}, 90, "", id="facts were replaced by newer ones"),
        pytest.param(FACTS, {"messages": 89}, 90, "89 messages; 90 facts stand", id="fewer messages than facts"),
        pytest.param(FACTS, {"messages": 91}, 90, "", id="more messages than facts: some say that a thing is gone"),
        pytest.param(REQUESTS, {"first": 101, "messages": 0}, 0, "", id="requests were handled"),
        pytest.param(DEAD, {"first": 12, "messages": 89}, 0, "", id="a dead letter was replayed"),
    ],
)
def test_what_counts_as_a_loss(stream: Stream, after: dict[str, Any], standing: int, says: str) -> None:
    """Messages that should be there and are not; not what goes by its nature."""
    told = loss(stream, a_state(), a_state(**after), NOW, standing=standing)

    assert says in told
    assert bool(told) == bool(says)


@pytest.mark.parametrize(
    "before",
    [
        pytest.param({"first_at": NOW - timedelta(days=7)}, id="the oldest was a week old"),
        pytest.param({"bytes": 95}, id="there was no room"),
        pytest.param({"first_at": None, "messages": 0}, id="there was none"),
    ],
)
def test_retention_is_no_loss(before: dict[str, Any]) -> None:
    """Age and want of room take the oldest events, as they should."""
    assert not loss(EVENTS, a_state(**before), a_state(first=31), NOW)


@pytest.mark.parametrize("bounds", [{"max_bytes": 40}, {"max_age_s": 60}])
def test_what_goes_by_a_new_bound_is_no_loss(bounds: dict[str, Any]) -> None:
    """Somebody set it so."""
    assert not loss(EVENTS, a_state(), a_state(first=31, **bounds), NOW)


def test_the_first_to_find_a_loss_says_so() -> None:
    """With what was found, and when."""
    wanted = agreed(KNOWN, KNOWN, a_state(), NOW, lost="purged")

    assert wanted == StreamHealth(stream="S", losses=3, lost_at=NOW, detail="purged")
    assert happened(KNOWN, wanted) == [GapFound(id=f"S:gap:{NOW.isoformat()}", at=NOW, where="S", detail="purged")]


def test_a_loss_that_another_process_said_is_not_said_again() -> None:
    """Both found the same; the second sees that the first has written, and tells the same event."""
    theirs = StreamHealth(stream="S", losses=3, lost_at=NOW - timedelta(seconds=1), detail="made anew")

    wanted = agreed(KNOWN, theirs, a_state(), NOW, lost="ends earlier")

    assert wanted == theirs
    assert happened(KNOWN, wanted) == happened(KNOWN, theirs)


@pytest.mark.parametrize("there", [None, StreamHealth(stream="S", losses=1)])
def test_losses_are_counted_on_when_the_count_itself_was_lost(there: StreamHealth | None) -> None:
    """Else a process that remembers more would take the next loss for an old one."""
    assert agreed(KNOWN, there, a_state(), NOW, lost="gone").losses == 3


def test_a_later_loss_is_told_by_its_time_and_not_by_the_count() -> None:
    """Who missed a loss counts less; what it says of the next, after the facts went, is no news to those who count."""
    counts = StreamHealth(stream="S", losses=3, lost_at=NOW - timedelta(seconds=9), detail="purged")
    said = agreed(KNOWN, None, a_state(), NOW, lost="made anew")

    assert said.losses == counts.losses
    assert agreed(counts, said, a_state(), NOW + timedelta(seconds=1), lost="made anew") == said
    assert [event.id for event in happened(counts, said)] == [f"S:gap:{NOW.isoformat()}"]


def test_what_an_older_copy_of_the_facts_says_is_no_news() -> None:
    """The loss that it tells was told; the one that it does not know is said again, and is none to who knew it."""
    older = StreamHealth(stream="S", losses=2, lost_at=NOW - timedelta(seconds=9))
    known = StreamHealth(stream="S", losses=3, lost_at=NOW)

    wanted = agreed(known, older, a_state(), NOW + timedelta(seconds=1))

    assert wanted == known
    assert happened(known, wanted) == []


def test_a_loss_is_later_than_what_was_said_before_whatever_the_clock_says() -> None:
    """Another's clock goes a second fast; ours finds the next loss."""
    fast = StreamHealth(stream="S", losses=2, lost_at=NOW + timedelta(seconds=1))

    wanted = agreed(fast, fast, a_state(), NOW, lost="purged")

    assert is_later(wanted, fast)
    assert wanted.losses == 3


def test_a_filling_stream_is_told_once_and_again_only_after_there_was_room() -> None:
    """At 80 % it is; it counts as filling until it is below 70 %."""
    health = StreamHealth(stream="S")
    told = 0
    for minute, size in enumerate([79, 80, 95, 75, 85, 70, 80, 69, 79, 81]):
        wanted = agreed(health, health, a_state(bytes=size), NOW + timedelta(minutes=minute))
        told += len(happened(health, wanted))
        health = wanted
    assert told == 2
    [event] = happened(KNOWN, agreed(KNOWN, None, a_state(bytes=80), NOW))
    assert isinstance(event, StreamFilling)
    assert (event.used_bytes, event.limit_bytes) == (80, 100)


def test_a_stream_without_limit_never_fills() -> None:
    """A share of nothing is nothing."""
    assert used(a_state(max_bytes=-1)) == 0.0


def test_the_end_of_an_outage_is_told_once_by_all_who_had_it() -> None:
    """Two processes could not write for ten seconds; the second finds that the first has said so."""
    first = agreed(KNOWN, KNOWN, a_state(), NOW, stuck_for_s=10.04)
    second = agreed(KNOWN, first, a_state(), NOW + timedelta(seconds=2), stuck_for_s=12)

    assert second == first
    [event] = happened(KNOWN, first)
    assert isinstance(event, SourceBack)
    assert (event.source, event.lost_for_s) == ("nats", 10.0)
    later = agreed(first, first, a_state(), NOW + timedelta(seconds=60), stuck_for_s=12)
    assert len(happened(first, later)) == 1


def test_whoever_tells_an_event_tells_the_same() -> None:
    """It is made from the fact alone."""
    wanted = agreed(KNOWN, None, a_state(bytes=90), NOW, lost="x", stuck_for_s=9)
    again = msgspec.json.decode(msgspec.json.encode(wanted), type=StreamHealth)

    assert [event.id for event in happened(KNOWN, again)] == [event.id for event in happened(KNOWN, wanted)]
    assert len(happened(KNOWN, wanted)) == 3
