"""Requests to the API server: one shared session, bounded, paced, with credentials that may change at any time.

Answers are bytes, failures are `errors.KubeError`. Nothing is tried again here but a 401, once, with a fresh token.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self

import aiohttp
import msgspec

from lockstep.base.calls import Calling, Request, untold
from lockstep.base.errors import BadInput
from lockstep.base.text import one_line
from lockstep.kube import keys, wire
from lockstep.kube.access import Access, read_access
from lockstep.kube.errors import (
    AlreadyExists,
    Busy,
    Conflict,
    Denied,
    Expired,
    Invalid,
    KubeError,
    NotFound,
    Unreachable,
)
from lockstep.kube.resources import route_of
from lockstep.kube.session import Session
from lockstep.kube.settings import KubeClientSettings

_status = msgspec.json.Decoder(wire.Status)


CLOSING_S = 0.05
"""For what was cut to be gone before the loop may end."""


class Counters(msgspec.Struct):
    """What happened so far, for metrics."""

    requests: int = 0
    unauthorized: int = 0
    """Answers 401, also those that a fresh token healed."""
    connects: int = 0
    """Watches that were opened."""
    lists: int = 0
    """Whole lists that a watch asked for."""
    ignored: int = 0
    """Objects and lines of a watch that could not be read."""


class _Call(msgspec.Struct, frozen=True):
    method: str
    path: str
    query: Mapping[str, str] | None
    body: Any
    content_type: str
    limits: aiohttp.ClientTimeout


class Transport:
    """The way to one API server. An async context manager: all connections are closed at its end."""

    def __init__(self, settings: KubeClientSettings, calling: Calling = untold) -> None:
        """`calling` is around each request until its head is there; it gives further headers (the trace)."""
        self.settings = settings
        self._calling = calling
        self.counters = Counters()
        self._open: tuple[Session, Access] | None = None
        self._read_at = 0.0
        self._reading = asyncio.Lock()
        self._slots = asyncio.Semaphore(settings.concurrency)
        self._paid_until = 0.0

    async def __aenter__(self) -> Self:
        """Read the configuration; does not connect yet.

        Raises:
            BadInput: there is no usable configuration.
        """
        await self._connection()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Close all connections; TLS needs a moment for it."""
        if self._open is not None:
            await self._open[0].close()
            await asyncio.sleep(CLOSING_S)

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
    ) -> bytes:
        """The body of the answer.

        Raises:
            KubeError: the class says what to do.
        """
        timeout = aiohttp.ClientTimeout(total=self.settings.timeout_s, sock_connect=self.settings.connect_s)
        call = _Call(method, path, query, body, content_type, timeout)
        async with self._slots:
            await self._pace()
            self.counters.requests += 1
            async with self._opened(call) as answer:
                try:
                    data: bytes = await answer.read()
                except (aiohttp.ClientError, TimeoutError, OSError) as e:
                    raise Unreachable(f"{method} {path}: {_text(e)}") from e
        if answer.status >= 400:
            raise failure(f"{method} {path}", answer.status, data, answer.headers.get("Retry-After", ""))
        return data

    @asynccontextmanager
    async def stream(self, path: str, *, query: Mapping[str, str]) -> AsyncIterator[aiohttp.StreamReader]:
        """A GET whose answer is read bit by bit, without a time limit of its own.

        Raises:
            KubeError: it did not open.
        """
        timeout = aiohttp.ClientTimeout(sock_connect=self.settings.connect_s)
        opening = asyncio.timeout(self.settings.timeout_s)
        try:
            async with opening, self._opened(_Call("GET", path, query, None, "application/json", timeout)) as answer:
                if answer.status >= 400:
                    retry_after = answer.headers.get("Retry-After", "")
                    raise failure(f"GET {path}", answer.status, await answer.read(), retry_after)
                self.counters.connects += 1
                opening.reschedule(None)
                try:
                    yield answer.content
                finally:
                    _cut(answer)
        except TimeoutError as e:
            if not opening.expired():
                raise
            raise Unreachable(f"GET {path}: no answer in {self.settings.timeout_s:g} s") from e

    @asynccontextmanager
    async def _opened(self, call: _Call) -> AsyncIterator[aiohttp.ClientResponse]:
        """The answer's head; after a 401 that of a second try."""
        answer, access = await self._send(call, refused=None)
        if answer.status == 401:
            self.counters.unauthorized += 1
            answer.release()
            answer, _ = await self._send(call, refused=access)
        async with answer:
            yield answer

    async def _send(self, call: _Call, *, refused: Access | None) -> tuple[aiohttp.ClientResponse, Access]:
        session, access = await self._connection(refused)
        headers = {"Content-Type": call.content_type, "Accept": "application/json", "User-Agent": keys.FIELD_MANAGER}
        if access.authorization:
            headers["Authorization"] = access.authorization
        with self._calling(Request(call.method, session.host, call.path, route_of(call.path))) as told:
            try:
                answer = await session.request(
                    call.method,
                    call.path,
                    query=call.query,
                    headers={**told.headers, **headers},
                    body=call.body,
                    limits=call.limits,
                )
            except (aiohttp.ClientError, TimeoutError, OSError) as e:
                raise Unreachable(f"{call.method} {call.path}: {_text(e)}") from e
            told.answered(answer.status)
        return answer, access

    async def _connection(self, refused: Access | None = None) -> tuple[Session, Access]:
        """The session and the credentials, read anew when they are old or were `refused`."""
        async with self._reading:
            now, known = asyncio.get_running_loop().time(), self._open
            if known and known[1] is not refused and not self._is_old(known[1], now):
                return known
            try:
                access = await read_access(self.settings)
            except BadInput as e:
                if known is None:
                    raise
                if known[1] is refused:
                    raise Unreachable(str(e)) from e
                return known
            self._read_at = now
            if known and known[1].server == access.server:
                self._open = known[0], access
            else:
                self._open = Session(access.server, connections=self.settings.concurrency + 64), access
                if known:
                    await known[0].close()
            return self._open

    def _is_old(self, access: Access, now: float) -> bool:
        return access.rereadable and now - self._read_at >= self.settings.reread_s

    async def _pace(self) -> None:
        """Wait until one more request fits `qps` and `burst`."""
        now = asyncio.get_running_loop().time()
        qps = self.settings.qps
        self._paid_until = max(self._paid_until, now - self.settings.burst / qps) + 1 / qps
        if self._paid_until > now:
            await asyncio.sleep(self._paid_until - now)


