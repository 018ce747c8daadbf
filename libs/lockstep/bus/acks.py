"""Publishes to a stream without waiting, and gathers the stream's answers."""

import asyncio
from itertools import count

import msgspec
import nats
from nats.aio.client import Client
from nats.aio.msg import Msg

from lockstep.base.errors import Retry
from lockstep.bus.connection import ApiError, not_swallowed
from lockstep.bus.envelope import Message

BREATH = 50
"""After so many messages others may go on: a thousand in one go would keep the loop for a tenth of a second."""

Answer = int | Retry
"""The sequence under which the stream has the message, or why it has not (or may not have)."""


class _Error(msgspec.Struct):
    code: int = 0
    err_code: int = 0
    description: str = ""


class _PubAck(msgspec.Struct):
    seq: int = 0
    error: _Error | None = None


_decode = msgspec.json.Decoder(_PubAck).decode


class Acks:
    """One inbox for all answers. Knows which message an answer is for by the last token of its subject."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._inbox = client.new_inbox()
        self._tokens = count()
        self._waiting: dict[str, asyncio.Future[Answer]] = {}
        self._subscribed = False

    async def send(self, messages: list[Message], within_s: float) -> list[Answer]:
        """Sends all of them at once; the answer to each, in their order."""
        answers: list[asyncio.Future[Answer]] = []
        tokens: list[str] = []
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(within_s):
                with not_swallowed():
                    await self._subscribe()
                    for number, (subject, headers, body) in enumerate(messages, 1):
                        token = str(next(self._tokens))
                        tokens.append(token)
                        answers.append(loop.create_future())
                        self._waiting[token] = answers[-1]
                        await self._client.publish(subject, body, reply=f"{self._inbox}.{token}", headers=headers)
                        if number % BREATH == 0:
                            await asyncio.sleep(0)
                    await asyncio.wait(answers)
        except (TimeoutError, nats.errors.Error, OSError):
            pass
        finally:
            for token in tokens:
                self._waiting.pop(token, None)
        told = [a.result() if a.done() else Retry("NATS did not acknowledge in time") for a in answers]
        return told + [Retry("not sent")] * (len(messages) - len(told))

    async def _subscribe(self) -> None:
        if not self._subscribed:
            self._subscribed = True
            await self._client.subscribe(f"{self._inbox}.*", cb=self._take)

    async def _take(self, message: Msg) -> None:
        answer = self._waiting.get(message.subject.rpartition(".")[2])
        if answer is not None and not answer.done():
            answer.set_result(_read(message))


def _read(message: Msg) -> Answer:
    if message.headers and message.headers.get("Status") == "503":
        return Retry("there is no stream for it")
    try:
        ack = _decode(message.data)
    except msgspec.MsgspecError:
        return Retry("NATS answered something else than an acknowledgement")
    if ack.error is not None:
        return ApiError(ack.error.code, ack.error.err_code, ack.error.description)
    return ack.seq
