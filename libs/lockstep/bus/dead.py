"""Dead letters: messages that a reader could not handle, kept whole, so that a person can look and send them again."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from datetime import datetime
from typing import NamedTuple

import nats
from nats.aio.msg import Msg

from lockstep.base.clock import now
from lockstep.base.errors import Reject, Retry
from lockstep.base.text import one_line
from lockstep.bus.acks import Acks
from lockstep.bus.connection import Connection, not_swallowed
from lockstep.bus.envelope import MSG_ID, Message
from lockstep.bus.ordered import CaughtUp, OrderedReader, Received
from lockstep.contracts.subjects import DEAD, REPLAY_OF, ROOT, dead_subject, name_of, replay_subject

PREFIX = "lockstep-dead-"
"""Of the headers that a letter has beside those of the message."""
REPLAYED = "lockstep-replayed"
"""Header of a message that was a dead letter: its sequence among them."""
MAX_WHY = 300
MAX_REPLAYS = 64
"""That wait for one reader; whoever asks for more waits too."""
MAX_HEADER = 1024
SPARE = 8 * 1024
"""Bytes of a message that are left for the letter's own headers."""
MAX_LISTED = 10_000
WITHIN_S = 5.0
POST_WITHIN_S = 30.0
"""For a reader without a stream of its own to do again what it could not do."""


class Letter(NamedTuple):
    """A dead letter."""

    sequence: int
    """In the stream of dead letters."""
    at: datetime | None
    """When it was set aside."""
    reader: str
    subject: str
    """The message's own."""
    headers: dict[str, str]
    """The message's own."""
    body: bytes
    why: str
    attempts: int
    origin: int
    """The message's sequence in the stream that it was read from."""
    cut_from: int
    """The length of a body that was too long to be kept whole; 0: it is whole."""


def letter_of(received: Received) -> Letter:
    """Reads a message of the stream of dead letters; what is missing is empty."""
    reader, _, subject = received.subject.removeprefix(f"{ROOT}.dead.").partition(".")
    ours = {k.lower().removeprefix(PREFIX): v for k, v in received.headers.items() if k.lower().startswith(PREFIX)}
    headers = {k: v for k, v in received.headers.items() if not _is_ours(k)}
    if "msg-id" in ours:
        headers[MSG_ID] = ours["msg-id"]
    return Letter(
        sequence=received.sequence,
        at=_moment(ours.get("at", "")) or received.at,
        reader=name_of(reader),
        subject=subject,
        headers=headers,
        body=received.body,
        why=one_line(ours.get("why", ""), limit=MAX_WHY),
        attempts=_number(ours.get("attempts", "")),
        origin=_number(ours.get("sequence", "")),
        cut_from=_number(ours.get("cut-from", "")),
    )


def pack_letter(
    reader: str,
    subject: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    why: str,
    attempts: int,
    origin: int,
    room: int,
) -> Message:
    """The letter for a message, at most `room` bytes long.

    Headers that a NATS server obeys do not go along: they were meant for the message's own stream.
    """
    kept = {k: v for k, v in headers.items() if not _is_ours(k) and len(k) + len(v) <= MAX_HEADER}
    while sum(len(k) + len(v) + 4 for k, v in kept.items()) > room - SPARE:
        kept.popitem()
    rest = max(room - SPARE - sum(len(k) + len(v) + 4 for k, v in kept.items()), 0)
    own = {
        "why": one_line(why, limit=MAX_WHY),
        "attempts": str(attempts),
        "at": now().isoformat(),
        "sequence": str(origin),
        **({"msg-id": headers[MSG_ID]} if len(headers.get(MSG_ID, "")) in range(1, MAX_HEADER) else {}),
        **({"cut-from": str(len(body))} if len(body) > rest else {}),
    }
    marks = {f"{PREFIX}{key}": _ascii(value) for key, value in own.items()}
    return Message(
        dead_subject(reader, subject), kept | marks | {MSG_ID: f"dead/{reader}/{subject}/{origin}"}, body[:rest]
    )


class Replay(NamedTuple):
    """A dead letter that a reader without a stream of its own is asked to handle again."""

    received: Received
    """The message as it was; it has no sequence."""
    answer: Callable[[str], Awaitable[None]]
    """To be told `ok`, or why not."""


