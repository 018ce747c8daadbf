"""Takes messages from a work queue, each until it is handled; over restarts, lost streams and lost consumers.

A durable pull consumer with explicit acknowledgements. A message that fails comes again after a while, and the others
go on meanwhile. One that fails too often, or never can be handled, becomes a dead letter: first kept there, then
acknowledged. The server is given no limit of its own: past it a message would neither come again nor go away.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from itertools import count
from typing import Any, NamedTuple, NoReturn

import msgspec
import nats
import structlog
from nats.aio.msg import Msg

from lockstep.base.backoff import backoff
from lockstep.base.clock import from_epoch
from lockstep.base.errors import Reject, Retry
from lockstep.base.text import one_line
from lockstep.bus.connection import API, Connection
from lockstep.bus.dead import DeadLetters
from lockstep.bus.verdict import again_after

AGAIN_S = (1.0, 5.0, 30.0, 120.0)
"""Before the second try, the third and so on: a restart of an API server is waited for, a bug not tried for ever."""
WIDTH = 8
"""Messages that are handled at the same time."""
HANDLE_WITHIN_S = 10.0
"""For one try."""
ACK_MARGIN_S = 10.0
"""Beside that, for a word to NATS; then the server takes the reader for dead, and the message comes again."""
PULL_S = 10.0
"""So long one request for messages stands."""
SILENCE_S = 3.0
"""After so long without even a heartbeat everything is made anew."""
HEARTBEAT_S = 1.0
WARN_AT = 5
"""Failures in a row after which it is said that nothing can be taken."""
MAX_PENDING = 1_000
"""Messages that wait for their next try at the same time."""
_NS = 1_000_000_000
_GONE = "gone"

log = structlog.get_logger()


class Delivered(NamedTuple):
    """A message of the queue, and which try this is (1: the first)."""

    subject: str
    body: bytes
    headers: dict[str, str]
    sequence: int
    at: datetime | None
    attempt: int
    is_last: bool
    """It is not tried again: when it fails now, it becomes a dead letter."""


Handler = Callable[[Delivered], Awaitable[None]]


class Queue:
    """One reader of one stream of work. Run `run` once."""

    def __init__(
        self,
        connection: Connection,
        stream: str,
        reader: str,
        filters: Sequence[str],
        *,
        width: int = WIDTH,
        again_s: Sequence[float] = AGAIN_S,
        handle_within_s: float = HANDLE_WITHIN_S,
    ) -> None:
        """Opens nothing. `reader` names the consumer, and the dead letters."""
        self._connection = connection
        self._stream = stream
        self._reader = reader
        self._filters = list(filters)
        self._width = width
        self._again_s = list(again_s)
        self._within_s = handle_within_s
        self._dead = DeadLetters(connection)
        self._running = 0
        self._room = asyncio.Event()
        self._room.set()
        self.handled = 0
        self.failed = 0
        """Tries that failed."""
        self.buried = 0

    async def run(self, handle: Handler) -> NoReturn:
        """Hands over messages, for ever; whatever `handle` raises concerns its message only, but for `Fatal`.

        `Retry` and anything unforeseen mean another try, `Reject` none. When cancelled, what is being handled is
        offered again at once.
        """
        attempt = 0
        async with asyncio.TaskGroup() as group:
            while True:
                try:
                    async with self._inbox() as inbox:
                        while True:
                            await self._room.wait()
                            async for message in inbox.pull(self._width - self._running):
                                attempt = 0
                                self._begin()
                                group.create_task(self._one(handle, message))
                except (Retry, nats.errors.Error, OSError) as e:
                    log.debug("Consumer is made anew", stream=self._stream, error=str(e))
                    attempt += 1
                    if attempt == WARN_AT:
                        log.warning("Nothing can be taken from the queue", stream=self._stream, error=str(e))
                await asyncio.sleep(backoff(attempt - 1, first_s=0.1, limit_s=2.0))

    @asynccontextmanager
    async def _inbox(self) -> AsyncIterator["_Inbox"]:
        """Where the consumer's messages come in; the consumer is there, as it must be."""
        await self._connection.wait_up(3600)
        config = {
            "durable_name": self._reader,
            "ack_policy": "explicit",
            "ack_wait": int((self._within_s + ACK_MARGIN_S) * _NS),
            "max_deliver": -1,
            "max_ack_pending": MAX_PENDING,
            "filter_subjects": self._filters,
            "deliver_policy": "all",
        }
        body = {"stream_name": self._stream, "config": config, "action": ""}
        await self._connection.call(f"CONSUMER.CREATE.{self._stream}.{self._reader}", body)
        inbox = _Inbox(self._connection, f"{API}.CONSUMER.MSG.NEXT.{self._stream}.{self._reader}")
        self._connection.listeners.append(inbox.break_off)
        try:
            await inbox.open()
            yield inbox
        finally:
            self._connection.listeners.remove(inbox.break_off)
            await inbox.close()

    def _begin(self) -> None:
        self._running += 1
        if self._running >= self._width:
            self._room.clear()

    async def _one(self, handle: Handler, message: Msg) -> None:
        try:
            await self._try(handle, message, _delivered(message, len(self._again_s) + 1))
        except (Retry, nats.errors.Error, OSError) as e:
            log.debug("No word to NATS; the message comes again", subject=message.subject, error=str(e))
        except asyncio.CancelledError:
            with suppress(nats.errors.Error, OSError):
                await self._again(message, 0)
            raise
        finally:
            self._running -= 1
            self._room.set()

    async def _try(self, handle: Handler, message: Msg, delivered: Delivered) -> None:
        attempt = delivered.attempt
        if attempt > len(self._again_s) + 1:
            await self._bury(delivered, "it was tried so often, and none of the tries came to an end")
            await self._connection.client.publish(message.reply, b"+ACK")
            return
        try:
            async with asyncio.timeout(self._within_s):
                await handle(delivered)
        except Exception as error:  # noqa: BLE001  a message's fault must not stop the others; Fatal is raised below
            self.failed += 1
            after_s = again_after(error, attempt)
            if after_s is not None and not delivered.is_last:
                await self._again(message, max(after_s, self._again_s[attempt - 1]))
                return
            why = str(error) or type(error).__name__
            if not isinstance(error, Reject | Retry):
                why = f"{type(error).__name__}: {why}"
            await self._bury(delivered, why)
        else:
            self.handled += 1
        await self._connection.client.publish(message.reply, b"+ACK")

    async def _bury(self, delivered: Delivered, why: str) -> None:
        await self._dead.bury(
            self._reader,
            delivered.subject,
            delivered.headers,
            delivered.body,
            why=why,
            attempts=delivered.attempt,
            origin=delivered.sequence,
        )
        self.buried += 1
        shown = one_line(why, limit=200)
        log.warning("Message became a dead letter", subject=delivered.subject, attempt=delivered.attempt, error=shown)

    async def _again(self, message: Msg, after_s: float) -> None:
        word = b"-NAK " + msgspec.json.encode({"delay": int(after_s * _NS)}) if after_s else b"-NAK"
        await self._connection.client.publish(message.reply, word)


