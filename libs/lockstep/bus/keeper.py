"""Watches the streams while a process runs: has a lost one made anew, finds what was lost, and says so once.

Several processes watch the same streams. What one of them finds it writes into the fact `stream.health` of that stream,
only over what it had read there before; so one of them is first, and the others see that it is said. Each publishes the
events that follow from the fact, under ids made from it: NATS stores each once, also when the first process died.
"""

import asyncio
from base64 import b64decode
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import NamedTuple, NoReturn

import structlog

from lockstep.base import clock
from lockstep.base.errors import Retry
from lockstep.bus.acks import Acks
from lockstep.bus.connection import NO_MESSAGE, STREAM_NOT_FOUND, ApiError, Connection
from lockstep.bus.envelope import EXPECTED_SEQUENCE, pack_fact, unpack_fact
from lockstep.bus.losses import agreed, happened, is_later, loss, used
from lockstep.bus.streams import StreamState, ensure, stream_state, there
from lockstep.contracts.events import Event, GapFound, StreamFilling
from lockstep.contracts.facts import StreamHealth
from lockstep.contracts.subjects import FACTS, STREAMS, Stream, fact_subject

CHECK_EVERY_S = 2.0
AGAIN_AFTER_S = 0.5
STUCK_AFTER_S = 5.0
"""After so long without a stored message, while NATS answers, that is said."""
RECENT = timedelta(seconds=60)
"""What another process said longer ago it has told as well. Shorter than the streams' window for duplicates."""
_WRITE_WITHIN_S = 2.0

log = structlog.get_logger()


class Claim(NamedTuple):
    """The newest message that a publisher knows to be in the stream of facts."""

    subject: str
    sequence: int
    stands: bool
    """It does not go away by itself."""


class Facts(NamedTuple):
    """What a process knows of the facts, asked for right before each look."""

    claims: Sequence[Claim] = ()
    """Of each of its publishers."""
    standing: int = 0
    """How many facts stand, as the stream itself has told."""
    stuck_for_s: float = 0.0
    """For how long nothing that it published was stored, though NATS was there."""


class _Said(NamedTuple):
    """What is said of a stream, and (0: nothing) the sequence at which."""

    sequence: int
    health: StreamHealth