class DeadLetters:
    """The stream of dead letters."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._acks = Acks(connection.client)

    async def bury(
        self,
        reader: str,
        subject: str,
        headers: Mapping[str, str],
        body: bytes,
        *,
        why: str,
        attempts: int,
        origin: int = 0,
    ) -> None:
        """Keeps a message; returns when the stream has it. The same `origin` twice in a row is kept once.

        Raises:
            Retry: the stream does not take it now.
        """
        room = self._connection.client.max_payload
        letter = pack_letter(reader, subject, headers, body, why=why, attempts=attempts, origin=origin, room=room)
        await self._store(letter)

    async def all(self) -> list[Letter]:
        """The newest letters, the oldest first, without their bodies.

        Raises:
            Retry: the stream cannot be read.
        """
        found: deque[Letter] = deque(maxlen=MAX_LISTED)
        async with aclosing(OrderedReader(self._connection, DEAD.name, DEAD.subjects).items()) as items:  # type: ignore[type-var]
            async for item in items:
                if isinstance(item, Received):
                    found.append(letter_of(item._replace(body=b"")))
                elif isinstance(item, CaughtUp):
                    break
        return list(found)

    async def get(self, sequence: int) -> Letter | None:
        """One letter, or None.

        Raises:
            Retry: no answer.
        """
        try:
            with not_swallowed():
                raw = await self._connection.client.jetstream().get_msg(DEAD.name, sequence)
        except nats.js.errors.NotFoundError:
            return None
        except (TimeoutError, nats.errors.Error, OSError) as e:
            raise Retry(f"dead letters cannot be read: {one_line(str(e), limit=200)}") from e
        return letter_of(Received(raw.subject or "", raw.data or b"", raw.headers or {}, raw.seq or 0, None))

    async def replay(self, letter: Letter) -> None:
        """Sends a letter's message again, and removes the letter when that has been taken.

        A reader with a stream of its own finds it there; any other (`forward-…`) is asked to handle it, and must be
        there to say that it has.

        Raises:
            Retry: nobody took it; the letter stays.
            Reject: the reader could not handle it again, or its body was cut, or the letter is gone.
        """
        whole = await self.get(letter.sequence)
        if whole is None:
            raise Reject("it is no longer there")
        letter = whole
        if letter.cut_from:
            raise Reject(f"its body of {letter.cut_from} bytes was too long to be kept whole")
        if letter.reader.startswith("forward-"):
            await self._post(letter)
        else:
            mark = f"{letter.headers.get(MSG_ID, letter.subject)}/replay-{letter.sequence}-{now().timestamp():.3f}"
            headers = letter.headers | {MSG_ID: mark, REPLAYED: str(letter.sequence)}
            await self._store(Message(letter.subject, headers, letter.body))
        await self._connection.call(f"STREAM.MSG.DELETE.{DEAD.name}", {"seq": letter.sequence})

    async def replays(self, reader: str) -> AsyncIterator[Replay]:
        """What a reader is asked to handle again, for ever. Each is to be answered."""
        asked: asyncio.Queue[Msg] = asyncio.Queue(MAX_REPLAYS)
        subscription = await self._connection.client.subscribe(replay_subject(reader), cb=asked.put)
        try:
            while True:
                message = await asked.get()
                headers = dict(message.headers or {})
                subject = headers.pop(REPLAY_OF, "")

                async def answer(text: str, message: Msg = message) -> None:
                    with suppress(nats.errors.Error, OSError):
                        await message.respond(one_line(text, limit=MAX_WHY).encode())

                yield Replay(Received(subject, message.data, headers, 0, None), answer)
        finally:
            with suppress(nats.errors.Error, OSError):
                await subscription.unsubscribe()

    async def _post(self, letter: Letter) -> None:
        headers = letter.headers | {REPLAY_OF: letter.subject, REPLAYED: str(letter.sequence)}
        subject = replay_subject(letter.reader)
        try:
            with not_swallowed():
                answer = await self._connection.client.request(
                    subject, letter.body, timeout=POST_WITHIN_S, headers=headers
                )
        except nats.errors.NoRespondersError as e:
            raise Retry(
                f"nobody answers for {letter.reader}: does the service that forwards run, with it in its settings?"
            ) from e
        except (TimeoutError, nats.errors.Error, OSError) as e:
            raise Retry(f"{letter.reader} gave no answer: {one_line(str(e), limit=200)}") from e
        if answer.data != b"ok":
            raise Reject(one_line(answer.data.decode(errors="replace"), limit=MAX_WHY) or "it said nothing")

    async def _store(self, message: Message) -> None:
        [answer] = await self._acks.send([message], WITHIN_S)
        if isinstance(answer, Retry):
            raise answer


def _is_ours(header: str) -> bool:
    return header.lower().startswith((PREFIX, "nats-"))


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0


def _moment(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _ascii(text: str) -> str:
    """Header values are not for every script; what is no ASCII is shown as Python writes it."""
    return text.encode("ascii", "backslashreplace").decode()