class _Inbox:
    """Asks the consumer for messages, and takes them in."""

    def __init__(self, connection: Connection, ask: str) -> None:
        self._client = connection.client
        self._ask = ask
        self._inbox = self._client.new_inbox()
        self._numbers = count(1)
        self._came: asyncio.Queue[Msg | str] = asyncio.Queue()
        self._subscription: Any = None

    async def open(self) -> None:
        """Subscribes."""
        self._subscription = await self._client.subscribe(f"{self._inbox}.*", cb=self._take)

    async def close(self) -> None:
        """Unsubscribes; nothing is left behind."""
        if self._subscription is not None:
            with suppress(nats.errors.Error, OSError):
                await self._subscription.unsubscribe()

    def break_off(self) -> None:
        """The connection was lost meanwhile: what was asked for is forgotten."""
        self._came.put_nowait(_GONE)

    async def pull(self, batch: int) -> AsyncIterator[Msg]:
        """Up to `batch` messages; ends when they have come, or after a while without more.

        Raises:
            Retry: there is no consumer any more, or nobody answers.
        """
        ours = f"{self._inbox}.{next(self._numbers)}"
        body = {"batch": batch, "expires": int(PULL_S * _NS), "idle_heartbeat": int(HEARTBEAT_S * _NS)}
        await self._client.publish(self._ask, msgspec.json.encode(body), reply=ours)
        while batch:
            try:
                async with asyncio.timeout(SILENCE_S):
                    message = await self._came.get()
            except TimeoutError as e:
                raise Retry(f"not even a heartbeat for {SILENCE_S:g} s") from e
            if isinstance(message, str):
                raise Retry("the connection was lost")
            if message.reply.startswith("$JS.ACK."):
                batch -= 1
                yield message
                continue
            status = (message.headers or {}).get("Status", "")
            if message.subject != ours or status == "100":
                continue
            if status in {"404", "408"}:
                return
            told = (message.headers or {}).get("Description", "")
            raise Retry(f"the server ended the request for messages: {status} {told}")

    async def _take(self, message: Msg) -> None:
        self._came.put_nowait(message)


def _delivered(message: Msg, tries: int) -> Delivered:
    """The message with its place, from its reply subject.

    JetStream writes `$JS.ACK.[<domain>.<account>.]<stream>.<consumer>.<delivered>.<sequence>.<count>.<nanoseconds>…`.
    """
    fields = message.reply.split(".")
    first = 4 if len(fields) == 9 else 6
    attempt, sequence, _, stamp = (int(field) for field in fields[first : first + 4])
    return Delivered(
        subject=message.subject,
        body=message.data,
        headers=message.headers or {},
        sequence=sequence,
        at=from_epoch(stamp / _NS),
        attempt=attempt,
        is_last=attempt >= tries,
    )
