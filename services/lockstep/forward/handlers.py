"""One endpoint: reads the events from where it was, posts them in order per worker, and remembers how far it is."""

import asyncio
from collections import deque
from contextlib import aclosing
from itertools import count
from random import Random
from typing import NamedTuple, NoReturn

import structlog

from lockstep.base import clock
from lockstep.base.errors import Fatal, Retry
from lockstep.bus.dead import DeadLetters
from lockstep.bus.ordered import CaughtUp, Missed, OrderedReader, Received, Reset, Start
from lockstep.bus.streams import StreamState, stream_state
from lockstep.contracts.facts import ForwardPosition
from lockstep.contracts.subjects import EVENTS
from lockstep.forward.decide import item_of, later, verdict, wants
from lockstep.forward.model import Again, Dead, Item, Off, Taken
from lockstep.forward.poster import Poster
from lockstep.runtime.metrics import FORWARD_AGE, FORWARDED
from lockstep.runtime.ports import Ports
from lockstep.runtime.settings import ForwardSettings
from lockstep.runtime.telemetry import Outage
from lockstep.slurm.hostlist import expand

OUTSTANDING = 1_000
"""Events read and not yet done with; more stay in the stream."""
SAVE_EVERY_S = 1.0

log = structlog.get_logger()


def reader_of(endpoint: str) -> str:
    """The name under which an endpoint's dead letters are kept and replayed."""
    return f"forward-{endpoint}"


class _Open(NamedTuple):
    """An event that is not done with."""

    item: Item
    since: float
    number: int