def failure(what: str, code: int, body: bytes, retry_after: str = "") -> KubeError:
    """The error that an answer with this HTTP status (or a Status object's code) means."""
    try:
        status = _status.decode(body)
    except msgspec.DecodeError:
        status = wire.Status(message=body[:300].decode(errors="replace"))
    details = status.details or wire.Details()
    after_s = float(retry_after) if retry_after.isdecimal() else float(details.retry_after_seconds)
    text = one_line(f"{what}: {code} {status.message or status.reason}", limit=600)
    match code:
        case 401 | 403:
            return Denied(text)
        case 404:
            return NotFound(text)
        case 409:
            return AlreadyExists(text) if status.reason == "AlreadyExists" else Conflict(text, after_s=0)
        case 410:
            return Expired(text, after_s=0)
        case 429:
            return Busy(text, after_s=after_s or 1.0)
        case 422 if any(c.field == "metadata.uid" for c in details.causes):
            return Conflict(text, after_s=0)
        case _ if 400 <= code < 500:
            return Invalid(text)
        case _:
            return Unreachable(text, after_s=after_s or None)


def _cut(answer: aiohttp.ClientResponse) -> None:
    """End a connection whose answer is not read to its end, without waiting for the other side."""
    connection = answer.connection
    if connection is not None and connection.transport is not None:
        connection.transport.abort()


def _text(e: BaseException) -> str:
    return one_line(f"{type(e).__name__} {e}".strip(), limit=300)
