"""A Slurm that fails or hangs, and a NATS that is away: what is told of it, and that nothing is forgotten."""

import pytest
from structlog.testing import capture_logs

from lockstep.contracts.events import SlurmPhaseChanged, SlurmStateChanged, SourceBack, SourceLost
from lockstep.runtime.telemetry import KEYS
from lockstep.slurm.errors import Refused, Unreachable
from lockstep.slurm_poller import handlers
from tests.unit.slurm_poller.scene import POLL, Scene, a_node


async def test_an_outage_is_two_events_and_two_lines() -> None:
    """Facts stand, heartbeats stay away; the end is told after everything was read anew."""
    with capture_logs() as logs:
        scene = Scene(a_node("a"))
        await scene.cycle()
        scene.news()
        scene.slurm.error = Unreachable("connection refused")
        waits = [await scene.cycle() for _ in range(20)]
        lost = scene.news()
        scene.slurm.error = None
        scene.slurm.now(a_node("a", "IDLE+DRAIN"))
        await scene.cycle(3)

    assert lost == ["beat slurm.node"]
    assert scene.bus.table.sources["slurm.node", "main"].last_error == ""
    assert scene.news()[:2] == ["a", "beat slurm.node"]
    assert [type(event) for event in scene.bus.happened] == [
        SourceLost,
        SlurmStateChanged,
        SlurmPhaseChanged,
        SourceBack,
    ]
    assert [(line["log_level"], line["event"]) for line in logs] == [
        ("warning", "Slurm cannot be read"),
        ("info", "Changed"),
        ("info", "Slurm is read again"),
    ]
    assert {key for line in logs for key in line} - {"log_level"} <= KEYS
    assert max(waits) <= POLL.max_interval_s
    assert waits[0] <= POLL.min_interval_s < waits[-1]


async def test_every_second_request_may_fail() -> None:
    """A good slurmrestd and a broken one take turns behind one address: each reading is whole, and nobody is told."""
    scene = Scene(a_node("a", "MIXED+DRAIN"))
    scene.slurm.takes_turns = True
    await scene.cycle(10)

    assert scene.news().count("beat slurm.node") == 10
    assert {source.last_error for source in scene.bus.table.sources.values()} == {""}
    assert scene.bus.happened == []


async def test_what_the_outage_says_is_no_heartbeat() -> None:
    """It carries the last moment at which all was known."""
    scene = Scene(a_node("a"))
    await scene.cycle()
    as_of = scene.bus.table.sources["slurm.node", "main"].complete_as_of
    scene.slurm.error = Refused(["slurmctld is in backup mode"])
    await scene.cycle(5)
    health = scene.bus.table.sources["slurm.node", "main"]

    assert health.complete_as_of == as_of
    assert "backup mode" in health.last_error


async def test_a_slurm_that_never_answers_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reading has a deadline, and the next one works."""
    monkeypatch.setattr(handlers, "READ_WITHIN_S", 0.02)
    scene = Scene(a_node("a"))
    scene.slurm.hangs = True
    await scene.cycle(3)
    assert [type(event) for event in scene.bus.happened] == [SourceLost]
    scene.slurm.hangs = False
    await scene.cycle()

    assert "a" in scene.news()


async def test_nothing_is_forgotten_while_nats_is_away() -> None:
    """A change that could not be published is read again in full, and told with its event."""
    scene = Scene(a_node("a"))
    await scene.cycle()
    scene.bus.away = True
    scene.slurm.now(a_node("a", "IDLE+DRAIN"))
    await scene.cycle(2)
    scene.bus.away = False
    scene.news()
    await scene.cycle(2)

    assert scene.news()[:2] == ["a", "beat slurm.node"]
    assert [type(event) for event in scene.bus.happened] == [SlurmStateChanged, SlurmPhaseChanged]
