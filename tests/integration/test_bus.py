"""The bus against a real nats-server."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from time import perf_counter

import pytest

from lockstep.bus.connection import Connection
from lockstep.bus.facts import FactFeed, FactSeen
from lockstep.bus.ordered import CaughtUp
from lockstep.bus.publisher import Publisher
from lockstep.contracts.facts import Fact, SlurmNode
from tests.fakes.nats import NatsServer, connected, nats_server


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    """A running server."""
    async with nats_server(tmp_path / "nats") as running:
        yield running


@pytest.fixture
async def connection(server: NatsServer) -> AsyncIterator[Connection]:
    """A watched connection to it."""
    async with connected(server.address) as one:
        yield one


def node(number: int, base: str = "IDLE", epoch: int = 0) -> SlurmNode:
    """A Slurm node."""
    return SlurmNode(cluster="main", name=f"gpu-{number}", base=base, partitions=["train"], epoch=epoch)


async def replay(connection: Connection) -> list[Fact]:
    """All facts that are in the stream."""
    facts: list[Fact] = []
    async with aclosing(FactFeed(connection).items()) as items:
        async for item in items:
            if isinstance(item, CaughtUp):
                return facts
            assert isinstance(item, FactSeen)
            facts.append(item.fact)
    raise AssertionError


async def test_facts_come_back_newest_of_each_subject(connection: Connection) -> None:
    """A reader that joins gets one fact per thing, then CaughtUp."""
    publisher = Publisher(connection, source="slurm-poller")
    await publisher.facts([node(1), node(2)])
    await publisher.fact(node(1, "DOWN"))
    assert await replay(connection) == [node(2), node(1, "DOWN")]


async def test_twenty_thousand_facts_are_replayed_within_a_second(connection: Connection) -> None:
    """The whole fleet is in memory before anybody waits."""
    publisher = Publisher(connection, source="slurm-poller", patience_s=60)
    t0 = perf_counter()
    assert await publisher.facts(node(n) for n in range(20_000)) == 20_000
    t1 = perf_counter()
    facts = await replay(connection)
    t2 = perf_counter()
    print(f"publish {t1 - t0:.2f} s, replay {t2 - t1:.2f} s")
    assert len(facts) == 20_000
