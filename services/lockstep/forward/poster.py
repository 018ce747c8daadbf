"""HTTP to one endpoint. Whatever goes wrong on the way is an answer too."""

import asyncio
import ssl
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import aiohttp

from lockstep.base import clock
from lockstep.base.text import one_line
from lockstep.forward.decide import headers_of, post_of, secret_of, signed
from lockstep.forward.model import Item, Post
from lockstep.runtime.settings import ForwardSettings

SIDE_BY_SIDE = 8
"""Posts at the same time."""
MAX_ANSWER = 4_096
"""Bytes of an answer that are read; nothing in them matters."""


class Answer(NamedTuple):
    """What an endpoint said; status 0: nothing, and `headers` has the reason under `error`."""

    status: int
    headers: Mapping[str, str]

    @property
    def words(self) -> str:
        """For people."""
        return f"HTTP {self.status}" if self.status else self.headers.get("error", "no answer")


class Poster:
    """The connections to one endpoint, as an async context."""

    def __init__(self, endpoint: ForwardSettings) -> None:
        self._endpoint = endpoint
        self._session: aiohttp.ClientSession | None = None
        self._posts = asyncio.Semaphore(SIDE_BY_SIDE)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def post(self, item: Item) -> Answer:
        """One try."""
        try:
            post = self._signed(item)
            session = self._opened()
        except (OSError, ValueError) as e:
            return _none(e)
        try:
            async with (
                self._posts,
                session.post(
                    self._endpoint.url, data=post.body, headers=post.headers, allow_redirects=False
                ) as response,
            ):
                await response.content.read(MAX_ANSWER)
                return Answer(response.status, response.headers)
        except (aiohttp.ClientError, TimeoutError, OSError) as e:
            return _none(e)

    def _signed(self, item: Item) -> Post:
        """The request as the files say it now."""
        post = post_of(self._endpoint, item)
        if self._endpoint.headers_file:
            extra = headers_of(_text(self._endpoint.headers_file, "headers_file"))
            post = post._replace(headers={**extra, **post.headers})
        if self._endpoint.secret_file:
            secret = secret_of(_text(self._endpoint.secret_file, "secret_file"))
            ident = item.received.headers.get("ce-id", item.received.subject)
            post = signed(post, ident, secret, int(clock.now().timestamp()))
        return post

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            tls: ssl.SSLContext | bool = True
            if self._endpoint.ca_file:
                tls = ssl.create_default_context(cafile=self._endpoint.ca_file)
            connector = aiohttp.TCPConnector(ssl=tls, limit=SIDE_BY_SIDE)
            timeout = aiohttp.ClientTimeout(total=self._endpoint.timeout_s)
            self._session = aiohttp.ClientSession(timeout=timeout, connector=connector)
        return self._session


def _text(path: str, setting: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as e:
        raise ValueError(f"{setting}: {e}") from e


def _none(error: Exception) -> Answer:
    return Answer(0, {"error": one_line(str(error) or type(error).__name__, limit=200)})
