"""Reads a worker's story from the stream: what it has, and with `--follow` what comes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, suppress
from datetime import datetime

import msgspec

from lockstep.bus.connection import Connection
from lockstep.bus.events import EventSeen
from lockstep.bus.ordered import CaughtUp, Start
from lockstep.cli.cast import Cast
from lockstep.cli.history import events_of
from lockstep.cli.output import Out
from lockstep.cli.telling import Line, Teller

QUIET_S = 0.3
"""With --follow: so long nothing comes before what came is told together, causes first."""
MAX_WAIT_S = 2.0

Show = Callable[[list[Line]], None]


class Reading(msgspec.Struct, kw_only=True):
    """What is read of the stream, and for whom."""

    connection: Connection
    cast: Cast
    learned_to: int
    """The sequence up to which the cast has learned who plays a part."""
    start: Start
    until: datetime | None
    out: Out


async def tell(reading: Reading, teller: Teller, show: Show, *, follow: bool) -> None:
    """Shows the story scene by scene; with `follow` then what happens, as soon as nothing more comes with it."""
    if not follow:
        async with aclosing(_seen(reading, follow=False)) as items:  # type: ignore[type-var]
            async for item in items:
                if isinstance(item, EventSeen):
                    show(teller.add(item))
        show(teller.flush())
        return
    arrived = asyncio.Event()

    async def read() -> None:
        live = False
        async with aclosing(_seen(reading, follow=True)) as items:  # type: ignore[type-var]
            async for item in items:
                if isinstance(item, EventSeen):
                    show(teller.add(item))
                else:
                    live = True
                if live:
                    arrived.set()

    async with asyncio.TaskGroup() as group:
        group.create_task(read())
        while True:
            await arrived.wait()
            await _quiet(arrived)
            show(teller.flush())


async def _quiet(arrived: asyncio.Event) -> None:
    """Waits until nothing comes for a moment, but not for ever."""
    for _ in range(int(MAX_WAIT_S / QUIET_S)):
        arrived.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(QUIET_S):
                await arrived.wait()
        if not arrived.is_set():
            return
    arrived.clear()


async def _seen(reading: Reading, *, follow: bool) -> AsyncIterator[EventSeen | CaughtUp]:
    """The events of the story. Whoever first appears while it is read is read of from then on, and looked up."""
    cast, start = reading.cast, reading.start
    while True:
        subjects, more = cast.subjects(), list[str]()
        items = events_of(reading.connection, subjects, start, reading.out, until=reading.until, follow=follow)
        async with aclosing(items) as seen:  # type: ignore[type-var]
            async for item in seen:
                if isinstance(item, CaughtUp):
                    yield item
                    continue
                if item.sequence > reading.learned_to and cast.learn(item.event):
                    more = sorted(set(cast.subjects()) - set(subjects))
                    async for earlier in _earlier(reading, more, item.sequence):
                        yield earlier
                if cast.has(item):
                    yield item
                if more:
                    start = Start(sequence=item.sequence + 1)
                    break
        if not more:
            return


async def _earlier(reading: Reading, subjects: list[str], before: int) -> AsyncIterator[EventSeen]:
    async for item in events_of(reading.connection, subjects, reading.start, reading.out):
        if isinstance(item, EventSeen) and item.sequence < before and reading.cast.has(item):
            yield item
