"""HTTP to one slurmrestd: connections, time limits, and who asks. Knows nothing of Slurm's JSON."""

import ssl
from collections.abc import Callable, Mapping
from urllib.parse import quote

import aiohttp
from yarl import URL

from lockstep.base import clock
from lockstep.base.calls import Calling, Request, untold
from lockstep.slurm.answers import Answer
from lockstep.slurm.errors import Unreachable
from lockstep.slurm.tokens import Tokens

OnCall = Callable[[str, str, float, bool], None]
"""`on_call(method, route, seconds, answered)` after each request; the route has names left out: `node/{name}`."""

_UNIX = "unix://"


class Transport:
    """Sends one request at a time to each of a few connections, and never the same request twice."""

    def __init__(
        self,
        url: str,
        tokens: Tokens,
        *,
        total_s: float = 10.0,
        connect_s: float = 2.0,
        connections: int = 8,
        tls: ssl.SSLContext | None = None,
        on_call: OnCall | None = None,
        calling: Calling = untold,
    ) -> None:
        """Opens nothing yet.

        Args:
            url: `http://host:port`, `https://host:port` or `unix:///path/of/socket`.
            tokens: who asks.
            total_s: for a whole answer, waiting for a free connection included.
            connect_s: for opening a connection.
            connections: at most so many at once; slurmctld defers answers when too many ask.
            tls: how an https server is checked, where the system's own way is not meant.
            on_call: told of each request.
            calling: around each request; gives further headers (the trace it belongs to).
        """
        self._socket = url.removeprefix(_UNIX) if url.startswith(_UNIX) else ""
        self._url = "http://localhost" if self._socket else url.rstrip("/")
        self._tokens = tokens
        self._timeout = aiohttp.ClientTimeout(total=total_s, sock_connect=connect_s)
        self._connections = connections
        self._tls = tls
        self._on_call = on_call
        self._calling = calling
        self._session: aiohttp.ClientSession | None = None

    @property
    def whence(self) -> str:
        """Where it lies by what we say who we are."""
        return self._tokens.where

    def who(self) -> dict[str, str]:
        """The headers that say who asks, as of now.

        Raises:
            Denied: there is no key or token.
        """
        return self._tokens.headers()

    async def send(
        self,
        method: str,
        parser: str,
        route: str,
        who: Mapping[str, str],
        *,
        name: str = "",
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> Answer:
        """The answer of that data parser, whatever it says. `name` takes the place of `{name}` in the route.

        Raises:
            Unreachable: there is no whole answer.
        """
        headers = {"Accept": "application/json", **who}
        if body is not None:
            headers["Content-Type"] = "application/json"
        path = f"/slurm/{parser}/{route.replace('{name}', quote(name, safe=''))}"
        url = URL(f"{self._url}{path}", encoded=True)
        started, answered = clock.monotonic(), False
        with self._calling(Request(method, self._url, path, f"/slurm/{parser}/{route}")) as call:
            try:
                async with self._open().request(
                    method, url, params=query, data=body, headers={**call.headers, **headers}, allow_redirects=False
                ) as response:
                    call.answered(response.status)
                    content = await response.read()
                answered = True
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                why = "time ran out" if isinstance(error, TimeoutError) else f"{type(error).__name__}: {error}"
                raise Unreachable(f"{method} {route}: {why}") from error
            finally:
                if self._on_call:
                    self._on_call(method, route, clock.monotonic() - started, answered)
        return Answer(
            status=response.status,
            content_type=response.headers.get("Content-Type", ""),
            body=content,
            retry_after_s=_seconds(response.headers.get("Retry-After")),
        )

    async def close(self) -> None:
        """Close all connections."""
        if self._session:
            await self._session.close()

    def _open(self) -> aiohttp.ClientSession:
        """The session; it can only be made where a loop runs."""
        if self._session is None:
            if self._socket:
                connector: aiohttp.BaseConnector = aiohttp.UnixConnector(path=self._socket, limit=self._connections)
            else:
                connector = aiohttp.TCPConnector(limit=self._connections, ssl=self._tls or True)
            self._session = aiohttp.ClientSession(
                connector=connector, timeout=self._timeout, cookie_jar=aiohttp.DummyCookieJar()
            )
        return self._session


def _seconds(text: str | None) -> float | None:
    """`Retry-After` in seconds; a date there is no better than nothing."""
    return min(float(text), 3600.0) if text and text.isascii() and text.isdigit() else None
