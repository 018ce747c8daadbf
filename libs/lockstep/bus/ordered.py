"""Reads a stream in order, from where one wants, for ever; over restarts, gaps and lost streams.

A push consumer without acknowledgements whose loop is ours: every message carries the consumer's own count, so a gap
shows at once, and silence shows because the server sends a heartbeat when it has nothing to say.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
import nats
import structlog
from nats.aio.msg import Msg

from lockstep.base.backoff import backoff
from lockstep.base.clock import from_epoch
from lockstep.base.errors import Retry
from lockstep.bus.connection import API, Connection, NotAllowed
from lockstep.bus.streams import StreamState, is_loss, stream_state
from lockstep.contracts.subjects import EVENTS

HEARTBEAT_S = 1.0
SILENCE_S = 3.0
"""After so long without even a heartbeat the consumer is made anew."""
WAIT_S = 10.0
"""So long the connection is waited for at a time; between two waits it is told that this lives."""
_NS = 1_000_000_000

log = structlog.get_logger()


class Received(NamedTuple):
    """A message of the stream. `at` is when the stream took it."""

    subject: str
    body: bytes
    headers: dict[str, str]
    sequence: int
    at: datetime | None


class CaughtUp(msgspec.Struct, frozen=True):
    """What was in the stream at the start has been told, or what replaced it; from now on it is news."""


class Reset(msgspec.Struct, frozen=True):
    """The stream was lost. What was told before no longer counts; everything that it has now is told anew."""

    why: str


class Missed(msgspec.Struct, frozen=True):
    """The stream no longer has these sequences; they were never told."""

    first: int
    last: int


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """Where to start: at a sequence (1: the oldest), at a time, or (`new`) with what comes from now on.

    To go on where a reader stopped: the sequence after the last one that it is done with. What the stream no longer
    has of that is told as `Missed`; when it ends before that sequence it was lost, and `Reset` says so.
    """

    sequence: int = 1
    at: datetime | None = None
    new: bool = False


class OrderedReader:
    """One reading of one stream. Iterate over `items` once."""

    def __init__(
        self,
        connection: Connection,
        stream: str,
        filters: Sequence[str],
        *,
        start: Start | None = None,
        whole: bool = False,
        on_round: Callable[[], None] = lambda: None,
    ) -> None:
        """Opens nothing.

        Args:
            connection: where to.
            stream: its name.
            filters: the subjects that are told.
            start: where to begin.
            whole: what is told is a state, of which nothing may be missing: whatever was missed is a `Reset`.
            on_round: called several times a minute, and more often when there is something to read.
        """
        self._connection = connection
        self._stream = stream
        self._filters = list(filters)
        self._sees_all = stream == EVENTS.name and self._filters == EVENTS.subjects
        """No message is for others or superseded, so that a jump in their numbers is a loss. For other readings there
        is only what the server says of messages to come, and that may be of before a purge (2.15.1, seen)."""
        self._start = start or Start()
        self._whole = whole
        self._on_round = on_round
        self._anew = ""
        self._inbox: _Inbox | None = None
        self.last = 0
        """The sequence of the last message that was told."""
        self._state: StreamState | None = None
        self._caught_up = False
        self._end = 0
        """The stream's newest sequence when this consumer first seemed to have told all; 0: it has not seemed so."""
        self.restarts = 0
        """How often the consumer had to be made anew."""

    def read_anew(self, why: str) -> None:
        """What was told no longer counts; after a `Reset` everything is told again."""
        self._anew = why
        if self._inbox is not None:
            self._inbox.break_off()

    async def items(self) -> AsyncIterator[Received | CaughtUp | Reset | Missed]:
        """Messages in order, `CaughtUp` once after the start and after each `Reset`. Close it to end the consumer.

        Raises:
            NotAllowed: we may not read, and the connection does not insist.
        """
        attempt = 0
        while True:
            try:
                async with self._consumer() as (inbox, notes):
                    for note in notes:
                        yield note
                    async for message in self._follow(inbox):
                        attempt = 0
                        if isinstance(message, Received):
                            self.last = message.sequence
                        yield message
            except (Retry, nats.errors.Error, OSError) as e:
                if isinstance(e, NotAllowed) and not self._connection.insists:
                    raise
                log.debug("Consumer is made anew", stream=self._stream, error=str(e))
            self.restarts += 1
            await asyncio.sleep(backoff(attempt, first_s=0.1, limit_s=2.0))
            attempt += 1

    @asynccontextmanager
    async def _consumer(self) -> AsyncIterator[tuple["_Inbox", list[CaughtUp | Reset | Missed]]]:
        """A consumer that starts behind what was told last, and what is to be said before its messages."""
        self._on_round()
        await self._connection.wait_up(WAIT_S)
        state = await self._stands()
        notes = self._notes(state)
        self._state, self._end = state, 0
        if self._start.at is not None and len(self._filters) > 1:
            self._start = Start(sequence=await self._sequence_at(self._start.at))
        inbox = self._inbox = _Inbox(self._connection, state.last, self._on_round, counts=not self._whole)
        self._connection.listeners.append(inbox.break_off)
        try:
            name, pending = await inbox.open(self._stream, self._config())
            if not pending and not self._caught_up:
                self._caught_up = True
                notes.append(CaughtUp())
            try:
                yield inbox, notes
            finally:
                if self._connection.client.is_connected:
                    with suppress(nats.errors.Error, OSError):  # who may not delete it leaves it to end by itself
                        await self._connection.client.publish(f"{API}.CONSUMER.DELETE.{self._stream}.{name}")
        finally:
            self._connection.listeners.remove(inbox.break_off)
            await inbox.close()

    async def _stands(self) -> StreamState:
        state = await stream_state(self._connection, self._stream)
        if state is None:
            raise Retry(f"stream {self._stream} does not exist")
        return state

    def _notes(self, state: StreamState) -> list[CaughtUp | Reset | Missed]:
        """What is to be said of the stream before anything is read on."""
        due = self.last + 1 if self.last else self._start.sequence
        is_missing = due > 1 and state.first > due
        why = self._anew
        if (self._state is not None and is_loss(self._state, state)) or state.last < due - 1:
            why = f"stream {self._stream} was lost"
        elif is_missing and self._whole:
            why = f"stream {self._stream} lost messages"
        self._anew = ""
        if why:
            self.last, self._caught_up, self._start = 0, False, Start()
            return [Reset(why)]
        if not is_missing:
            return []
        self.last = state.first - 1
        return [Missed(due, self.last)]

    async def _follow(self, inbox: "_Inbox") -> AsyncIterator[Received | CaughtUp | Missed]:
        async for message, is_last in inbox.messages():
            if message is not None:
                jumps = bool(self.last) and message.sequence > self.last + 1
                if jumps and (inbox.take_missed() or self._sees_all):
                    yield Missed(self.last + 1, message.sequence - 1)
                yield message
            if is_last and not self._caught_up and await self._is_all(message):
                self._caught_up = True
                yield CaughtUp()

    async def _is_all(self, message: Received | None) -> bool:
        """Whether all of a state is told, where the server has nothing to send after this message (None: for a while).

        It counts a replaced message out before it counts in the one that replaces it, so that this one may be missing
        from its count (nats-server 2.15, `decStreamPending`); but not from the stream.
        """
        if not self._whole or message is None:
            return True
        if not self._end:
            self._end = (await self._stands()).last
        return message.sequence >= self._end

    async def _sequence_at(self, at: datetime) -> int:
        """The first sequence that the stream took at that time or later.

        A consumer with several filters cannot be given the time itself: nats-server then passes over messages at its
        start (nats-server issue 6076, seen with 2.15).
        """
        name = f"CONSUMER.CREATE.{self._stream}"
        config = {"ack_policy": "none", "mem_storage": True, "num_replicas": 1, "inactive_threshold": 5 * _NS}
        config |= {"deliver_policy": "by_start_time", "opt_start_time": at.isoformat()}
        answer = await self._connection.call(name, {"stream_name": self._stream, "config": config})
        with suppress(Retry):
            await self._connection.call(f"CONSUMER.DELETE.{self._stream}.{answer['name']}", timeout_s=1.0)
        return int(answer["delivered"]["stream_seq"]) + 1

    def _config(self) -> dict[str, Any]:
        config: dict[str, Any] = {
            "ack_policy": "none",
            "max_deliver": 1,
            "mem_storage": True,
            "num_replicas": 1,
            "flow_control": True,
            "idle_heartbeat": int(HEARTBEAT_S * _NS),
            "inactive_threshold": 30 * _NS,
            "filter_subjects": self._filters,
        }
        if self.last:
            return config | {"deliver_policy": "by_start_sequence", "opt_start_seq": self.last + 1}
        if self._start.new:
            return config | {"deliver_policy": "new"}
        if self._start.at is not None:
            return config | {"deliver_policy": "by_start_time", "opt_start_time": self._start.at.isoformat()}
        if self._start.sequence > 1:
            return config | {"deliver_policy": "by_start_sequence", "opt_start_seq": self._start.sequence}
        return config | {"deliver_policy": "all"}