class Forwarder:
    """One endpoint for one term of leadership. Run `run` once."""

    def __init__(self, endpoint: ForwardSettings, ports: Ports, position: ForwardPosition | None) -> None:
        self._endpoint = endpoint
        self._ports = ports
        self._workers = frozenset(name for text in endpoint.workers for name in expand(text))
        self._dead = DeadLetters(ports.connection)
        self._position = position
        self._life = position.stream if position else ""
        self._seen = position.sequence if position else 0
        self._numbers = count()
        self._open: dict[int, _Open] = {}
        """By number, the oldest first."""
        self._lanes: dict[tuple[str, str], deque[_Open]] = {}
        self._room = asyncio.Semaphore(OUTSTANDING)
        self._random = Random()  # noqa: S311 - jitter
        self._log = log.bind(name=endpoint.name)
        self._outage = Outage(self._log, "Endpoint")

    async def run(self) -> None:
        """Until cancelled; an endpoint that says that it wants nothing any more is left in peace."""
        start = await self._start()
        try:
            async with Poster(self._endpoint) as poster, asyncio.TaskGroup() as tasks:
                tasks.create_task(self._save())
                tasks.create_task(self._answer_replays(poster))
                await self._read(start, poster, tasks)
        except* _SwitchedOff as off:
            self._log.error("Endpoint wants nothing any more; restart to try again", error=str(off.exceptions[0]))
        self._ports.health.end(reader_of(self._endpoint.name))
        await self._keep()
        await asyncio.Event().wait()

    async def _start(self) -> Start:
        """Behind the last event that was done with; the stream's first where the stream is another one by now."""
        state = await self._state()
        if self._position is None:
            self._seen = 0 if self._endpoint.since == "oldest" else state.last
        elif self._life != state.created:
            self._log.warning("The events were lost, posting begins with the oldest that there is", stream=EVENTS.name)
            self._seen = 0
        self._life = state.created
        await self._keep()
        return Start(sequence=self._seen + 1)

    async def _state(self) -> StreamState:
        while True:
            try:
                if state := await stream_state(self._ports.connection, EVENTS.name):
                    return state
            except Retry as e:
                self._log.debug("Events cannot be read", error=str(e))
            await asyncio.sleep(SAVE_EVERY_S)

    async def _read(self, start: Start, poster: Poster, tasks: asyncio.TaskGroup) -> None:
        reader = OrderedReader(self._ports.connection, EVENTS.name, EVENTS.subjects, start=start)
        async with aclosing(reader.items()) as items:  # type: ignore[type-var]
            async for item in items:
                match item:
                    case Received():
                        await self._take(item, poster, tasks)
                    case Missed():
                        many = item.last - item.first + 1
                        FORWARDED.labels(self._endpoint.name, "missed").inc(many)
                        self._log.warning("Events were dropped by the stream before they were posted", count=many)
                    case Reset():
                        self._open.clear()
                        self._seen = 0
                        self._life = (await self._state()).created
                    case CaughtUp():
                        pass

    async def _take(self, received: Received, poster: Poster, tasks: asyncio.TaskGroup) -> None:
        item = item_of(received)
        if item is None or not wants(self._endpoint, self._workers, item):
            self._seen = received.sequence
            return
        await self._room.acquire()
        opened = _Open(item, clock.monotonic(), next(self._numbers))
        self._open[opened.number] = opened
        self._seen = received.sequence
        if item.lane in self._lanes:
            self._lanes[item.lane].append(opened)
            return
        self._lanes[item.lane] = deque([opened])
        tasks.create_task(self._lane(item.lane, poster))

    async def _lane(self, key: tuple[str, str], poster: Poster) -> None:
        """What is about one worker, one after the other."""
        waiting = self._lanes[key]
        while waiting:
            opened = waiting[0]
            await self._deliver(opened, poster)
            waiting.popleft()
            self._open.pop(opened.number, None)
            self._room.release()
        del self._lanes[key]

    async def _deliver(self, opened: _Open, poster: Poster) -> None:
        attempt = 0
        while True:
            attempt += 1
            answer = await poster.post(opened.item)
            age_s = clock.monotonic() - opened.since
            told = verdict(answer.status, answer.headers, attempt, age_s, self._endpoint)
            match told:
                case Taken():
                    self._outage.up()
                    FORWARDED.labels(self._endpoint.name, "posted").inc()
                    return
                case Again():
                    self._outage.down(told.why)
                    FORWARDED.labels(self._endpoint.name, "failed").inc()
                    await asyncio.sleep(later(told, answer.headers, clock.now(), self._random))
                case Dead():
                    await self._bury(opened.item, told.why, attempt)
                    return
                case Off():
                    raise _SwitchedOff(told.why)

    async def _bury(self, item: Item, why: str, attempts: int) -> None:
        received, reader = item.received, reader_of(self._endpoint.name)
        while True:
            try:
                await self._dead.bury(
                    reader,
                    received.subject,
                    received.headers,
                    received.body,
                    why=why,
                    attempts=attempts,
                    origin=received.sequence,
                )
            except Retry as e:
                self._log.debug("Dead letter cannot be kept", error=str(e))
                await asyncio.sleep(SAVE_EVERY_S)
            else:
                break
        FORWARDED.labels(self._endpoint.name, "dead").inc()
        self._log.warning("Event became a dead letter", subject=received.subject, error=why, attempt=attempts)

    async def _answer_replays(self, poster: Poster) -> NoReturn:
        """A person sends dead letters again: one try each, and its outcome is the answer."""
        async with aclosing(self._dead.replays(reader_of(self._endpoint.name))) as replays:  # type: ignore[type-var]
            async for replay in replays:
                item = item_of(replay.received)
                if item is None:
                    await replay.answer("its subject is not one of an event")
                    continue
                answer = await poster.post(item)
                if 200 <= answer.status < 300:
                    FORWARDED.labels(self._endpoint.name, "posted").inc()
                    await replay.answer("ok")
                else:
                    await replay.answer(answer.words)
        raise Fatal("the replays ended")

    async def _save(self) -> NoReturn:
        while True:
            await asyncio.sleep(SAVE_EVERY_S)
            oldest = next(iter(self._open.values()), None)
            FORWARD_AGE.labels(self._endpoint.name).set(clock.monotonic() - oldest.since if oldest else 0)
            self._ports.health.beat(reader_of(self._endpoint.name))
            await self._keep()

    async def _keep(self) -> None:
        """Writes down behind which event to go on."""
        oldest = next(iter(self._open.values()), None)
        done = oldest.item.received.sequence - 1 if oldest else self._seen
        position = ForwardPosition(endpoint=self._endpoint.name, stream=self._life, sequence=done, read_at=clock.now())
        try:
            await self._ports.bus.fact(position)
        except Retry as e:
            self._log.debug("Position cannot be kept", error=str(e))


class _SwitchedOff(Exception):
    """The endpoint answered 410."""
