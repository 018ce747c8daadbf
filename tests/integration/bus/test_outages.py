"""The bus while a real nats-server is killed, cut off, paused, late or not there yet; and calls that are cancelled."""

import asyncio
import time
from contextlib import aclosing, suppress

import pytest

from lockstep.base.errors import Retry
from lockstep.bus.connection import Connection
from lockstep.bus.events import EventSeen, subscribe_events
from lockstep.bus.publisher import Publisher
from lockstep.contracts.events import GapFound
from lockstep.contracts.subjects import FACTS
from tests.fakes.nats import NatsServer, TcpProxy, connected
from tests.integration.bus.real_bus import event, mirrored, node, replay, stored_events, until


async def test_each_message_survives_twenty_kills_of_the_server(server: NatsServer, connection: Connection) -> None:
    """Kill -9 and restart while events and facts are published and read: all arrive, in order, in one process."""
    publisher = Publisher(connection, source="test", patience_s=30)
    seen: list[str] = []
    published = 0
    stop = False

    async def read() -> None:
        async with aclosing(subscribe_events(connection)) as items:
            async for item in items:
                if isinstance(item, EventSeen) and isinstance(item.event, GapFound):
                    seen.append(item.event.id)  # noqa: PERF401  others look at it meanwhile

    async def publish() -> None:
        nonlocal published
        while not stop:
            await publisher.event(event(published))
            await publisher.fact(node(1, f"S{published}"))
            published += 1
            await asyncio.sleep(0.002)

    gaps: list[float] = []
    async with mirrored(connection) as mirror, asyncio.TaskGroup() as group:
        reading = group.create_task(read())
        publishing = group.create_task(publish())
        for kill in range(20):
            await asyncio.sleep(0.02 + (kill * 7 % 5) * 0.03)
            await server.kill()
            await server.again()
            count = len(seen)
            gaps.append(await until(lambda count=count: len(seen) > count))
        stop = True
        await publishing
        await until(lambda: len(seen) >= published)
        await until(lambda: mirror.table.slurm_nodes["main", "gpu-1"].base == f"S{published - 1}")
        reading.cancel()
    assert seen == [f"e-{n}" for n in range(published)]
    assert max(gaps) < 5


async def test_publishing_goes_on_within_ten_seconds_after_a_blackhole(server: NatsServer) -> None:
    """Nothing passes and nothing is closed: the silence is noticed, and the old socket is not waited for."""
    async with (
        TcpProxy(server.address).running() as proxy,
        connected(proxy.address) as connection,
        mirrored(connection) as mirror,
    ):
        publisher = Publisher(connection, source="test", patience_s=3)
        await publisher.fact(node(1))
        proxy.set("blackhole")
        for n in range(3):
            with pytest.raises(Retry):
                await publisher.fact(node(2, f"S{n}", comment="x" * 400_000))
        proxy.set("pass")
        started = time.monotonic()
        while True:
            with suppress(Retry):
                await publisher.fact(node(3))
                break
        await until(lambda: ("main", "gpu-3") in mirror.table.slurm_nodes)
        assert time.monotonic() - started < 10


async def test_a_paused_server_is_noticed_and_nothing_confirmed_is_lost(server: NatsServer) -> None:
    """SIGSTOP looks like a dead path, on a socket that stays open."""
    lost: list[str] = []
    async with connected(server.address, on_lost=lost.append) as connection, mirrored(connection) as mirror:
        publisher = Publisher(connection, source="test", patience_s=1)
        await publisher.fact(node(1))
        server.pause(True)
        await until(lambda: lost, within_s=15)
        server.pause(False)
        while True:
            with suppress(Retry):
                await publisher.fact(node(2))
                break
        await until(lambda: len(mirror.table.slurm_nodes) == 2)
        assert len(lost) == 1


async def test_an_event_whose_acknowledgement_is_late_is_stored_once(server: NatsServer) -> None:
    """The stream has it, the publisher does not know, and sends it again under the same id."""
    async with TcpProxy(server.address).running() as proxy, connected(proxy.address) as connection:
        publisher = Publisher(connection, source="test", patience_s=20)
        proxy.set("hold-answers")
        async with asyncio.TaskGroup() as group:
            group.create_task(publisher.events([event(1), event(2)]))
            group.create_task(publisher.fact(node(1)))
            await asyncio.sleep(3)
            proxy.set("pass")
        assert await stored_events(connection) == ["e-1", "e-2"]
        assert await replay(connection) == [node(1)]


async def test_a_cancellation_that_comes_together_with_the_answer_is_not_lost(connection: Connection) -> None:
    """A loop that calls JetStream ends whenever it is told to; else the process would never stop."""

    async def ask_for_ever() -> None:
        while True:
            await connection.call(f"STREAM.INFO.{FACTS.name}")

    for number in range(300):
        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            asking = group.create_task(ask_for_ever())
            await asyncio.sleep(0.0003 + number % 17 * 0.00005)
            asking.cancel()


async def test_a_process_that_starts_before_the_server_waits_for_it(server: NatsServer) -> None:
    """Also for a minute; it is told once that NATS is away."""
    await server.kill()
    lost: list[str] = []

    async def use() -> None:
        async with connected(server.address, on_lost=lost.append) as connection:
            assert await replay(connection) == []

    async with asyncio.TaskGroup() as group:
        group.create_task(use())
        await asyncio.sleep(1)
        await server.again()
    assert len(lost) == 1