class _Inbox:
    """What one consumer delivers, unpacked in order. Flow control is answered only when a message is taken out."""

    def __init__(self, connection: Connection, target: int, on_round: Callable[[], None], *, counts: bool) -> None:
        """`counts`: no message is superseded, so that what the server has for us only gets less by one at a time.

        Then `target`, the newest message at the start, is the last of what was there.
        """
        self._on_round = on_round
        self._counts = counts
        self._pending = 0
        self._missed = False
        self._client = connection.client
        self._connection = connection
        self._target = target
        self._queue: deque[Msg] = deque()
        self._arrived = asyncio.Event()
        self._broken = False
        self._count = 0
        self._subscription: Any = None

    async def open(self, stream: str, config: dict[str, Any]) -> tuple[str, int]:
        """Subscribes, makes the consumer; its name, and how many messages it has for us."""
        subject = self._client.new_inbox()
        self._subscription = await self._client.subscribe(
            subject, cb=self._take, pending_msgs_limit=0, pending_bytes_limit=0
        )
        body = {"stream_name": stream, "config": config | {"deliver_subject": subject}}
        answer = await self._connection.call(f"CONSUMER.CREATE.{stream}", body)
        self._pending = int(answer.get("num_pending", 0))
        return str(answer["name"]), self._pending

    async def close(self) -> None:
        """Unsubscribes; nothing is left behind."""
        if self._subscription is not None:
            with suppress(nats.errors.Error, OSError):
                await self._subscription.unsubscribe()

    def break_off(self) -> None:
        """The connection was lost meanwhile: the consumer may be gone."""
        self._broken = True
        self._arrived.set()

    async def _take(self, message: Msg) -> None:
        self._queue.append(message)
        self._arrived.set()

    async def messages(self) -> AsyncIterator[tuple[Received | None, bool]]:
        """Each message (None for a heartbeat), and whether nothing more is waiting.

        Raises:
            Retry: a gap, silence, or the server ended the consumer.
        """
        while True:
            self._on_round()
            while self._queue:
                message = self._queue.popleft()
                if not message.reply.startswith("$JS.ACK."):
                    yield None, await self._is_idle(message)
                    continue
                sequence, count, stamp, pending = _place(message.reply)
                self._count += 1
                if count != self._count:
                    raise Retry(f"message {self._count} of the consumer is missing; got {count}")
                self._missed |= self._counts and pending < self._pending - 1
                self._pending = pending
                at = from_epoch(stamp / _NS)
                received = Received(message.subject, message.data, message.headers or {}, sequence, at)
                yield received, pending == 0 or (self._counts and sequence >= self._target)
            if self._broken:
                raise Retry("the connection was lost")
            self._arrived.clear()
            try:
                async with asyncio.timeout(SILENCE_S):
                    await self._arrived.wait()
            except TimeoutError as e:
                raise Retry(f"not even a heartbeat for {SILENCE_S:g} s") from e

    def take_missed(self) -> bool:
        """Whether messages were removed before they came to us, since this was asked last.

        The server may say so with a message that it had taken out before: then the jump comes after it.
        """
        missed, self._missed = self._missed, False
        return missed

    async def _is_idle(self, message: Msg) -> bool:
        """Obeys a control message; whether it says that there is nothing more to deliver."""
        headers = message.headers or {}
        status = headers.get("Status", "")
        if status != "100":
            raise Retry(f"the server ended the consumer: {status} {headers.get('Description', '')}")
        if reply := message.reply or headers.get("Nats-Consumer-Stalled", ""):
            await self._client.publish(reply)
            return False
        last = int(headers.get("Nats-Last-Consumer", self._count))
        if last != self._count:
            raise Retry(f"{last - self._count} messages of the consumer are missing")
        return True


def _place(reply: str) -> tuple[int, int, int, int]:
    """Stream sequence, consumer sequence, nanoseconds and messages to come, from a message's reply subject.

    JetStream writes `$JS.ACK.[<domain>.<account>.]<stream>.<consumer>.<delivered>.` before these four.
    """
    fields = reply.split(".")
    first = 5 if len(fields) == 9 else 7
    sequence, count, stamp, pending = fields[first : first + 4]
    return int(sequence), int(count), int(stamp), int(pending)
