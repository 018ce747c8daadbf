"""A small HTTP proxy in front of slurmrestd that can be told to misbehave, and that counts what was asked.

It is a process of its own (``python -m tests.lab.proxy``); :class:`Proxy` tells it what to do over a unix socket. Without a fault it
passes requests on as they are, one connection behind each connection in front, so that what the client sees is slurmrestd itself.

>>> proxy = Proxy(Path("/run/…/proxy.sock"))
>>> proxy.set("status", code=503, times=2)        # the next two requests
>>> proxy.set("drop_answer", method="POST", times=1)
>>> proxy.clear(); proxy.requests()["POST /slurm/v0.0.45/nodes/"]
"""

import argparse
import asyncio
import contextlib
import json
import socket
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Self, get_args

Mode = Literal["pass", "delay", "status", "errors", "half_body", "hang", "refuse", "flaky", "drop_answer"]
"""What is done to a request.

* pass: nothing.
* delay: passed on `ms` later.
* status: answered with `code` and the body slurmrestd or a load balancer would send; not passed on.
* errors: answered 200 with `errors[]` and no data, as slurmrestd does for what it refuses; not passed on.
* half_body: passed on; the answer breaks off in the middle of its body.
* hang: never answered, not passed on.
* refuse: the port is closed and all connections are reset.
* flaky: every `every`-th is answered with `code`.
* drop_answer: passed on and done; the connection is reset instead of the answer.
"""

