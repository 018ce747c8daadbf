"""Which runs of jobs began, ended, or were put back, between two readings of Slurm."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lockstep.contracts.events import JobEnded, JobRequeued, JobStarted
from lockstep.contracts.facts import SlurmJob
from lockstep.slurm.port import JobList
from lockstep.slurm_poller import jobs
from lockstep.slurm_poller.jobs import Runs

AT = datetime(2026, 7, 1, 12, tzinfo=UTC)
BEGAN = datetime(2026, 7, 1, 11, tzinfo=UTC)
AGAIN = BEGAN + timedelta(minutes=30)


def a_job(job_id: int = 7, state: str = "RUNNING", **fields: Any) -> SlurmJob:
    """A job of u1 on gpu-1 and gpu-2."""
    known: dict[str, Any] = {"user": "u1", "partition": "gpu", "nodes": ["gpu-1", "gpu-2"], "start": BEGAN}
    return SlurmJob(**({"cluster": "main", "job_id": job_id, "states": state.split("+")} | known | fields))


def a_waiting_job(job_id: int = 7) -> SlurmJob:
    """It has no nodes and no start."""
    return a_job(job_id, "PENDING", nodes=[], start=None)


class Story:
    """A cluster that is read again and again."""

    def __init__(self, *first: SlurmJob, known: list[SlurmJob] | None = None, tells: Any = lambda _: True) -> None:
        self.runs = Runs("main", known or [])
        self.facts = {job.identity: job for job in known or []}
        self.tells = tells
        self.told: list[tuple[str, int, datetime | None]] = []
        self.events: list[Any] = []
        self.read(*first)

    def read(self, *here: SlurmJob) -> None:
        """Slurm shows these."""
        ended = {job.job_id: job for job in here if set(job.states) & {"PENDING", "COMPLETED", "CANCELLED"}}
        held = [job for job in here if job.job_id not in ended or "COMPLETING" in job.states]
        others = {job_id: job for job_id, job in ended.items() if "COMPLETING" not in job.states}
        answer = JobList(jobs=held, others=others, last_update=1)
        for event in self.runs.events(answer, AT, facts=self.facts, tells=self.tells):
            words = {JobStarted: "started", JobEnded: "ended", JobRequeued: "requeued"}
            self.events.append(event)
            self.told.append((words[type(event)], event.job_id, event.start))


def test_what_ran_before_anybody_looked_has_not_begun_now() -> None:
    """Nor has what had ended then."""
    assert Story(a_job(1), a_job(2, "COMPLETED")).told == []


def test_a_job_begins_and_ends() -> None:
    """Each is told once, with who, where, how many nodes and Slurm's words."""
    story = Story()
    story.read(a_waiting_job())
    for _ in range(3):
        story.read(a_job())
    for _ in range(3):
        story.read(a_job(state="COMPLETED"))
    story.read()

    assert story.told == [("started", 7, BEGAN), ("ended", 7, BEGAN)]
    started, ended = story.events
    assert (started.user, started.partition, started.nodes, started.node_count) == ("u1", "gpu", ["gpu-1", "gpu-2"], 2)
    assert (started.states, ended.states) == (["RUNNING"], ["COMPLETED"])
    assert started.id != ended.id


def test_the_same_happening_has_the_same_id() -> None:
    """Whoever tells it: what was told twice around a crash is stored once."""
    one, two = Story(), Story()
    one.read(a_job())
    two.read(a_job(nodes=["gpu-1"]))

    assert [event.id for event in one.events] == [event.id for event in two.events]


def test_a_run_begins_when_its_nodes_are_set_up() -> None:
    """Until then its start may move, which is no other run."""
    story = Story()
    story.read(a_job(state="RUNNING+CONFIGURING"))
    story.read(a_job(state="RUNNING+CONFIGURING", start=AGAIN))
    assert story.told == []
    story.read(a_job(start=AGAIN))

    assert story.told == [("started", 7, AGAIN)]


def test_a_run_ends_when_it_has_given_its_nodes_back() -> None:
    """An epilog still works on them; a suspended job has them too."""
    story = Story(a_job())
    story.read(a_job(state="SUSPENDED"))
    story.read(a_job(state="COMPLETED+COMPLETING"))
    assert story.told == []
    story.read(a_job(state="COMPLETED"))

    assert story.told == [("ended", 7, BEGAN)]


