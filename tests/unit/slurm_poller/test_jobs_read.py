"""When jobs are read, and what becomes of nodes and drains when they cannot be."""

import pytest

from lockstep.contracts.events import SourceBack, SourceLost
from lockstep.contracts.policy import Policy
from lockstep.fleet.drained import why_not_drained
from lockstep.fleet.pairing import Site, pair
from lockstep.slurm.errors import Unreachable
from lockstep.slurm_poller import handlers
from tests.unit.slurm_poller.scene import POLL, Scene, a_job, a_node


async def test_a_node_that_drains_has_its_jobs_read_later_in_the_same_cycle() -> None:
    """What is missing then has ended: the jobs' heartbeat is later than the node's fact."""
    scene = Scene(a_node("a", "MIXED+DRAIN"), a_node("b", "MIXED"))
    scene.slurm.running = [a_job(1, "a"), a_job(2, "b")]
    await scene.cycle()

    assert scene.news()[:5] == ["a", "b", "beat slurm.node", "1", "beat slurm.job"]
    node = scene.bus.table.slurm_nodes["main", "a"]
    jobs = scene.bus.table.sources["slurm.job", "main"]
    assert node.read_at is not None
    assert jobs.complete_as_of is not None
    assert jobs.complete_as_of > node.read_at


async def test_a_worker_is_drained_after_two_readings_and_not_before() -> None:
    """With the real rule, over what the poller publishes."""
    scene = Scene(a_node("a", "MIXED+DRAIN", alloc_cpus=1))
    scene.slurm.running = [a_job(1, "a")]

    def why_not() -> str:
        worker = pair(scene.bus.table, ("main", "a"), Site())
        seen = worker.slurm_as_of
        assert seen is not None
        return why_not_drained(worker, Policy(), seen)

    await scene.cycle(2)
    assert why_not() == "jobs run or complete"
    scene.slurm.running = []
    scene.slurm.now(a_node("a", "IDLE+DRAIN"))
    await scene.cycle()
    assert why_not()
    await scene.cycle()
    assert why_not() == ""


async def test_jobs_are_gone_when_they_end_or_nobody_waits_for_them() -> None:
    """An unchanged answer of Slurm's keeps them."""
    scene = Scene(a_node("a", "MIXED+DRAIN"))
    scene.slurm.running = [a_job(1, "a"), a_job(2, "a")]
    await scene.cycle(3)
    scene.news()
    scene.slurm.running = [a_job(2, "a")]
    scene.slurm.now(a_node("a", "MIXED+DRAIN"))
    await scene.cycle()
    assert "gone 1" in scene.news()
    scene.slurm.now(a_node("a", "MIXED"))
    await scene.cycle()

    assert scene.news() == ["a", "beat slurm.node", "gone 2", "beat slurm.job"]


async def test_jobs_that_cannot_be_read_withhold_only_their_own_heartbeat() -> None:
    """Nodes are still known; nobody counts as drained."""
    scene = Scene(a_node("a", "MIXED+DRAIN"))
    scene.slurm.running = [a_job(1, "a")]
    await scene.cycle()
    scene.news()
    scene.slurm.jobs_error = Unreachable("time-out")
    await scene.cycle(2)

    assert scene.news() == ["beat slurm.node"] * 2
    assert "1" in scene.bus.table.jobs["main"]


async def test_all_jobs_are_read_each_time_where_all_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """With Slurm's own stamp, so that an unchanged answer is small."""
    monkeypatch.setattr(handlers, "JOBS_REST", 0.0)
    scene = Scene(a_node("a", "MIXED"), jobs="all")
    await scene.cycle(3)

    assert [since for what, since in scene.slurm.asked if what == "jobs"] == [0, 1, 1]


async def test_a_large_answer_about_jobs_keeps_nobody_from_reading_nodes() -> None:
    """A tenth of the time is spent on it, unless a drain waits for the jobs."""
    scene = Scene(a_node("a", "MIXED"), jobs="all")
    scene.slurm.jobs_take_s = 0.2
    await scene.cycle(5)
    assert [what for what, _ in scene.slurm.asked if what != "reservations"] == ["nodes", "jobs", *["nodes"] * 4]
    scene.slurm.now(a_node("a", "MIXED+DRAIN"))
    await scene.cycle(2)

    assert [what for what, _ in scene.slurm.asked][-4:] == ["nodes", "jobs"] * 2


async def test_jobs_that_cannot_be_read_keep_nobody_from_reading_nodes() -> None:
    """It is told that they are lost; nodes are read as often as before, unless a drain waits."""
    scene = Scene(a_node("a", "MIXED"), jobs="all")
    scene.slurm.jobs_error = Unreachable("no answer")
    waits = [await scene.cycle() for _ in range(6)]

    assert max(waits) < POLL.max_interval_s / 2
    assert [(type(e), getattr(e, "source", "")) for e in scene.bus.happened] == [(SourceLost, "slurm.job")]
    scene.slurm.now(a_node("a", "MIXED+DRAIN"))
    assert await scene.cycle(4) > POLL.max_interval_s / 2


async def test_jobs_that_were_lost_are_read_again_also_when_nobody_waits_for_them_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was told to be lost is told to be back; from then on nobody asks for jobs."""
    monkeypatch.setattr(handlers, "JOBS_REST", 0.0)
    scene = Scene(a_node("a", "MIXED+DRAIN"))
    scene.slurm.jobs_error = Unreachable("no answer")
    await scene.cycle(4)
    scene.slurm.now(a_node("a", "MIXED"))
    await scene.cycle(2)
    scene.slurm.jobs_error = None
    await scene.cycle()
    told = [(type(e), e.source) for e in scene.bus.happened if isinstance(e, SourceLost | SourceBack)]
    scene.slurm.asked.clear()
    await scene.cycle()

    assert told == [(SourceLost, "slurm.job"), (SourceBack, "slurm.job")]
    assert "jobs" not in [what for what, _ in scene.slurm.asked]


async def test_a_worker_that_begins_to_leave_has_its_jobs_read_although_none_has_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only the jobs on workers that leave are kept from one answer to the next."""
    monkeypatch.setattr(handlers, "FULL_EVERY_S", 0.0)
    scene = Scene(a_node("a", "MIXED+DRAIN"), a_node("b", "MIXED"))
    scene.slurm.running = [a_job(1, "a"), a_job(2, "b")]
    await scene.cycle(2)
    scene.slurm.here = [a_node("a", "MIXED+DRAIN"), a_node("b", "MIXED+DRAIN")]
    await scene.cycle(2)

    assert set(scene.bus.table.jobs["main"]) == {"1", "2"}
    assert [since for what, since in scene.slurm.asked if what == "jobs"] == [0, 1, 0, 1]