class StreamKeeper:
    """Looks at all streams every few seconds. `on_gap` is told a stream's name, once per loss, before anything else."""

    def __init__(
        self,
        connection: Connection,
        on_gap: Callable[[str], None],
        publish: Callable[[Iterable[Event]], Awaitable[None]],
        *,
        streams: Sequence[Stream] = STREAMS,
        makes: bool = True,
        facts: Callable[[], Facts] = Facts,
        on_round: Callable[[], None] = lambda: None,
        on_stuck: Callable[[], None] = lambda: None,
        source: str = "lockstep",
    ) -> None:
        """Opens nothing.

        Args:
            connection: where to.
            on_gap: told the name of a stream that lost messages.
            publish: publishes events.
            streams: as they must be.
            makes: whether a lost one is made anew here; who does not waits for whoever does.
            facts: what the process knows of the facts.
            on_round: told each time that this lives.
            on_stuck: told again and again while NATS answers and stores nothing.
            source: who we are, for `ce-source`.
        """
        self._connection = connection
        self._acks = Acks(connection.client)
        self._on_gap = on_gap
        self._publish = publish
        self._streams = streams
        self._make = ensure if makes else there
        self._facts = facts
        self._on_round = on_round
        self._on_stuck = on_stuck
        self._source = source
        self.seen: dict[str, StreamState] = {}
        """Each stream as it stood at the last look."""
        self._known: dict[str, _Said] = {}
        self._suspicions: dict[str, str] = {}
        self._events: list[Event] = []
        self._stuck_s = 0.0
        self._wake = asyncio.Event()
        connection.listeners.append(self.look)

    @property
    def used(self) -> Mapping[str, float]:
        """The share of its limit that each stream takes."""
        return {name: used(state) for name, state in self.seen.items()}

    def look(self, lost: str = "") -> None:
        """Look now: somebody met an error that may mean a lost stream, or knows (`lost`) that facts were lost."""
        if lost:
            self._suspicions.setdefault(FACTS.name, lost)
        self._wake.set()

    async def run(self) -> NoReturn:
        """Looks every few seconds, for ever.

        Raises:
            Fatal: a stream cannot be what it must be.
        """
        while True:
            self._on_round()
            self._wake.clear()
            pause_s = CHECK_EVERY_S
            try:
                await self.check()
            except Retry as e:
                log.debug("Streams cannot be checked", error=str(e))
                pause_s = AGAIN_AFTER_S
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._wake.wait()
                    await asyncio.sleep(0.1)

    async def check(self) -> None:
        """Looks once.

        Raises:
            Retry: NATS does not answer, or another process says something in this moment; what was found is kept.
        """
        facts = self._facts()
        self._note_stuck(facts.stuck_for_s)
        for stream in self._streams:
            await self._look_at(stream, facts)
        if self._stuck_s and not facts.stuck_for_s:
            log.info("NATS stores messages again", after_s=round(self._stuck_s))
            self._stuck_s = 0.0
        if self._events:
            await self._publish(self._events)
            self._events = []

    async def _look_at(self, stream: Stream, facts: Facts) -> None:
        name, is_facts = stream.name, stream.name == FACTS.name
        if name not in self._known:
            self._known[name] = await self._said(name) or _Said(0, StreamHealth(stream=name))
        before = self.seen.get(name)
        state = self.seen[name] = await self._state(stream)
        standing = facts.standing if is_facts else 0
        lost = loss(stream, before or state, state, clock.now(), standing=standing)
        if is_facts:
            lost = lost or await self._broken_claim(facts.claims)
        if lost:
            self._suspicions.setdefault(name, lost)
        stuck_for_s = self._stuck_s if is_facts and not facts.stuck_for_s else 0.0
        await self._settle(stream, state, stuck_for_s)
        self._suspicions.pop(name, None)

    async def _state(self, stream: Stream) -> StreamState:
        """The stream as it stands; made anew if there is none."""
        state = await stream_state(self._connection, stream.name)
        if state is None:
            await self._make(self._connection, [stream])
            state = await stream_state(self._connection, stream.name)
        if state is None:
            raise Retry(f"stream {stream.name} does not stay")
        return state

    async def _broken_claim(self, claims: Sequence[Claim]) -> str:
        for subject, sequence, stands in claims:
            there = await self._last(subject)
            if (there is None and stands) or (there is not None and there[0] < sequence):
                return f"message {sequence}, which was acknowledged, is missing"
        return ""

    async def _settle(self, stream: Stream, state: StreamState, stuck_for_s: float) -> None:
        """Sees to it that what is said of the stream is true, and tells what is new.

        A loss is looked for from the state that was seen after the newest loss was said, never from an older one: that
        would show the same loss again.
        """
        name, is_facts = stream.name, stream.name == FACTS.name
        known = self._known[name]
        lost = self._suspicions.get(name, "")
        if not is_facts and agreed(known.health, None, state, clock.now(), lost=lost) == known.health:
            return
        there = await self._said(name)
        if is_facts and known.sequence and (there is None or there.sequence < known.sequence):
            lost = lost or "what was said of the stream itself is missing"
        if lost or (there and is_later(there.health, known.health)):
            state = self.seen[name] = await self._state(stream)
        found = there.health if there else None
        wanted = agreed(known.health, found, state, clock.now(), lost=lost, stuck_for_s=stuck_for_s)
        if wanted != found and (is_facts or wanted != StreamHealth(stream=name)):
            there = await self._say(wanted, there.sequence if there else 0)
            self._adopt(known, there, ours=True)
        elif there is not None:
            self._adopt(known, there, ours=False)

    def _adopt(self, known: _Said, there: _Said, *, ours: bool) -> None:
        """Takes over what is said now; news are told, though not what another process told long ago."""
        self._known[there.health.stream] = there
        for event in happened(known.health, there.health):
            if isinstance(event, GapFound):
                self._on_gap(there.health.stream)
            if ours or clock.now() - event.at < RECENT:
                self._events.append(event)
                _warn_of(event)

    async def _said(self, name: str) -> _Said | None:
        found = await self._last(fact_subject(StreamHealth(stream=name)))
        if found is None:
            return None
        fact = unpack_fact(found[1])
        return _Said(found[0], fact if isinstance(fact, StreamHealth) else StreamHealth(stream=name))

    async def _say(self, health: StreamHealth, expected: int) -> _Said:
        """Writes, unless somebody has written since we read.

        Raises:
            Retry: somebody has, or NATS does not answer.
        """
        message = pack_fact(health, self._source)
        message.headers[EXPECTED_SEQUENCE] = str(expected)
        [answer] = await self._acks.send([message], _WRITE_WITHIN_S)
        if isinstance(answer, Retry):
            raise answer
        return _Said(answer, health)

    async def _last(self, subject: str) -> tuple[int, bytes] | None:
        """Sequence and body of the newest fact with that subject."""
        try:
            answer = await self._connection.call(f"STREAM.MSG.GET.{FACTS.name}", {"last_by_subj": subject})
        except ApiError as e:
            if e.err_code not in {NO_MESSAGE, STREAM_NOT_FOUND}:
                raise
            return None
        return int(answer["message"]["seq"]), b64decode(answer["message"].get("data", ""))

    def _note_stuck(self, for_s: float) -> None:
        """The first of an outage's two lines. Its length is kept until its end is said.

        A nats-server that once found its disk full stores nothing more in that stream until it is restarted (seen with
        2.15; it goes on answering everything else).
        """
        if for_s >= STUCK_AFTER_S:
            if not self._stuck_s:
                log.warning(
                    "NATS stores nothing", error="it answers, and acknowledges no message", after_s=round(for_s)
                )
            self._stuck_s = for_s
            self._on_stuck()


def _warn_of(event: Event) -> None:
    match event:
        case GapFound():
            log.warning("Messages were lost", stream=event.where, reason=event.detail)
        case StreamFilling():
            told = f"{event.used_bytes} of {event.limit_bytes} bytes"
            log.warning("Stream is filling", stream=event.stream, reason=told)
