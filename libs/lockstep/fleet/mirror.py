"""All facts in memory, always up to date, and who is told when something changes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import NamedTuple

from lockstep.base.errors import Fatal
from lockstep.bus.facts import FactFeed, FactSeen
from lockstep.bus.ordered import CaughtUp, Reset
from lockstep.contracts.facts import Fact
from lockstep.fleet.facts import NOTHING, FactKey, FactTable, Touched, key_of, together

MERGE_AT = 1_000
"""News that a slow reader has not fetched are made one when there are more."""

MAX_CAUSES_LEFT = 10_000
"""Causes that are kept of things that are gone: a hold that went with them is told with its cause."""


class Caused(NamedTuple):
    """The event because of which a thing is as it is, and where in the stream of facts that was said."""

    sequence: int
    event: str


class Ahead(NamedTuple):
    """What the table had before a service put its own fact in, and whom that concerns."""

    before: Fact | None
    touched: Touched


OnChange = Callable[[Fact | None, Fact], None]


class Mirror:
    """Reads a feed into a `FactTable`. Run `run` once; read `table` when `ready` is set.

    After the stream was lost the table is empty until the sources have said everything anew: no source is complete,
    so nothing is done.
    """

    def __init__(self, feed: FactFeed) -> None:
        self._feed = feed
        self.table = FactTable()
        self.ready = asyncio.Event()
        """Set while the table holds everything that the stream has."""
        self.on_change: list[OnChange] = []
        """Called with a fact before and after, in the feed's order; must be quick."""
        self.causes: dict[FactKey, Caused] = {}
        """Per thing, the event because of which it is as it is, or went."""
        self._ahead: dict[FactKey, Ahead] = {}
        """What is in the table before the stream has told it; when it does, it is news for all others."""
        self._anew = False
        """The feed is to begin anew; that it has caught up does not count until it has."""
        self.dropped = 0
        """Facts of a lower epoch, or without news."""
        self._watchers: list[_Watcher] = []

    @property
    def sequence(self) -> int:
        """The stream's sequence up to which the table is true."""
        return self._feed.sequence

    @property
    def standing(self) -> int:
        """How many facts stand that the stream has told; what a service put into the table itself does not count."""
        return self._feed.standing

    def anticipate(self, fact: Fact) -> None:
        """Let the table hold at once what its own service says, for its next decision.

        All who read this mirror are told when the stream tells it, with its cause and its trace.
        """
        key = key_of(fact)
        before, touched = self._ahead.get(key, Ahead(self.table.get(fact), NOTHING))
        if news := self.table.apply(fact):
            self._ahead[key] = Ahead(before, touched | news)

    def read_anew(self, why: str) -> None:
        """Forgets everything and reads the stream from its beginning; `ready` when that is done."""
        self.ready.clear()
        self._anew = True
        self._feed.read_anew(why)

    async def run(self) -> None:
        """Reads the feed, for ever."""
        async with aclosing(self._feed.items()) as items:  # type: ignore[type-var]
            async for item in items:
                match item:
                    case FactSeen():
                        self._take(item)
                    case CaughtUp():
                        if not self._anew:
                            self.ready.set()
                    case Reset():
                        self._anew = False
                        self.ready.clear()
                        self.causes.clear()
                        self._ahead.clear()
                        self._tell(self.table.clear())
        raise Fatal("the feed of facts ended")

    async def changes(self, *, linger_s: float = 0.0) -> AsyncIterator[Touched]:
        """What changed since the last item, as one; the first item names everything.

        Comes only while `ready`. `linger_s` waits a little longer, so that a burst becomes one item.
        """
        watcher = _Watcher(self.table.everything())
        self._watchers.append(watcher)
        try:
            while True:
                await self.ready.wait()
                await watcher.wake.wait()
                if linger_s:
                    await asyncio.sleep(linger_s)
                if self.ready.is_set() and (touched := watcher.take()):
                    yield touched
        finally:
            self._watchers.remove(watcher)

    def cause_of(self, *keys: FactKey) -> str:
        """The newest of the events because of which these things are as they are, or went; empty if none is known."""
        return max((caused for key in keys if (caused := self.causes.get(key))), default=Caused(0, "")).event

    def _take(self, seen: FactSeen) -> None:
        key = key_of(seen.fact)
        before = self.table.get(seen.fact)
        touched = self.table.apply(seen.fact)
        if touched or before == seen.fact or (seen.fact.gone and before is None):
            before, held_back = self._ahead.pop(key, Ahead(before, NOTHING))
            touched |= held_back
            if seen.cause:
                self._note_cause(key, Caused(seen.sequence, seen.cause))
        self.table.note_trace(seen.fact, seen.traceparent, seen.sequence)
        if not touched:
            self.dropped += 1
            return
        for callback in self.on_change:
            callback(before, seen.fact)
        self._tell(touched)

    def _note_cause(self, key: FactKey, caused: Caused) -> None:
        """Of what is gone, the older half is forgotten when there is too much of it."""
        self.causes.pop(key, None)
        self.causes[key] = caused
        if len(self.causes) > len(self.table) + MAX_CAUSES_LEFT:
            left = [key for key in self.causes if key not in self.table]
            for old in left[: len(left) // 2]:
                del self.causes[old]

    def _tell(self, touched: Touched) -> None:
        for watcher in self._watchers:
            watcher.add(touched)


class _Watcher:
    """What one reader of `changes` has not been told yet."""

    def __init__(self, everything: Touched) -> None:
        self.wake = asyncio.Event()
        self._news: list[Touched] = []
        self.add(everything)

    def add(self, touched: Touched) -> None:
        """Adds news."""
        if touched:
            self._news.append(touched)
            if len(self._news) > MERGE_AT:
                self._news = [together(self._news)]
            self.wake.set()

    def take(self) -> Touched:
        """All news as one, and starts afresh."""
        taken = together(self._news)
        self._news.clear()
        self.wake.clear()
        return taken
