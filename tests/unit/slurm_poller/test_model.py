"""An outage of a source is told once, and its end once."""

from datetime import UTC, datetime, timedelta

from lockstep.contracts.events import SourceBack, SourceLost
from lockstep.contracts.facts import SourceHealth
from lockstep.slurm_poller.model import Source, Told

AT = datetime(2026, 7, 1, 12, tzinfo=UTC)


def after(seconds: float) -> datetime:
    """So long after AT."""
    return AT + timedelta(seconds=seconds)


def test_a_short_failure_is_told_to_nobody() -> None:
    """Two quick failures, then it works again."""
    source = Source("slurm.node", "main")

    assert [source.failed("refused", after(s)) for s in (0, 0.3)] == [Told(), Told()]
    told = source.succeeded(after(0.6), 0.25)
    assert told.event is None
    assert told.health is not None
    assert told.health.complete_as_of == after(0.6)


def test_the_third_failure_in_a_row_is_told() -> None:
    """Once, with the reason and since when; the last heartbeat stays what it was."""
    source = Source("slurm.node", "main")
    source.succeeded(AT, 0.25)
    told = [source.failed("refused", after(s)) for s in (1, 1.2, 1.4, 1.6, 30)]

    assert [each.event is not None for each in told] == [False, False, True, False, False]
    assert isinstance(told[2].event, SourceLost)
    health = told[2].health
    assert health is not None
    assert (health.complete_as_of, health.last_error, health.failing_since) == (AT, "refused", after(1))
    assert all(each.health is None for each in (*told[:2], *told[3:]))


def test_a_slow_failure_is_told_after_two_seconds() -> None:
    """One try that hangs is enough: a second one would be over only after everything has become stale."""
    assert Source("slurm.node", "main").failed("no answer", after(1.5), began=AT).event is None
    told = Source("slurm.node", "main").failed("no answer", after(10), began=AT)

    assert isinstance(told.event, SourceLost)
    assert told.health is not None
    assert told.health.failing_since == AT


def test_the_end_of_an_outage_that_a_predecessor_told_of_is_told() -> None:
    """And its beginning is not told again."""
    told = SourceHealth(source="slurm.node", of="main", last_error="refused", failing_since=AT)
    source = Source("slurm.node", "main", told)

    assert source.failed("refused", after(5), began=AT) == Told()
    back = source.succeeded(after(60), 0.25).event
    assert isinstance(back, SourceBack)
    assert back.lost_for_s == 60


def test_the_end_is_told_once_with_its_length() -> None:
    """From the first failure."""
    source = Source("slurm.job", "main")
    for seconds in (0, 1, 2):
        source.failed("refused", after(seconds))
    back, again = source.succeeded(after(60), 0.25), source.succeeded(after(61), 0.25)

    assert isinstance(back.event, SourceBack)
    assert back.event.lost_for_s == 60
    assert back.health is not None
    assert not back.health.last_error
    assert again.event is None


def test_two_outages_have_two_ids() -> None:
    """So that the second is not taken for the first."""
    source, ids = Source("slurm.node", "main"), set()
    for start in (0, 100):
        for seconds in (0, 1, 2):
            told = source.failed("refused", after(start + seconds))
        assert told.event is not None
        ids.add(told.event.id)
        source.succeeded(after(start + 50), 0.25)

    assert len(ids) == 2
