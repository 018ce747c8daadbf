"""The watches of the fake API server, and every way in which a watch may fail."""

import asyncio
import json
from collections.abc import Awaitable, Callable

from aiohttp import web

from tests.fakes.kube_store import Answer, Line, Object, Store, matches, status_object


class Stream:
    """One open watch."""

    def __init__(self, request: web.Request, wants: Callable[[Line], bool]) -> None:
        self._request = request
        self._wants = wants
        self._lines: asyncio.Queue[Object | bytes | None] = asyncio.Queue()
        self._thawed = asyncio.Event()
        self.frozen = False

    def tell(self, line: Line) -> None:
        """Send one change, if it is for this watch."""
        if self._wants(line):
            self.say({"type": line[2], "object": line[3]})

    def say(self, line: Object | bytes) -> None:
        """Send one line."""
        self._lines.put_nowait(line)

    def end(self) -> None:
        """Close the answer in good order."""
        self._lines.put_nowait(None)
        self._thawed.set()

    def cut(self) -> None:
        """Reset the connection."""
        if self._request.transport is not None:
            self._request.transport.abort()

    async def run(self, write: Callable[[bytes], Awaitable[None]]) -> None:
        """Send until the end."""
        while (line := await self._lines.get()) is not None:
            if self.frozen:
                await self._thawed.wait()
                return
            await write(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n")


class WatchedStore(Store):
    """A store that tells its watchers of each change."""

    def __init__(self) -> None:
        super().__init__()
        self.gone_in_stream = False
        """410 comes as an ERROR object in a 200 answer, not as HTTP status."""
        self._streams: set[Stream] = set()

    @property
    def watches(self) -> int:
        """How many are open."""
        return len(self._streams)

    def end_watches(self) -> None:
        """End all watches as a server does after `timeoutSeconds`. Frozen ones never say what they held back."""
        for stream in self._streams:
            stream.end()

    def cut(self) -> None:
        """Cut the connections of all watches."""
        for stream in self._streams:
            stream.cut()

    def freeze(self) -> None:
        """From now on the open watches say nothing, and do not end: half-open connections."""
        for stream in self._streams:
            stream.frozen = True

    def bookmark(self) -> None:
        """Send a bookmark with the current version to all watches."""
        for stream in self._streams:
            stream.say({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(self.version)}}})

    def say(self, line: Object | bytes) -> None:
        """Send anything to all watches."""
        for stream in self._streams:
            stream.say(line)

    def _tell(self, resource: str, what: str, obj: Object) -> None:
        super()._tell(resource, what, obj)
        for stream in self._streams:
            stream.tell(self._log[-1])

    async def _watch(
        self, request: web.Request, resource: str, namespace: str, query: dict[str, str]
    ) -> web.StreamResponse:
        since = int(query["resourceVersion"])
        if since < self.oldest and not self.gone_in_stream:
            raise Answer(410, "Expired", f"too old resource version: {since} ({self.oldest})")
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        if since < self.oldest:
            line = {"type": "ERROR", "object": status_object(410, "Expired", f"too old resource version: {since}")}
            await response.write(json.dumps(line).encode() + b"\n")
            return response
        stream = Stream(request, lambda line: line[1] == resource and matches(line[3], namespace, query))
        for line in self._log:
            if line[0] > since:
                stream.tell(line)
        self._streams.add(stream)
        try:
            await stream.run(response.write)
        finally:
            self._streams.discard(stream)
        return response