def test_a_job_that_is_put_back_and_runs_again_is_two_runs() -> None:
    """Told when it is in the queue again, though its old nodes are still being cleaned."""
    story = Story(a_job())
    story.read(a_job(state="PENDING+COMPLETING"))
    story.read(a_waiting_job())
    assert story.told == [("requeued", 7, BEGAN)]
    assert story.events[0].node_count == 2
    story.read(a_job(start=AGAIN))

    assert story.told[1:] == [("started", 7, AGAIN)]


def test_a_job_that_was_put_back_and_runs_again_already() -> None:
    """The same number with another start."""
    story = Story(a_job())
    story.read(a_job(start=AGAIN))

    assert story.told == [("requeued", 7, BEGAN), ("started", 7, AGAIN)]


def test_a_job_that_was_put_back_ran_and_ended_unseen() -> None:
    """All of it is told, in order."""
    story = Story(a_job())
    story.read(a_job(state="COMPLETED", start=AGAIN))

    assert story.told == [("requeued", 7, BEGAN), ("started", 7, AGAIN), ("ended", 7, AGAIN)]


def test_a_job_that_began_and_ended_unseen_is_told_once() -> None:
    """For as long as Slurm remembers it."""
    story = Story()
    for _ in range(3):
        story.read(a_job(state="COMPLETED"))

    assert story.told == [("started", 7, BEGAN), ("ended", 7, BEGAN)]


def test_a_job_that_never_ran_is_not_told() -> None:
    """Submitted and cancelled."""
    story = Story()
    story.read(a_waiting_job())
    story.read(a_job(state="CANCELLED", nodes=[]))

    assert story.told == []


def test_a_job_that_slurm_has_forgotten_has_ended() -> None:
    """Without words; of one that was told as a fact it is known who it was."""
    story = Story(a_job(1), a_job(2), known=[a_job(1)])
    story.read()

    assert story.told == [("ended", 1, BEGAN), ("ended", 2, BEGAN)]
    assert [(event.states, event.user, event.node_count) for event in story.events] == [([], "u1", 2), ([], "", 2)]


def test_tasks_of_an_array_and_parts_of_a_het_job_are_jobs() -> None:
    """Slurm gives each its own number."""
    story = Story(a_job(100), a_job(101))
    story.read(a_job(101), a_job(102))

    assert story.told == [("ended", 100, BEGAN), ("started", 102, BEGAN)]


def test_after_a_restart_the_end_of_a_known_run_is_told() -> None:
    """What a predecessor saw is missing at the first look; what it did not see is not news."""
    assert Story(a_job(2), known=[a_job(1), a_job(2)]).told == [("ended", 1, BEGAN)]
    assert Story(a_job(1, start=AGAIN), known=[a_job(1)]).told == [("requeued", 1, BEGAN), ("started", 1, AGAIN)]
    assert Story(a_job(1, "COMPLETED"), known=[a_job(1)]).told == [("ended", 1, BEGAN)]


def test_only_what_is_wanted_is_told() -> None:
    """Where only drains count, a job elsewhere is followed and not told."""
    story = Story(a_job(1, nodes=["gpu-9"]), tells=lambda job: "gpu-1" in job.nodes)
    story.read(a_job(1, "COMPLETED", nodes=["gpu-9"]), a_job(2, nodes=["gpu-9"]), a_job(3))

    assert story.told == [("started", 3, BEGAN)]


def test_an_event_names_a_few_nodes_and_counts_all() -> None:
    """A job may have thousands."""
    story = Story()
    story.read(a_job(nodes=[f"gpu-{i}" for i in range(5_000)]))

    assert (len(story.events[0].nodes), story.events[0].node_count) == (jobs.MAX_NODES, 5_000)


def test_more_runs_than_there_is_room_for_are_counted_and_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are followed stay followed; the others come in when there is room."""
    monkeypatch.setattr(jobs, "MAX_RUNS", 2)
    story = Story(a_job(1))
    story.read(a_job(3), a_job(2), a_job(1))
    story.read(a_job(3), a_job(2), a_job(1))
    assert (story.told, story.runs.left_out) == ([("started", 3, BEGAN)], 1)
    story.read(a_job(2), a_job(3))

    assert story.told[1:] == [("ended", 1, BEGAN)]
    assert story.runs.left_out == 0


def test_after_a_pause_all_is_as_if_never_looked_at() -> None:
    """What began while nobody read has not begun now."""
    story = Story(a_job(1))
    story.runs.forget()
    story.read(a_job(2), a_job(3, "COMPLETED"))

    assert story.told == []
