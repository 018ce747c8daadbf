"""Reads one Slurm cluster again and again, and publishes what changed; a heartbeat says that all of it is true."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from random import Random
from types import MappingProxyType
from typing import Literal, NoReturn, TypeVar

import structlog

from lockstep.base import clock
from lockstep.base.backoff import backoff
from lockstep.base.errors import Retry
from lockstep.bus.publisher import Publisher
from lockstep.contracts.events import Event, JobEvent, SourceBack, SourceLost
from lockstep.contracts.facts import Fact, SlurmJob, SlurmNode, SlurmReservation, SourceHealth
from lockstep.contracts.policy import Policy
from lockstep.contracts.subjects import fact_subject
from lockstep.runtime.changes import log_changes
from lockstep.runtime.metrics import POLL, POLL_INTERVAL, observe_leg
from lockstep.runtime.settings import PollSettings
from lockstep.runtime.tracing import Step, steps
from lockstep.slurm import again
from lockstep.slurm.errors import SlurmError
from lockstep.slurm.port import JobList, SlurmApi
from lockstep.slurm_poller.causes import Change
from lockstep.slurm_poller.decide import (
    Difference,
    Pace,
    RefOf,
    Watchman,
    bare,
    difference,
    is_draining,
    is_suspicious,
    jobs_on,
    leaving_names,
    with_nodes,
)
from lockstep.slurm_poller.jobs import Runs
from lockstep.slurm_poller.model import Source, Told
from lockstep.slurm_poller.news import News

RESERVATIONS_EVERY_S = 10.0
FULL_EVERY_S = 60.0
"""So often all nodes are read whatever Slurm says of changes: its stamps are one second coarse."""
JOBS_REST = 9.0
"""So many times as long as the last reading of jobs took, none follows unless a drain waits: a tenth is spent on it."""
READ_WITHIN_S = 30.0
"""No reading takes longer; the client's own limit is shorter."""
NAME = "slurm changed"
"""Of a span."""

T = TypeVar("T")
F = TypeVar("F", bound=SlurmNode | SlurmJob | SlurmReservation)

log = structlog.get_logger()


async def _nobody(_: SourceLost) -> None:
    """Tells nobody."""


