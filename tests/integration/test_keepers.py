"""A loss is told once: whoever finds it, in whatever order they look, and wherever one of them stands still."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from lockstep.base.errors import Retry
from lockstep.bus.connection import Connection
from lockstep.bus.events import EventSeen, subscribe_events
from lockstep.bus.keeper import Facts, StreamKeeper
from lockstep.bus.ordered import CaughtUp
from lockstep.bus.publisher import Publisher
from lockstep.contracts.events import GapFound, NodeRebooted
from lockstep.contracts.facts import SlurmNode
from lockstep.contracts.subjects import DEAD, EVENTS, FACTS, REQUESTS, STREAMS
from tests.fakes.nats import connected, nats_server

ALL = sorted(stream.name for stream in STREAMS)
MOST_REQUESTS = 14
"""More than the look of a keeper sends that finds a loss and is told of it."""


@pytest.fixture
async def connection(tmp_path: Path) -> AsyncIterator[Connection]:
    """To a server with all streams."""
    async with nats_server(tmp_path / "nats") as server, connected(server.address) as one:
        yield one


class OneKeeper:
    """The keeper of one process, which publishes a fact too. It may be held before any of its requests."""

    def __init__(self, connection: Connection, number: int) -> None:
        self._connection = connection
        self._publisher = Publisher(connection, source=f"p-{number}")
        self._node = SlurmNode(cluster="main", name=f"gpu-{number}", base="IDLE")
        self._left = 0
        self._meanwhile: Callable[[], Awaitable[None]] | None = None
        self.gaps: list[str] = []
        self.keeper = StreamKeeper(self, self._on_gap, self._publisher.events, facts=self._facts)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    async def call(self, verb: str, body: Any = None, *, timeout_s: float = 5.0) -> dict[str, Any]:
        """As the connection does it."""
        self._left -= 1
        if self._left == 0 and self._meanwhile is not None:
            await self._meanwhile()
        return await self._connection.call(verb, body, timeout_s=timeout_s)

    def _on_gap(self, stream: str) -> None:
        self.gaps.append(stream)
        if stream == FACTS.name:
            self._publisher.claim = None

    def _facts(self) -> Facts:
        return Facts(claims=[self._publisher.claim] if self._publisher.claim else [])

    async def begin(self) -> None:
        """Says its fact, and looks for the first time."""
        await self._publisher.fact(self._node)
        await self.look()

    async def look(self, times: int = 3) -> None:
        """Looks so often; where NATS or another keeper is in the way, that look is over."""
        for _ in range(times):
            with suppress(Retry):
                await self.keeper.check()

    async def look_held(self, request: int, meanwhile: Callable[[], Awaitable[None]]) -> None:
        """Looks once; before that request of it, counted from one, the other things happen."""
        self._left, self._meanwhile = request, meanwhile
        await self.look(1)


async def keepers(connection: Connection, count: int) -> list[OneKeeper]:
    """So many, each of which has looked; and some events are there that can be lost."""
    found = [OneKeeper(connection, number) for number in range(count)]
    await happens(connection, 3)
    for one in found:
        await one.begin()
    for one in found:
        await one.look(1)
    return found


async def happens(connection: Connection, count: int) -> None:
    """So many events."""
    at = datetime.now(UTC)  # noqa: TID251  only to make each another
    publisher = Publisher(connection, source="test")
    for number in range(count):
        await publisher.event(NodeRebooted(id=f"{at}-{number}", at=at, node="host-1", before="", after=""))


async def told(connection: Connection) -> list[tuple[str, str]]:
    """The gaps of which the stream of events tells: the event's id, and where."""
    found: list[tuple[str, str]] = []
    async with aclosing(subscribe_events(connection)) as items:  # type: ignore[type-var]
        async for item in items:
            if isinstance(item, CaughtUp):
                return found
            if isinstance(item, EventSeen) and isinstance(item.event, GapFound):
                found.append((item.event.id, item.event.where))
    raise AssertionError


async def news(connection: Connection, before: list[tuple[str, str]]) -> list[str]:
    """Where the gaps were that are told now and were not before."""
    return sorted(where for ident, where in await told(connection) if (ident, where) not in before)


def lose(verb: str, *names: str) -> Callable[[Connection], Awaitable[None]]:
    """What an administrator does to these streams."""

    async def do(connection: Connection) -> None:
        for name in names:
            await connection.call(f"STREAM.{verb}.{name}")

    return do


wipe = lose("DELETE", *ALL)


@pytest.mark.parametrize("found", [False, True], ids=["lost meanwhile", "lost before"])
@pytest.mark.parametrize(
    ("verb", "names"),
    [
        pytest.param("DELETE", ALL, id="the store is wiped"),
        pytest.param("DELETE", [FACTS.name], id="facts deleted"),
        pytest.param("PURGE", [FACTS.name], id="facts purged"),
        pytest.param("DELETE", [EVENTS.name], id="events deleted"),
        pytest.param("PURGE", [EVENTS.name], id="events purged"),
        pytest.param("DELETE", [REQUESTS.name, DEAD.name], id="requests and dead letters deleted"),
    ],
)
async def test_a_loss_is_told_once_wherever_a_keeper_stands_still(
    connection: Connection, verb: str, names: list[str], found: bool
) -> None:
    """Between any two of its requests another looks and tells; the loss was before them, or happens just then."""
    wrong = {}
    for request in range(1, MOST_REQUESTS):
        slow, other = await keepers(connection, 2)
        before = await told(connection)

        async def meanwhile(other: OneKeeper = other) -> None:
            if not found:
                await lose(verb, *names)(connection)
            await other.look()

        if found:
            await lose(verb, *names)(connection)
        await slow.look_held(request, meanwhile)
        for _ in range(3):
            await slow.look(1)
            await other.look(1)
        seen = [await news(connection, before), sorted(slow.gaps), sorted(other.gaps)]
        if seen != [sorted(names)] * 3:
            wrong[request] = seen
    assert wrong == {}


@pytest.mark.parametrize("order", list(permutations(range(3))))
async def test_keepers_that_know_of_different_losses_tell_the_next_once(
    connection: Connection, order: tuple[int, ...]
) -> None:
    """One missed a loss of events, and one began after what was said had gone; then all is lost."""
    first, missed, late = (OneKeeper(connection, number) for number in range(3))
    for one in (first, missed):
        await one.begin()
    await happens(connection, 3)
    await first.look(1)
    await lose("PURGE", EVENTS.name)(connection)
    del missed.keeper.seen[EVENTS.name]
    await first.look()
    await missed.look()
    await lose("PURGE", FACTS.name)(connection)
    for _ in range(2):
        await first.look()
        await missed.look()
    await late.begin()
    before = await told(connection)

    await wipe(connection)
    for _ in range(3):
        for number in order:
            await (first, missed, late)[number].look(1)

    assert await news(connection, before) == ALL


async def test_a_keeper_whose_first_look_was_broken_off_tells_no_loss_again(connection: Connection) -> None:
    """It has seen a stream and not yet read what is said of it; then the stream is lost, which another tells."""
    [other] = await keepers(connection, 1)
    wrong = {}
    for request in range(1, MOST_REQUESTS):
        begins = OneKeeper(connection, 1)
        before = await told(connection)

        async def breaks_off() -> None:
            raise Retry("NATS went away")

        await begins.look_held(request, breaks_off)
        await wipe(connection)
        for _ in range(3):
            await other.look()
            await begins.look(1)
        if (seen := await news(connection, before)) != ALL:
            wrong[request] = seen
    assert wrong == {}