_ERRORS = {
    "meta": {"plugin": {"type": "", "name": ""}},
    "errors": [
        {
            "description": "Fault asked for by a test",
            "error_number": 1007,
            "error": "Protocol authentication error",
            "source": "lab",
        }
    ],
    "warnings": [],
}
_HTML = "<html>\r\n<head><title>{0}</title></head>\r\n<body><center><h1>{0}</h1></center></body>\r\n</html>\r\n"
_STATUS = {
    401: ("Unauthorized", "text/plain", "Authentication failure"),
    429: ("Too Many Requests", "text/html", _HTML.format("429 Too Many Requests")),
    500: ("Internal Server Error", "application/json", json.dumps(_ERRORS)),
    502: ("Bad Gateway", "text/html", _HTML.format("502 Bad Gateway")),
    503: ("Service Unavailable", "text/html", _HTML.format("503 Service Temporarily Unavailable")),
}


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A mode, its numbers, and which requests it is for."""

    mode: Mode = "pass"
    ms: float = 0
    code: int = 503
    every: int = 2
    method: str = ""
    """Only requests of this method; empty: all."""
    path: str = ""
    """Only requests whose path contains this; empty: all."""
    times: int = 0
    """Only the first so many of them; 0: until cleared."""

    def __post_init__(self) -> None:
        """Refuse what would silently do nothing."""
        if self.mode not in get_args(Mode):
            raise ValueError(f"mode is {self.mode!r}, allowed are {', '.join(get_args(Mode))}")
        if self.mode in {"status", "flaky"} and self.code not in _STATUS:
            raise ValueError(f"code is {self.code}, allowed are {', '.join(map(str, _STATUS))}")
        if self.every < 1:
            raise ValueError(f"every is {self.every}, at least 1 is allowed")
        if self.mode == "refuse" and (self.method or self.path or self.times):
            raise ValueError("refuse closes the port: it cannot be for some requests only")


class Proxy:
    """The proxy as a test sees it. Every call is done when it returns."""

    def __init__(self, control: Path) -> None:
        self._control = control

    def set(self, mode: Mode, **numbers: Any) -> None:
        """From now on do this; `numbers` are the fields of :class:`Fault`. Replaces what was set before."""
        self._tell({"do": "set", "fault": asdict(Fault(mode=mode, **numbers))})

    def clear(self) -> None:
        """Pass everything on again. What hangs goes on hanging until its client gives up."""
        self._tell({"do": "set", "fault": asdict(Fault())})

    def requests(self) -> dict[str, int]:
        """How often was asked, by method and path without the query, since the start or :meth:`forget`."""
        return dict(self._tell({"do": "requests"}))

    def forget(self) -> None:
        """Count from zero again."""
        self._tell({"do": "forget"})

    def _tell(self, order: dict[str, Any]) -> Any:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(10)
            connection.connect(str(self._control))
            connection.sendall(json.dumps(order).encode() + b"\n")
            with connection.makefile("rb") as answer:
                return json.loads(answer.readline())


@dataclass(frozen=True)
class Message:
    """The head of a request or an answer, as bytes and as what must be known of it."""

    head: bytes
    first: list[str]
    headers: dict[str, str]

    @classmethod
    async def read(cls, reader: asyncio.StreamReader) -> Self:
        """The next head; IncompleteReadError when the other side has closed."""
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").rstrip().split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        return cls(head, first.split(" ", 2), headers)

    async def body(self, reader: asyncio.StreamReader, *, until_closed: bool) -> AsyncIterator[bytes]:
        """The body in pieces, framing included; `until_closed` says whether one without a length ends with the connection."""
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            size = -1
            while size != 0:
                line = await reader.readline()
                size = int(line.split(b";")[0], 16)
                yield line + await reader.readexactly(size + 2)
        elif (length := self.headers.get("content-length")) is not None:
            left = int(length)
            while left > 0:
                piece = await reader.read(min(left, 1 << 18))
                if not piece:
                    raise asyncio.IncompleteReadError(b"", left)
                left -= len(piece)
                yield piece
        elif until_closed:
            while piece := await reader.read(1 << 18):
                yield piece


class Server:
    """The proxy itself."""

    def __init__(self, listen: list[str], port: int, upstream: tuple[str, int]) -> None:
        self._listen, self._port, self._upstream = listen, port, upstream
        self._fault, self._met = Fault(), 0
        self._counts: Counter[str] = Counter()
        self._open: set[asyncio.StreamWriter] = set()
        self._listener: asyncio.Server | None = None

    async def run(self, control: Path) -> None:
        """Serve until cancelled."""
        control.unlink(missing_ok=True)
        await self._apply(Fault())
        async with await asyncio.start_unix_server(self._obey, control) as orders:
            control.chmod(0o600)
            await orders.serve_forever()

    async def _obey(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        order = json.loads(await reader.readline())
        answer: dict[str, int] = {}
        match order["do"]:
            case "set":
                await self._apply(Fault(**order["fault"]))
            case "requests":
                answer = dict(self._counts)
            case "forget":
                self._counts.clear()
        writer.write(json.dumps(answer).encode() + b"\n")
        await writer.drain()
        writer.close()

    async def _apply(self, fault: Fault) -> None:
        self._fault, self._met = fault, 0
        if fault.mode == "refuse":
            if self._listener:
                self._listener.close()
                self._listener = None
            for writer in self._open:
                _reset(writer)
        elif self._listener is None:
            self._listener = await asyncio.start_server(self._serve, self._listen, self._port, limit=1 << 20)

    def _fault_for(self, method: str, path: str) -> Fault:
        fault = self._fault
        if (fault.method and fault.method != method) or fault.path not in path:
            return Fault()
        self._met += 1
        if fault.times and self._met > fault.times:
            return Fault()
        if fault.mode == "flaky":
            return Fault(mode="pass" if self._met % fault.every else "status", code=fault.code)
        return fault

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        behind: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        try:
            while True:
                request = await Message.read(reader)
                body = b"".join([piece async for piece in request.body(reader, until_closed=False)])
                method, target = request.first[0], request.first[1]
                path = target.partition("?")[0]
                self._counts[f"{method} {path}"] += 1
                fault = self._fault_for(method, path)
                match fault.mode:
                    case "hang":
                        await reader.read()
                        return
                    case "status":
                        writer.write(_answer(fault.code, *_STATUS[fault.code]))
                        continue
                    case "errors":
                        writer.write(_answer(200, "OK", "application/json", json.dumps(_ERRORS)))
                        continue
                    case "delay":
                        await asyncio.sleep(fault.ms / 1000)
                if behind is None or behind[0].at_eof():
                    behind = await asyncio.open_connection(*self._upstream, limit=1 << 20)
                behind[1].write(request.head + body)
                if not await self._pass_back(fault, method, behind[0], writer):
                    return
        except (OSError, asyncio.IncompleteReadError):
            _reset(writer)
        finally:
            self._open.discard(writer)
            for end in (writer, *(behind[1:] if behind else ())):
                end.close()

    async def _pass_back(
        self, fault: Fault, method: str, behind: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Hands the answer to the client; False when the connection is done with."""
        answer = await Message.read(behind)
        empty = method == "HEAD" or answer.first[1] in {"204", "304"}
        pieces = _nothing() if empty else answer.body(behind, until_closed=True)
        if fault.mode in {"drop_answer", "half_body"}:
            whole = b"".join([piece async for piece in pieces])
            if fault.mode == "half_body":
                writer.write(answer.head + whole[: len(whole) // 2])
                await writer.drain()
                writer.close()
            else:
                _reset(writer)
            return False
        writer.write(answer.head)
        async for piece in pieces:
            writer.write(piece)
            await writer.drain()
        return not (answer.headers.get("connection", "").lower() == "close" or behind.at_eof())


async def _nothing() -> AsyncIterator[bytes]:
    for piece in ():
        yield piece


def _answer(code: int, words: str, kind: str, body: str) -> bytes:
    retry = "Retry-After: 1\r\n" if code in {429, 503} else ""
    head = f"HTTP/1.1 {code} {words}\r\nContent-Type: {kind}\r\n{retry}Content-Length: {len(body.encode())}\r\n\r\n"
    return (head + body).encode()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Closes with RST, as a killed process's kernel does."""
    with contextlib.suppress(OSError):
        linger = (1).to_bytes(4, "little") + (0).to_bytes(4, "little")
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    writer.transport.abort()


def main() -> None:
    """Run the proxy until a signal ends it."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--listen", action="append", required=True, help="address, several times for several")
    options.add_argument("--port", type=int, required=True)
    options.add_argument("--upstream-port", type=int, required=True, help="slurmrestd, on loopback")
    options.add_argument("--control", type=Path, required=True, help="unix socket to make")
    given = options.parse_args()
    server = Server(given.listen, given.port, ("127.0.0.1", given.upstream_port))
    asyncio.run(server.run(given.control))


if __name__ == "__main__":
    main()
