"""List once, then follow, for ever, whatever the API server and the network do.

- A clean end is normal: the watch goes on from the last version at once.
- 410, as HTTP status or as an ERROR object, leads to a list; its difference to what was seen is told as changes.
- Any other failure is told as `lost`, and a list follows, after a wait that grows and has jitter.
- Silence past the progress deadline (a half-open connection says nothing) leads to a list too.
- Objects that are no objects of the kind never reach the consumer; they are counted.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from random import Random
from typing import Generic, Protocol, TypeVar

import aiohttp
import msgspec

from lockstep.base.backoff import backoff
from lockstep.base.clock import now
from lockstep.kube.errors import Busy, Expired, KubeError, Unreachable
from lockstep.kube.port import Delta
from lockstep.kube.resources import Resource
from lockstep.kube.transport import Transport, failure
from lockstep.kube.wire import ObjectMeta, WatchLine

_line = msgspec.json.Decoder(WatchLine)

SETTLED_S = 5.0
"""A watch that was open this long worked: the next failure is the first again."""
SHORTEST_S = 1.0
"""A server that ends watches at once is asked no more often than this."""
LONGEST_S = 10.0
"""The longest wait between two tries."""


class Kept(Protocol):
    """An object with metadata."""

    @property
    def metadata(self) -> ObjectMeta:
        """Who it is."""


K = TypeVar("K", bound=Kept)
Key = tuple[str, str]


class _Version(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str


class _Marked(msgspec.Struct, frozen=True):
    metadata: _Version


class Silent(Unreachable):
    """Nothing was heard for too long."""


class Watch(Generic[K]):
    """One watch on one kind; `deltas()` is run once."""

    def __init__(
        self,
        transport: Transport,
        resource: Resource[K],
        *,
        namespace: str | None,
        label_selector: str,
        random: Random,
    ) -> None:
        self._transport = transport
        self._resource = resource
        self._path = resource.path(namespace)
        self._select: dict[str, str] = {"labelSelector": label_selector} if label_selector else {}
        self._random = random
        self._seen: dict[Key, K] = {}
        self._version = ""
        self._failures = 0
        self._open_s = 0.0

    async def deltas(self) -> AsyncGenerator[Delta[K], None]:
        """Everything, then every change. Ends only when it is closed or cancelled."""
        lost = False
        while True:
            pause_s = 0.0
            try:
                if not self._version:
                    for delta in self._compared(await self._list()):
                        yield delta
                    lost = False
                    yield Delta(kind="synced", at=now())
                async with aclosing(self._follow()) as followed:
                    async for delta in followed:
                        yield delta
                pause_s = max(0.0, SHORTEST_S - self._open_s)
            except KubeError as e:
                self._version = ""
                first = self._failures == 0
                if not lost and not (first and isinstance(e, Expired | Silent)):
                    lost = True
                    yield Delta(kind="lost", at=now(), error=str(e))
                asked_s = e.after_s or 0.0 if isinstance(e, Busy) else 0.0
                pause_s = max(asked_s, backoff(self._failures, limit_s=LONGEST_S, jitter=self._random))
                self._failures += 1
            await asyncio.sleep(pause_s)

    async def _list(self) -> dict[Key, K]:
        """All objects, page by page; sets the version to follow from."""
        self._transport.counters.lists += 1
        try:
            return await self._pages(limit=self._transport.settings.page)
        except Expired:
            return await self._pages(limit=0)

    async def _pages(self, *, limit: int) -> dict[Key, K]:
        found: dict[Key, K] = {}
        query = self._select | ({"limit": str(limit)} if limit else {})
        while True:
            data = await self._transport.request("GET", self._path, query=query)
            try:
                meta, items, bad = self._resource.page(data)
            except msgspec.DecodeError as e:
                raise Unreachable(f"GET {self._path}: no list: {e}") from e
            self._transport.counters.ignored += bad
            found |= {_key(o.metadata): o for o in items}
            if not meta.continue_:
                self._version = meta.resource_version
                return found
            query["continue"] = meta.continue_

    async def _follow(self) -> AsyncGenerator[Delta[K], None]:
        """One watch request, from the last version until the server ends it."""
        clock = asyncio.get_running_loop().time
        opened = clock()
        low, high = self._transport.settings.watch_s
        query: Mapping[str, str] = self._select | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(round(self._random.uniform(low, high))),
        }
        try:
            async with (
                self._transport.stream(self._path, query=query) as content,
                aclosing(self._lines(content)) as lines,
            ):
                async for line in lines:
                    for delta in self._read(line):
                        yield delta
        finally:
            self._open_s = clock() - opened
            if self._open_s >= SETTLED_S:
                self._failures = 0

    async def _lines(self, content: aiohttp.StreamReader) -> AsyncGenerator[bytes, None]:
        deadline_s = self._transport.settings.progress_deadline_s
        clock = asyncio.get_running_loop().time
        rest, due = b"", clock() + deadline_s
        while True:
            try:
                async with asyncio.timeout_at(due):
                    chunk = await content.readany()
            except TimeoutError as e:
                raise Silent(f"GET {self._path}: nothing heard for {deadline_s:g} s") from e
            except (aiohttp.ClientError, OSError) as e:
                raise Unreachable(f"GET {self._path}: watch broke: {type(e).__name__}") from e
            if not chunk:
                return
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield line
            if lines:
                due = clock() + deadline_s

    def _read(self, data: bytes) -> Iterator[Delta[K]]:
        """What one line tells."""
        if not data.strip():
            return
        try:
            line = _line.decode(data)
            match line.type:
                case "ADDED" | "MODIFIED" | "DELETED":
                    told = self._resource.one(line.object)
                    self._version = told.metadata.resource_version
                    yield from self._gone(told) if line.type == "DELETED" else self._changed(told)
                case "BOOKMARK":
                    self._version = msgspec.json.decode(line.object, type=_Marked).metadata.resource_version
                    yield Delta(kind="synced", at=now())
                case "ERROR":
                    raise failure(f"GET {self._path}: watch", _code(line.object), bytes(line.object))
                case _:
                    self._transport.counters.ignored += 1
        except msgspec.DecodeError:
            self._transport.counters.ignored += 1

    def _changed(self, after: K) -> Iterator[Delta[K]]:
        key = _key(after.metadata)
        before = self._seen.get(key)
        if before is not None and before.metadata.uid != after.metadata.uid:
            yield Delta(kind="gone", before=before, at=now())
            before = None
        self._seen[key] = after
        if before is None or before.metadata.resource_version != after.metadata.resource_version:
            yield Delta(kind="changed", before=before, after=after, at=now())

    def _gone(self, last: K) -> Iterator[Delta[K]]:
        before = self._seen.pop(_key(last.metadata), None)
        if before is not None:
            yield Delta(kind="gone", before=last, at=now())

    def _compared(self, found: dict[Key, K]) -> Iterator[Delta[K]]:
        """The difference between what was seen and what is there."""
        for key in self._seen.keys() - found.keys():
            yield Delta(kind="gone", before=self._seen.pop(key), at=now())
        for after in found.values():
            yield from self._changed(after)


class _Code(msgspec.Struct, frozen=True):
    code: int = 500


def _code(status: msgspec.Raw) -> int:
    try:
        return msgspec.json.decode(status, type=_Code).code
    except msgspec.DecodeError:
        return 500


def _key(meta: ObjectMeta) -> Key:
    return (meta.namespace, meta.name)