class ClusterPoller:
    """The facts of one Slurm cluster. An error leaves them as they are and withholds the heartbeat."""

    def __init__(
        self,
        cluster: str,
        slurm: SlurmApi,
        out: Publisher,
        *,
        poll: PollSettings,
        policy: Policy,
        jobs: Literal["off", "drains", "all"] = "drains",
        known: Iterable[Fact] = (),
        step_of: Callable[[SlurmNode | None, SlurmNode], Step] = lambda _before, _after: Step(NAME),
        ref_of: RefOf | None = None,
        news: News | None = None,
        tell: Callable[[SourceLost], Awaitable[None]] = _nobody,
    ) -> None:
        """`known` is what the stream says of this source: only differences are told. `jobs`: see the settings.

        `step_of` gives the span of a change from what was told to what is, `news` the event that tells of the write of
        ours which it shows; `ref_of` says where a worker is.
        """
        known = list(known)
        self._cluster = cluster
        self._slurm = slurm
        self._out = out
        self._poll = poll
        self._step_of = step_of
        self._tell = tell
        self._log = log.bind(cluster=cluster)
        self._news = news
        self._watchman = Watchman(policy.allowed_flags, ref_of, news.echo_of if news else None)
        self._nodes = _known(SlurmNode, known, cluster)
        self._jobs = _known(SlurmJob, known, cluster)
        self._reservations = _known(SlurmReservation, known, cluster)
        told = {fact.source: fact for fact in known if isinstance(fact, SourceHealth) and fact.of == cluster}
        self._node_source, self._job_source, self._reservation_source = (
            Source(name, cluster, told.get(name)) for name in ("slurm.node", "slurm.job", "slurm.reservation")
        )
        self._is_first = not self._nodes
        self._is_doubtful = False
        self._is_draining = is_draining(self._nodes.values())
        self._leaving = leaving_names(self._nodes.values())
        self._since = 0
        self._full_at: float | None = None
        self._tell_jobs = jobs
        self._runs = Runs(cluster, self._jobs.values() if jobs != "off" else ())
        self._looked_on: frozenset[str] = frozenset()
        """The nodes on which jobs were looked for in the last answer, and (`_on_leaving`) what was found there."""
        self._on_leaving: list[SlurmJob] = []
        self._jobs_since = 0
        self._jobs_due = 0.0
        self._reservations_due = 0.0
        self._events: list[Event] = []
        self._event_traces: dict[str, str] = {}
        self._facts: list[Fact] = []
        """With the events, what is decided and not published yet; by subject the facts' traces and causes."""
        self._fact_traces: dict[str, str] = {}
        self._causes: dict[str, str] = {}
        self._pace = Pace(min_s=poll.min_interval_s, max_s=poll.max_interval_s, max_share=poll.max_share)
        self._cost_s = 0.0
        self._paid_at = clock.monotonic()
        self._interval_s = poll.min_interval_s
        self._random = Random()  # noqa: S311 - jitter

    async def run(self, on_cycle: Callable[[], None] = lambda: None) -> NoReturn:
        """Reads for ever; `on_cycle` is told each time that this lives.

        Raises:
            Reject: a successor publishes these facts.
        """
        while True:
            wait_s = await self.cycle()
            on_cycle()
            await asyncio.sleep(wait_s)

    async def cycle(self) -> float:
        """Reads once what is due, publishes what is new, and says after how many seconds to read again."""
        began, self._cost_s = clock.monotonic(), 0.0
        try:
            await self._send()
            failures = await self._read_all()
            await self._send()
        except Retry as e:
            return e.after_s or 1.0
        POLL.labels(self._cluster).observe(self._cost_s)
        if failures:
            first_s, limit_s = self._poll.min_interval_s, self._poll.max_interval_s
            return backoff(failures - 1, first_s=first_s, limit_s=limit_s, jitter=self._random)
        now = clock.monotonic()
        self._pace = self._pace.after(self._cost_s, now - self._paid_at, draining=self._is_draining)
        self._paid_at = now
        self._interval_s = self._pace.wait_s(draining=self._is_draining)
        POLL_INTERVAL.labels(self._cluster).set(self._interval_s)
        return self._pace.wait_s(draining=self._is_draining, took_s=now - began)

    async def _read_all(self) -> int:
        """How often in a row it has failed now; 0 when all that was due was read."""
        for read in (self._read_nodes, self._read_jobs, self._read_reservations):
            if failures := await read():
                return failures
        return 0

    async def _read_nodes(self) -> int:
        at = clock.now()
        full = self._is_doubtful or self._full_at is None or clock.monotonic() - self._full_at >= FULL_EVERY_S
        try:
            answer = await self._call(partial(self._slurm.nodes, since=0 if full else self._since))
        except (SlurmError, TimeoutError) as e:
            return await self._failed(self._node_source, _text(e), at)
        told = Difference[SlurmNode]([], [])
        if answer is not None:
            told = difference(self._nodes, answer.nodes, at)
            if is_suspicious(len(self._nodes), len(told.gone)) and not self._is_doubtful:
                self._is_doubtful = True
                self._log.warning("Most nodes are missing, reading again", count=len(told.gone))
                return await self._failed(self._node_source, f"{len(told.gone)} nodes are missing at once", at)
            self._is_doubtful = False
            self._full_at = clock.monotonic() if full else self._full_at
        early = self._early(told.changed)
        await self._tell_nodes(Difference([node for node in told.changed if node.name not in early], told.gone), at)
        if early and self._news is not None:
            await self._news.told(early.values())
            await self._tell_nodes(Difference([after for _, after in early.values()], []), at)
        self._since = answer.last_update if answer is not None else self._since
        return await self._succeeded(self._node_source, at)

    def _early(self, changed: Iterable[SlurmNode]) -> dict[str, Change]:
        """By name those that show a write of ours before the news of it; all else that was read does not wait."""
        changes: Iterable[Change] = ((self._nodes.get(node.name), node) for node in changed)
        return {change[1].name: change for change in changes if self._news and self._news.is_awaited(*change)}

    async def _tell_nodes(self, told: Difference[SlurmNode], at: datetime) -> None:
        if self._is_first:
            events = self._watchman.first(told.changed, at)
        else:
            events = self._watchman.events(self._nodes, told, at)
        nodes = [*told.changed, *told.gone]
        with steps(lambda: self._steps(nodes)) as traces:
            self._is_first = False
            self._owe(self._nodes, told, events, traces)
            await self._send()
            if nodes:
                traceparent = next(iter(traces.values()), "")
                observe_leg("read-to-fact", (clock.now() - at).total_seconds(), traceparent=traceparent)
                self._is_draining = is_draining(self._nodes.values())
                self._leaving = leaving_names(self._nodes.values())

    async def _read_jobs(self) -> int:
        """Jobs are read later than the nodes that show a drain, so that what is then missing has ended.

        While nobody waits for their end, a large answer may not keep the nodes from being read, nor may a failure. An
        outage that was told is followed to its end also then.
        """
        at, began = clock.now(), clock.monotonic()
        is_told = self._tell_jobs == "all" or (self._tell_jobs == "drains" and bool(self._jobs))
        if not self._leaving and not is_told and not self._job_source.is_lost:
            self._runs.forget()
            self._on_leaving, self._jobs_since = [], 0
            self._owe(self._jobs, difference(self._jobs, [], at))
            await self._send()
            return 0
        if not self._leaving and not self._jobs and began < self._jobs_due:
            return 0
        if not self._leaving <= self._looked_on:
            self._jobs_since = 0
        try:
            answer = await self._call(partial(self._slurm.jobs, since=self._jobs_since))
        except (SlurmError, TimeoutError) as e:
            failures = await self._failed(self._job_source, _text(e), at)
            if self._job_source.is_lost:
                self._jobs_due = self._rested(began)
            return failures if self._leaving else 0
        self._jobs_due = self._rested(began)
        happened: list[JobEvent] = []
        if answer is not None:
            self._jobs_since, self._looked_on = answer.last_update, self._leaving
            self._on_leaving = jobs_on(answer.jobs, self._leaving)
            happened = self._happened_to_jobs(answer, at)
        self._owe(self._jobs, difference(self._jobs, jobs_on(self._on_leaving, self._leaving), at), happened)
        await self._send()
        return await self._succeeded(self._job_source, at)

    @staticmethod
    def _rested(began: float) -> float:
        """When jobs may be read again after a reading that `began` then."""
        return clock.monotonic() + JOBS_REST * (clock.monotonic() - began)

    def _happened_to_jobs(self, answer: JobList, at: datetime) -> list[JobEvent]:
        """As the setting `jobs` says."""
        if self._tell_jobs == "off":
            return []

        def tells(job: SlurmJob) -> bool:
            return self._tell_jobs == "all" or job.identity in self._jobs or not self._leaving.isdisjoint(job.nodes)

        had_room = not self._runs.left_out
        happened = self._runs.events(answer, at, facts=self._jobs, tells=tells)
        if self._runs.left_out and had_room:
            self._log.warning("More jobs run than are followed", count=self._runs.left_out)
        return happened

    async def _read_reservations(self) -> int:
        at = clock.now()
        if clock.monotonic() < self._reservations_due:
            return 0
        self._reservations_due = clock.monotonic() + RESERVATIONS_EVERY_S
        try:
            answer = await self._call(self._slurm.reservations)
        except (SlurmError, TimeoutError) as e:
            await self._failed(self._reservation_source, _text(e), at)
            return 0
        self._owe(self._reservations, difference(self._reservations, with_nodes(answer), at))
        await self._send()
        return await self._succeeded(self._reservation_source, at, interval_s=RESERVATIONS_EVERY_S)

    async def _call(self, ask: Callable[[], Awaitable[T]]) -> T:
        began = clock.monotonic()
        try:
            async with asyncio.timeout(READ_WITHIN_S):
                return await again.read(ask)
        finally:
            self._cost_s += clock.monotonic() - began

    def _owe(
        self,
        known: dict[str, F],
        told: Difference[F],
        events: Sequence[Event] = (),
        traces: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """From here on it is known, and is to be sent until the stream has it. `traces` are by identity.

        A fact is as it is because of the first event about the same thing.
        """
        self._events += events
        causes: dict[str, str] = {}
        for event in events:
            causes.setdefault(event.identity, event.id)
            if event.identity in traces:
                self._event_traces[event.id] = traces[event.identity]
        for fact in (*told.changed, *told.gone):
            self._facts.append(fact)
            if fact.identity in causes:
                self._causes[fact_subject(fact)] = causes[fact.identity]
            if fact.identity in traces:
                self._fact_traces[fact_subject(fact)] = traces[fact.identity]
        _apply(known, told)

    async def _send(self) -> None:
        """Events first: a crash in between repeats them, and what others decide comes later than what it came from."""
        if events := self._events[:]:
            await self._out.events(events, self._event_traces)
            for event in events:
                if isinstance(event, SourceBack):
                    after_s = round(event.lost_for_s, 1)
                    self._log.info("Slurm is read again", source=event.source, after_s=after_s)
            log_changes(self._log, events, self._event_traces)
            del self._events[: len(events)]
            self._event_traces.clear()
        if self._facts:
            await self._out.facts(self._facts, self._fact_traces, self._causes)
            self._facts, self._fact_traces, self._causes = [], {}, {}

    async def _succeeded(self, source: Source, at: datetime, *, interval_s: float = 0.0) -> int:
        await self._tell_source(source.succeeded(at, interval_s or self._interval_s))
        return 0

    async def _failed(self, source: Source, error: str, began: datetime) -> int:
        await self._tell_source(source.failed(error, clock.now(), began=began))
        return source.failures

    async def _tell_source(self, told: Told) -> None:
        if isinstance(told.event, SourceLost):
            self._log.warning("Slurm cannot be read", source=told.event.source, error=told.event.error)
            await self._tell(told.event)
        if told.event is not None:
            self._events.append(told.event)
        if told.health is not None:
            await self._out.fact(told.health)

    def _steps(self, nodes: list[SlurmNode]) -> dict[str, Step]:
        """The spans of what has happened now, by the nodes' names."""
        happened = [] if self._is_first else nodes
        return {node.name: self._step_of(self._nodes.get(node.identity), node) for node in happened}


def _known(kind: type[F], facts: Iterable[Fact], cluster: str) -> dict[str, F]:
    return {f.identity: bare(f) for f in facts if isinstance(f, kind) and f.cluster == cluster}


def _apply(known: dict[str, F], told: Difference[F]) -> None:
    known.update({each.identity: bare(each) for each in told.changed})
    for each in told.gone:
        known.pop(each.identity, None)


def _text(error: Exception) -> str:
    return str(error) or f"no answer within {READ_WITHIN_S:g} s"
