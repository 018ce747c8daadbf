"""A real nats-server for one test, what is said over it, and readers of what it has."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime

from lockstep.bus.connection import Connection
from lockstep.bus.events import EventSeen, subscribe_events
from lockstep.bus.facts import FactFeed, FactSeen
from lockstep.bus.ordered import CaughtUp
from lockstep.contracts.events import GapFound
from lockstep.contracts.facts import Fact, SlurmNode
from lockstep.contracts.subjects import FACTS
from lockstep.fleet.mirror import Mirror


def node(number: int, base: str = "IDLE", *, epoch: int = 0, comment: str = "") -> SlurmNode:
    """A Slurm node."""
    return SlurmNode(cluster="main", name=f"gpu-{number}", base=base, epoch=epoch, comment=comment)


def event(number: int) -> GapFound:
    """An event."""
    return GapFound(id=f"e-{number}", at=datetime(2026, 1, 1, tzinfo=UTC), where=f"w-{number}")


async def replay(connection: Connection, *filters: str) -> list[Fact]:
    """All facts that are in the stream."""
    facts: list[Fact] = []
    async with aclosing(FactFeed(connection, filters or FACTS.subjects).items()) as items:
        async for item in items:
            if isinstance(item, CaughtUp):
                return facts
            assert isinstance(item, FactSeen)
            facts.append(item.fact)
    raise AssertionError


async def stored_events(connection: Connection) -> list[str]:
    """The ids of all events in the stream, in order."""
    ids: list[str] = []
    async with aclosing(subscribe_events(connection)) as items:
        async for item in items:
            if isinstance(item, CaughtUp):
                return ids
            assert isinstance(item, EventSeen)
            assert isinstance(item.event, GapFound)
            ids.append(item.event.id)
    raise AssertionError


async def until(true: Callable[[], object], within_s: float = 10.0) -> float:
    """Waits until something is so; how long it took."""
    started = time.monotonic()
    async with asyncio.timeout(within_s):
        while not true():
            await asyncio.sleep(0.01)
    return time.monotonic() - started


@asynccontextmanager
async def mirrored(connection: Connection) -> AsyncIterator[Mirror]:
    """A mirror that runs."""
    mirror = Mirror(FactFeed(connection))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(mirror.run())
        await mirror.ready.wait()
        yield mirror
        task.cancel()
