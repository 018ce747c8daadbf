"""How often Slurm is asked and for what, and the heartbeat that follows each reading."""

import pytest

from lockstep.contracts.events import SlurmPhaseChanged, SlurmStateChanged
from lockstep.contracts.facts import SlurmReservation
from lockstep.slurm_poller import handlers
from tests.unit.slurm_poller.scene import POLL, Scene, a_node


async def test_facts_come_before_the_heartbeat_that_covers_them() -> None:
    """Nodes, their heartbeat, reservations and theirs."""
    scene = Scene(a_node("a"), a_node("b"))
    scene.slurm.reserved = [
        SlurmReservation(cluster="main", name="maint", nodes=["a"]),
        SlurmReservation(cluster="main", name="licenses"),
    ]
    await scene.cycle()

    assert scene.news() == ["a", "b", "beat slurm.node", "maint", "beat slurm.reservation"]
    assert scene.bus.happened == []


async def test_an_unchanged_cluster_costs_one_small_request_and_one_heartbeat() -> None:
    """Slurm is asked with its own stamp; jobs are nobody's business."""
    scene = Scene(a_node("a", "MIXED"))
    await scene.cycle()
    scene.news()
    scene.slurm.asked.clear()
    await scene.cycle(10)

    assert scene.slurm.asked == [("nodes", 1)] * 10
    assert scene.news() == ["beat slurm.node"] * 10


async def test_all_nodes_are_read_now_and_then_whatever_slurm_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change in the second of the last answer, or a clock that was set back, is found."""
    scene = Scene(a_node("a"))
    await scene.cycle()
    scene.slurm.here = [a_node("a", "IDLE+DRAIN")]
    await scene.cycle()
    assert "main" in {key[0] for key in scene.bus.table.slurm_nodes}
    assert scene.bus.happened == []
    monkeypatch.setattr(handlers, "FULL_EVERY_S", 0.0)
    await scene.cycle()

    assert [type(event) for event in scene.bus.happened] == [SlurmStateChanged, SlurmPhaseChanged]


async def test_a_quiet_cluster_is_read_at_the_shortest_interval() -> None:
    """Answers that cost nothing cost nothing."""
    scene = Scene(a_node("a"))

    assert await scene.cycle(5) == pytest.approx(POLL.min_interval_s, abs=0.02)


async def test_the_poller_is_the_only_one_who_asks() -> None:
    """However many read what it publishes, Slurm is asked once a cycle."""
    scene = Scene(a_node("a", "MIXED+DRAIN"))
    await scene.cycle(10)

    calls = [what for what, _ in scene.slurm.asked]
    assert calls.count("nodes") == 10
    assert calls.count("jobs") == 10
    assert calls.count("reservations") == 1
