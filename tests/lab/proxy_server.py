"""The process behind :mod:`tests.lab.proxy`: passes HTTP on to slurmrestd, or does to a request what it was told to do.

One connection behind each connection in front, closed when the other is, and bodies in pieces as they come: without a
fault the client sees slurmrestd itself.
"""

import argparse
import asyncio
import contextlib
import json
import socket
import time
from collections import Counter, deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from .proxy import Fault, Passed

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
    504: ("GATEWAY TIMEOUT", "application/json", json.dumps(_ERRORS)),
    511: ("Network Authentication Required", "application/json", json.dumps(_ERRORS)),
}

_KEPT = 5000
"""Requests that are remembered with their times: minutes, with a few pollers."""


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
        """The body in pieces, framing included.

        `until_closed` says whether a body without a length lasts until the connection ends, as an answer's may.
        """
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
        self._passed: deque[Passed] = deque(maxlen=_KEPT)
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
        answer: dict[str, int] | list[Passed] = {}
        match order["do"]:
            case "set":
                await self._apply(Fault(**order["fault"]))
            case "requests":
                answer = dict(self._counts)
            case "passed":
                answer = list(self._passed)
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
                began = time.time()  # noqa: TID251  this is a process of its own
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
                goes_on = await self._pass_back(fault, method, behind[0], writer)
                ended = time.time()  # noqa: TID251  the same
                self._passed.append(Passed(began, ended, method, path, body.decode(errors="replace")))
                if not goes_on:
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
        bodiless = method == "HEAD" or answer.first[1] in {"204", "304"}
        if fault.mode in {"drop_answer", "half_body"}:
            whole = b"" if bodiless else b"".join([piece async for piece in answer.body(behind, until_closed=True)])
            if fault.mode == "half_body":
                writer.write(answer.head + whole[: len(whole) // 2])
                await writer.drain()
                writer.close()
            else:
                _reset(writer)
            return False
        writer.write(answer.head)
        if not bodiless:
            async for piece in answer.body(behind, until_closed=True):
                writer.write(piece)
                await writer.drain()
        return not (answer.headers.get("connection", "").lower() == "close" or behind.at_eof())


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
