"""How the fake slurmrestd listens, remembers what was asked, and fails on order."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Self

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(kw_only=True)
class Fault:
    """One failure: which request it hits, how often, and how."""

    on: str
    """Method and route, `POST nodes/` or `GET node/{name}`; `*` is any."""
    times: int = 1
    after_acting: bool = False
    """The request is carried out first."""
    status: int = 0
    body: str = ""
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    hang_s: float = 0.0
    """Wait so long before answering as usual."""
    cut: bool = False
    """Send half of the answer, then close."""


class FailingServer:
    """Listens at `url`, and answers a request as `_answer` does unless it is to fail."""

    def __init__(self) -> None:
        """Nothing listens yet."""
        self.calls: list[str] = []
        """Each request: method and route."""
        self.headers: list[dict[str, str]] = []
        self.queries: dict[str, dict[str, str]] = {}
        """The query of the last request of each kind."""
        self.most_at_once = 0
        """The most requests that were being answered at one time."""
        self._at_once = 0
        self.url = ""
        self._faults: list[Fault] = []

    def fail(self, *faults: Fault) -> None:
        """Fail so, in this order, from now on."""
        self._faults.extend(faults)

    def count(self, call: str) -> int:
        """How often a request was made."""
        return self.calls.count(call)

    async def __aenter__(self) -> Self:
        app = web.Application(middlewares=[self._middleware])
        app.router.add_route("*", "/{tail:.*}", self._answer)
        self.runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self.runner.setup()
        listener = socket.create_server(("127.0.0.1", 0))
        await web.SockSite(self.runner, listener).start()
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        raise NotImplementedError

    @web.middleware
    async def _middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            return await self._misbehave(request, handler)
        finally:
            self._at_once -= 1

    async def _misbehave(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        call = f"{request.method} {place(request)[1]}"
        self.calls.append(call)
        self.headers.append(dict(request.headers))
        self.queries[call] = dict(request.query)
        fault = next((fault for fault in self._faults if fault.times > 0 and fault.on in {"*", call}), None)
        if fault is None:
            return await handler(request)
        fault.times -= 1
        usual = await handler(request) if fault.after_acting or fault.hang_s or fault.cut else None
        if fault.hang_s:
            await asyncio.sleep(fault.hang_s)
        if fault.status:
            return web.Response(
                status=fault.status, text=fault.body, content_type=fault.content_type, headers=fault.headers
            )
        if fault.cut or usual is None:
            return await _half(request, usual.body if isinstance(usual, web.Response) else b"")
        return usual


def place(request: web.Request) -> tuple[str, str]:
    """The parser of the address, and the rest of it without names."""
    parser, _, path = request.path.removeprefix("/slurm/").partition("/")
    head, _, tail = path.partition("/")
    return parser, f"{head}/{{name}}" if head in {"node", "job"} and tail else path


async def _half(request: web.Request, body: Any) -> web.StreamResponse:
    """Half of the answer, then the connection is closed."""
    content = bytes(body) if isinstance(body, bytes) else b"{}"
    response = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": str(len(content) + 9)})
    await response.prepare(request)
    await response.write(content[: len(content) // 2])
    assert request.transport
    request.transport.abort()
    return response
