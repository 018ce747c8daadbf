"""What happened to jobs between two readings: which runs began, ended, or were broken off and put back. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from lockstep.contracts.events import JobEnded, JobEvent, JobRequeued, JobStarted
from lockstep.contracts.facts import SlurmJob
from lockstep.contracts.subjects import tag_of
from lockstep.slurm import states
from lockstep.slurm.port import JobList

MAX_RUNS = 100_000
"""Runs that are remembered; of more than that nothing is told until there is room."""
MAX_NODES = 64
"""Nodes that an event names."""


class Run(NamedTuple):
    """What is remembered of a job that runs: enough to know this run from its next, and to tell of its end."""

    start: datetime | None
    nodes: int


class Runs:
    """Remembers which jobs ran at the last reading. A job is one task of an array, or one component of a het job.

    A run begins when the job has its nodes and they are set up, and ends when it has given all of them back. What ran
    before the first reading has not begun now. A run that began and ended between two readings is told with both.
    """

    def __init__(self, cluster: str, known: Iterable[SlurmJob] = ()) -> None:
        """`known` ran when a predecessor looked: their end is then for us to tell."""
        self._cluster = cluster
        self._runs = {job.job_id: _run(job) for job in known if _began(job)}
        self._others: set[int] | None = None
        """The jobs that held no nodes at the last reading; None: there was none."""
        self.left_out = 0
        """How many runs were not remembered at the last reading, for want of room."""

    def forget(self) -> None:
        """Nobody reads any more."""
        self._runs, self._others, self.left_out = {}, None, 0

    def events(
        self,
        read: JobList,
        at: datetime,
        *,
        facts: Mapping[str, SlurmJob],
        tells: Callable[[SlurmJob], bool] = lambda _: True,
    ) -> list[JobEvent]:
        """What happened since the last reading, as far as `tells` wants to hear of the job.

        `facts` (by identity) say what a job was that Slurm has forgotten, or that waits and has no nodes any more.
        """
        found: list[JobEvent] = []
        for job, before in self._changed(read, facts):
            if tells(job):
                found += _next(job, before, facts.get(job.identity, job), at)
        self._remember(read)
        return found

    def _changed(self, read: JobList, facts: Mapping[str, SlurmJob]) -> Iterator[tuple[SlurmJob, Run | None]]:
        """The jobs that are not in the run in which they were at the last reading, each with that run."""
        here = {job.job_id: job for job in read.jobs}
        for job_id, run in self._runs.items():
            job = here.get(job_id)
            if job is None:
                yield read.others.get(job_id) or _forgotten(job_id, facts, self._cluster), run
            elif job.start != run.start or states.job_waits(job.states):
                yield job, run
        if self._others is None:
            return
        room = MAX_RUNS - len(self._runs)
        for job in read.jobs:
            if room > 0 and job.job_id not in self._runs and _began(job):
                room -= 1
                yield job, None
        for job_id in sorted(read.others.keys() - self._others - self._runs.keys()):
            if _is_over(job := read.others[job_id]):
                yield job, None

    def _remember(self, read: JobList) -> None:
        runs: dict[int, Run] = {}
        began = [job for job in read.jobs if _began(job)]
        for job in began if len(began) <= MAX_RUNS else sorted(began, key=lambda job: job.job_id not in self._runs):
            if len(runs) == MAX_RUNS:
                break
            before = self._runs.get(job.job_id)
            runs[job.job_id] = before if before and before.start == job.start else _run(job)
        self._runs, self.left_out = runs, len(began) - len(runs)
        self._others = set(read.others)


def _next(job: SlurmJob, before: Run | None, was: SlurmJob, at: datetime) -> Iterator[JobEvent]:
    """What became of the run before, and of the one that came after it, in order. `was` says what that run was."""
    is_another = before is None or job.start not in {before.start, None}
    if before is not None:
        kind = JobRequeued if states.job_waits(job.states) or (is_another and job.nodes) else JobEnded
        yield kind(**_about(was, before, job.states, at, kind))
    if is_another and (_began(job) or _is_over(job)):
        yield JobStarted(**_about(job, _run(job), job.states, at, JobStarted), ends=job.end)
        if _is_over(job):
            yield JobEnded(**_about(job, _run(job), job.states, at, JobEnded))


def _about(job: SlurmJob, run: Run, said: list[str], at: datetime, kind: type[JobEvent]) -> dict[str, Any]:
    start = run.start.isoformat() if run.start else ""
    return {
        "id": f"{job.cluster}/job/{job.job_id}:{start}:{tag_of(kind)}",
        "at": at,
        "cluster": job.cluster,
        "job_id": job.job_id,
        "user": job.user,
        "partition": job.partition,
        "nodes": job.nodes[:MAX_NODES],
        "node_count": run.nodes,
        "states": said,
        "start": run.start,
    }


def _run(job: SlurmJob) -> Run:
    return Run(job.start, len(job.nodes))


def _began(job: SlurmJob) -> bool:
    return states.job_holds_nodes(job.states) and not states.job_waits(job.states) and not states.job_begins(job.states)


def _is_over(job: SlurmJob) -> bool:
    """It has run, and does not any more: one that was cancelled before it began has no nodes."""
    holds, waits = states.job_holds_nodes(job.states), states.job_waits(job.states)
    return bool(job.nodes) and job.start is not None and not holds and not waits


def _forgotten(job_id: int, facts: Mapping[str, SlurmJob], cluster: str) -> SlurmJob:
    """A job of which Slurm says nothing any more: what was told of it, without a state."""
    fact = facts.get(str(job_id))
    return msgspec.structs.replace(fact, states=[]) if fact else SlurmJob(cluster=cluster, job_id=job_id)
