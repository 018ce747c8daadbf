"""Follows the watches, publishes what changed at once, and beats while all watches are alive."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import aclosing
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, NoReturn

import msgspec
import structlog

from lockstep.base import clock
from lockstep.base.errors import Fatal, Retry
from lockstep.bus.publisher import Publisher
from lockstep.contracts.common import WorkerRef
from lockstep.contracts.events import Event, NodeEvent, SourceBack, SourceLost
from lockstep.contracts.facts import SITE, Fact, KubeHold, KubeNode, KubePod, SourceHealth
from lockstep.contracts.subjects import fact_subject
from lockstep.kube.errors import KubeError
from lockstep.kube.port import Delta, KubeApi
from lockstep.kube.wire import Hold, Node, Pod
from lockstep.pod_watcher.decide import News, hold_fact, news, node_fact, pod_fact
from lockstep.pod_watcher.model import reading_of, selector_of
from lockstep.runtime.changes import log_changes
from lockstep.runtime.metrics import observe_leg
from lockstep.runtime.settings import Settings
from lockstep.runtime.telemetry import Outage
from lockstep.runtime.tracing import Step, steps

SOURCE = "kube"
MAX_WORKERS = 64
"""Workers that an event about a node names."""
BEAT_S = 1.0
"""Between two heartbeats."""
PROBE_S = 1.5
"""So long nothing may be heard before the API server is asked for a sign of life: a broken path is silent."""
NAME = "kubernetes changed"
"""Of a span."""
PROBES_FAILED = 2
"""So many signs of life missing in a row are an outage."""
AGAIN_S = 0.5
"""From a sign of life that is missing to the next question. All in all an outage is told 5 s after the last sign: our
lease is kept there too, and runs out 6.7 s after it at the earliest."""

log = structlog.get_logger()


class Watched(NamedTuple):
    """One watch, and how its objects become facts."""

    name: str
    kind: type[Any]
    namespace: str | None
    selector: str
    read: Callable[[Any], Fact | None]


class Note(NamedTuple):
    """The newest reading of an object that is not published yet; None: it is gone."""

    fact: Fact | None
    at: datetime
    quiet: bool
    skipped: bool


Key = tuple[str, str]
"""A watch's name, and the object's identity within it."""


class PodWatcher:
    """The facts of Kubernetes. States that follow each other faster than they are published are told as one."""

    def __init__(
        self,
        kube: KubeApi,
        out: Publisher,
        settings: Settings,
        *,
        known: Iterable[Fact] = (),
        step_of: Callable[[Fact | None, Fact], Step] = lambda _before, _after: Step(NAME),
        workers_on: Callable[[str], list[WorkerRef]] = lambda _: [],
        on_round: Callable[[], None] = lambda: None,
    ) -> None:
        """`known` is what the stream says of this source: only differences are told.

        `step_of` gives the span of a change, `workers_on` the workers on a Kubernetes node. `on_round` is told each
        time that this lives.
        """
        known = list(known)
        before = next((f for f in known if isinstance(f, SourceHealth) and f.source == SOURCE), None)
        self._kube = kube
        self._out = out
        self._step_of = step_of
        self._workers_on = workers_on
        self._on_round = on_round
        self._watches = watches_of(settings)
        self._known: dict[Key, Fact] = {_key(fact): fact for fact in known if isinstance(fact, _KINDS)}
        self._quiet = {w.name for w in self._watches} - {name for name, _ in self._known}
        """Watches of which nothing was known and that are not complete yet: what they show has not happened now."""
        self._unseen = {key: key[0] for key in self._known}
        """What was known and no list has shown yet."""
        self._missing: dict[str, str] = {w.name: "" for w in self._watches}
        """What is not alive, and why; empty: it has only just begun."""
        self._pending: dict[Key, Note] = {}
        self._events: list[Event] = []
        self._event_traces: dict[str, str] = {}
        self._facts: list[Fact] = []
        """With the events, what is decided and not published yet; by subject the facts' traces and causes."""
        self._fact_traces: dict[str, str] = {}
        self._causes: dict[str, str] = {}
        self._wake = asyncio.Event()
        self._heard: datetime | None = None
        self._beat = before
        self._beat_due = 0.0
        self._lost_at = before.failing_since if before else None
        """Also when a predecessor said so: the end of the outage is then for us to tell."""
        lost_for_s = (clock.now() - self._lost_at).total_seconds() if self._lost_at else None
        self._outage = Outage(log, "Kubernetes", failing_for_s=lost_for_s)

    async def run(self) -> None:
        """Follows everything, for ever.

        Raises:
            Fatal: a watch ended.
            Reject: a successor publishes these facts.
        """
        names = {w.name for w in self._watches}
        for key in [key for key in self._known if key[0] not in names]:
            self._note(key, None, clock.now())
        async with asyncio.TaskGroup() as tasks:
            for watched in self._watches:
                tasks.create_task(self._follow(watched))
            tasks.create_task(self._probe())
            tasks.create_task(self._publish())

    async def _follow(self, watched: Watched) -> NoReturn:
        deltas = self._kube.watch(watched.kind, namespace=watched.namespace, label_selector=watched.selector)
        async with aclosing(deltas) as each:
            async for delta in each:
                self.take(watched, delta)
        raise Fatal(f"the watch on {watched.name} ended")

    def take(self, watched: Watched, delta: Delta[Any]) -> None:
        """Takes in one item of a watch."""
        at = delta.at or clock.now()
        match delta.kind:
            case "changed" if delta.after is not None:
                self._note(_key_in(watched, delta.after), watched.read(delta.after), at)
            case "gone" if delta.before is not None:
                self._note(_key_in(watched, delta.before), None, at)
            case "synced":
                self._synced(watched.name, at)
            case "lost":
                self._lost(watched.name, delta.error, at)
                return
        self._heard = clock.now()

    def _note(self, key: Key, fact: Fact | None, at: datetime) -> None:
        self._unseen.pop(key, None)
        self._pending[key] = Note(fact, at, quiet=key[0] in self._quiet, skipped=key in self._pending)
        self._wake.set()

    def _synced(self, name: str, at: datetime) -> None:
        for key in [key for key, where in self._unseen.items() if where == name]:
            self._note(key, None, at)
        self._quiet.discard(name)
        self._found(name, at)

    def _found(self, name: str, at: datetime) -> None:
        if self._missing.pop(name, None) is None:
            return
        self._wake.set()
        if self._lost_at is not None and not self._missing:
            away_s = (at - self._lost_at).total_seconds()
            mark = f"{SOURCE}:back:{at.isoformat()}"
            self._events.append(SourceBack(id=mark, at=at, source=SOURCE, of=SITE, lost_for_s=away_s))
            self._lost_at = None

    def _lost(self, name: str, error: str, at: datetime) -> None:
        self._missing[name] = told = f"{name}: {error}"
        if self._lost_at is None:
            self._lost_at = at
            self._outage.down(told)
            mark = f"{SOURCE}:lost:{at.isoformat()}"
            self._events.append(SourceLost(id=mark, at=at, source=SOURCE, of=SITE, error=told))
            self._wake.set()

    async def _probe(self) -> NoReturn:
        """Asks for a sign of life when the watches are silent: they are for minutes, also when the path is broken."""
        name, failed = "api server", 0
        while True:
            await asyncio.sleep(AGAIN_S if failed else PROBE_S)
            at = clock.now()
            if self._heard is not None and (at - self._heard).total_seconds() < PROBE_S / 2:
                failed = 0
                self._found(name, at)
                continue
            try:
                async with asyncio.timeout(PROBE_S):
                    await self._kube.server_version()
            except (KubeError, TimeoutError) as e:
                failed += 1
                if failed >= PROBES_FAILED:
                    self._lost(name, str(e) or "gives no answer", at)
                continue
            failed = 0
            self._heard = at
            self._found(name, at)

    async def _publish(self) -> NoReturn:
        while True:
            try:
                async with asyncio.timeout(max(self._beat_due - clock.monotonic(), 0)):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._on_round()
            try:
                await self.publish()
            except Retry as e:
                await asyncio.sleep(e.after_s or BEAT_S)

    async def publish(self) -> None:
        """Publishes all that is known now: events, then the facts, then the heartbeat if it is due.

        The events first: a crash in between repeats them, with the same ids, and loses none; and what others decide on
        the facts comes later in the stream than what it came from.

        Raises:
            Retry: NATS did not take it in time; nothing is forgotten.
        """
        self._wake.clear()
        await self._send()
        notes, self._pending = self._pending, {}
        as_of = self._heard if not self._missing else None
        told = {key: news(self._known.get(key), *note) for key, note in notes.items()}
        with steps(lambda: self._steps(notes, told)) as traces:
            for key, note in notes.items():
                self._owe(key, note, told[key], traces.get(key, ""))
            await self._send()
            now = clock.now()
            for key, note in notes.items():
                if told[key].facts:
                    taken_s = (now - note.at).total_seconds()
                    observe_leg("read-to-fact", taken_s, traceparent=traces.get(key, ""))
        await self._tell_health(as_of)

    def _owe(self, key: Key, note: Note, told: News, traceparent: str) -> None:
        """From here on it is known, and is to be sent until the stream has it."""
        self._events += map(self._with_workers, told.events)
        self._facts += told.facts
        for fact in told.facts if told.cause or traceparent else ():
            subject = fact_subject(fact)
            self._causes |= {subject: told.cause} if told.cause else {}
            self._fact_traces |= {subject: traceparent} if traceparent else {}
        if traceparent:
            self._event_traces |= {event.id: traceparent for event in told.events}
        if note.fact is None:
            self._known.pop(key, None)
        else:
            self._known[key] = note.fact

    def _with_workers(self, event: Event) -> Event:
        if not isinstance(event, NodeEvent):
            return event
        return msgspec.structs.replace(event, workers=self._workers_on(event.node)[:MAX_WORKERS])

    async def _send(self) -> None:
        if events := self._events[:]:
            await self._out.events(events, self._event_traces)
            self._say(events)
            log_changes(log, events, self._event_traces)
            del self._events[: len(events)]
            self._event_traces.clear()
        if self._facts:
            await self._out.facts(self._facts, self._fact_traces, self._causes)
            self._facts, self._fact_traces, self._causes = [], {}, {}

    def _say(self, events: Iterable[Event]) -> None:
        """The end of an outage is said when it was told: whoever may tell it no longer leaves it to a successor."""
        for event in events:
            match event:
                case SourceLost():
                    self._outage.down(event.error)
                case SourceBack():
                    self._outage.up()

    def _steps(self, notes: Mapping[Key, Note], told: Mapping[Key, News]) -> dict[Key, Step]:
        """The spans of what has happened now."""
        happened = (
            key for key, each in told.items() if each.facts and not (notes[key].quiet and key not in self._known)
        )
        return {key: self._step_of(self._known.get(key), told[key].facts[-1]) for key in happened}

    async def _tell_health(self, as_of: datetime | None) -> None:
        """The heartbeat; while something is missing there is none, but its end is told once, with the reason."""
        before, error = self._beat, next(filter(None, self._missing.values()), "")
        if as_of is None:
            if not error or (before is not None and before.last_error):
                self._beat_due = clock.monotonic() + BEAT_S
                return
            as_of = before.complete_as_of if before else None
        elif clock.monotonic() < self._beat_due:
            return
        health = SourceHealth(
            read_at=clock.now(),
            source=SOURCE,
            complete_as_of=as_of,
            last_error=error,
            failing_since=self._lost_at if error else None,
            interval_s=BEAT_S,
        )
        await self._out.fact(health)
        self._beat, self._beat_due = health, clock.monotonic() + BEAT_S


def watches_of(settings: Settings) -> list[Watched]:
    """What is watched: all Nodes, each cluster's worker pods, and the Holds of each cluster's namespace."""
    reading = reading_of(settings)
    watches = [Watched("nodes", Node, None, "", partial(node_fact, reading=reading))]
    for cluster in settings.clusters:
        read = partial(pod_fact, cluster=cluster.name, nodename_label=cluster.workers.nodename_label)
        watches.append(Watched(f"pods of {cluster.name}", Pod, cluster.namespace, selector_of(cluster), read))
    for namespace, clusters in reading.clusters.items():
        watches.append(Watched(f"holds in {namespace}", Hold, namespace, "", partial(hold_fact, clusters=clusters)))
    return watches


_KINDS = (KubeNode, KubePod, KubeHold)


def _key(fact: Fact) -> Key:
    """Which watch a fact came from, and what it is about."""
    match fact:
        case KubePod():
            return f"pods of {fact.cluster}", fact.identity
        case KubeHold():
            return f"holds in {fact.namespace}", fact.identity
        case _:
            return "nodes", fact.identity


def _key_in(watched: Watched, item: Node | Pod | Hold) -> Key:
    meta = item.metadata
    return watched.name, f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
