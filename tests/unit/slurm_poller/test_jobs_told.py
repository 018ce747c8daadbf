"""Of which jobs events are told, across restarts and up to how many."""

import pytest
from structlog.testing import capture_logs

from lockstep.contracts.events import JobEvent
from lockstep.contracts.facts import SlurmJob, SourceHealth
from lockstep.slurm_poller import handlers
from tests.unit.slurm_poller.scene import Scene, Told, a_job, a_node


def jobs_told(scene: Scene) -> list[tuple[str, int]]:
    """The jobs' events, in order."""
    return [(type(e).__name__, e.job_id) for e in scene.bus.happened if isinstance(e, JobEvent)]


async def turn_of_jobs(scene: Scene) -> None:
    """One drains with two jobs, of which one ends; elsewhere another begins and ends; then the drain is lifted."""
    scene.slurm.running = [a_job(1, "a"), a_job(2, "a")]
    await scene.cycle()
    scene.slurm.running = [a_job(2, "a"), a_job(3, "b")]
    scene.slurm.now(a_node("a", "MIXED+DRAIN"), a_node("b", "MIXED"))
    await scene.cycle(3)
    scene.slurm.running = [a_job(2, "a")]
    scene.slurm.now(a_node("a", "MIXED"), a_node("b"))
    await scene.cycle(3)


@pytest.mark.parametrize(
    ("told", "events"),
    [
        ("off", []),
        ("drains", [("JobEnded", 1)]),
        ("all", [("JobEnded", 1), ("JobStarted", 3), ("JobEnded", 3)]),
    ],
)
async def test_the_setting_says_of_which_jobs_is_told(
    told: Told, events: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Facts are only those on workers that leave, whatever it says; an unchanged answer is no news."""
    monkeypatch.setattr(handlers, "JOBS_REST", 0.0)
    scene = Scene(a_node("a", "MIXED+DRAIN"), a_node("b", "MIXED"), jobs=told)
    await turn_of_jobs(scene)

    assert jobs_told(scene) == events
    assert {fact.identity for fact in scene.bus.told if isinstance(fact, SlurmJob)} == {"1", "2"}
    assert scene.bus.table.jobs["main"] == {}


async def test_the_end_of_a_job_is_told_by_a_successor() -> None:
    """A run that the stream names and Slurm does not: at least once, with the id that a predecessor would have used."""
    first = Scene(a_node("a", "MIXED+DRAIN"))
    first.slurm.running = [a_job(1, "a")]
    await first.cycle()
    known = [fact for fact in first.bus.told if not isinstance(fact, SourceHealth)]
    second, third = (Scene(a_node("a", "IDLE+DRAIN"), known=known) for _ in range(2))
    await second.cycle(2)
    await third.cycle(2)

    assert jobs_told(second) == [("JobEnded", 1)]
    ids = [[e.id for e in scene.bus.happened if isinstance(e, JobEvent)] for scene in (second, third)]
    assert ids[0] == ids[1]


async def test_more_jobs_than_are_followed_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it stays so."""
    monkeypatch.setattr("lockstep.slurm_poller.jobs.MAX_RUNS", 1)
    scene = Scene(a_node("a", "MIXED"), jobs="all")
    scene.slurm.running = [a_job(1, "a"), a_job(2, "a")]
    with capture_logs() as logs:
        for _ in range(3):
            scene.slurm.now(a_node("a", "MIXED"))
            await scene.cycle()

    assert [(line["event"], line["count"]) for line in logs] == [("More jobs run than are followed", 1)]
