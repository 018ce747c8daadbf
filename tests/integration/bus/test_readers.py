"""What a reader of the bus gets from a real nats-server: all that stands, without a gap, or word of what is missing."""

import asyncio
import time
from contextlib import aclosing
from typing import Any

import msgspec
import pytest

from lockstep.base.clock import now
from lockstep.bus import ordered
from lockstep.bus.connection import Connection
from lockstep.bus.envelope import pack_fact
from lockstep.bus.events import subscribe_events
from lockstep.bus.facts import FactFeed, FactSeen
from lockstep.bus.ordered import CaughtUp, Missed, OrderedReader, Received, Start
from lockstep.bus.publisher import Publisher
from lockstep.contracts.events import GapFound
from lockstep.contracts.subjects import EVENTS, FACTS
from tests.integration.bus.real_bus import event, mirrored, node, replay, stored_events, until


async def test_a_reader_that_joins_gets_the_newest_fact_of_each_thing(connection: Connection) -> None:
    """First what was said, then CaughtUp."""
    publisher = Publisher(connection, source="slurm-poller")
    await publisher.facts([node(1), node(2)])
    await publisher.fact(node(1, "DOWN"))
    assert await replay(connection) == [node(2), node(1, "DOWN")]


async def test_facts_that_are_replaced_while_they_are_read_are_not_missing(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What replaced them is behind the end that the stream had at the start: a reader has not caught up before."""
    publisher = Publisher(connection, source="test")
    await publisher.facts([node(1), node(2), node(3)])
    call = connection.call

    async def late(verb: str, *args: Any, **kwargs: Any) -> dict[str, Any]:
        if verb.startswith("CONSUMER.CREATE."):
            await publisher.facts([node(1, "DOWN"), node(3, "DOWN")])
        return await call(verb, *args, **kwargs)

    monkeypatch.setattr(connection, "call", late)

    assert await replay(connection) == [node(2), node(1, "DOWN"), node(3, "DOWN")]


async def test_a_reader_does_not_rely_on_the_servers_count_alone(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a message is replaced the server may count one too few, down to none."""
    await Publisher(connection, source="test").facts([node(1), node(2), node(3)])
    place = ordered._place
    monkeypatch.setattr(ordered, "_place", lambda reply: (*place(reply)[:3], 0))

    assert await replay(connection) == [node(1), node(2), node(3)]


async def test_twenty_thousand_facts_are_replayed_within_a_second(connection: Connection) -> None:
    """Measured in processor time, because others use the machine too."""
    publisher = Publisher(connection, source="slurm-poller", patience_s=60)
    assert await publisher.facts(node(n) for n in range(20_000)) == 20_000
    started = time.process_time()
    facts = await replay(connection)
    assert time.process_time() - started < 1.0
    assert len(facts) == 20_000


async def test_a_slow_reader_loses_nothing(connection: Connection) -> None:
    """Sixty megabytes in large messages, taken out slowly: flow control holds the server back."""
    publisher = Publisher(connection, source="test", patience_s=60)
    await publisher.facts(node(n, comment="x" * 500_000) for n in range(120))
    names: list[str] = []
    feed = FactFeed(connection)
    async with aclosing(feed.items()) as items:
        async for item in items:
            if isinstance(item, CaughtUp):
                break
            assert isinstance(item, FactSeen)
            names.append(item.fact.identity)
            await asyncio.sleep(0.02)
    assert names == [f"gpu-{n}" for n in range(120)]
    assert feed.restarts == 0


async def test_a_consumer_deleted_on_the_server_is_made_anew_without_a_gap(connection: Connection) -> None:
    """Nobody tells the client; its heartbeat fails to come."""
    publisher = Publisher(connection, source="test")
    async with mirrored(connection) as mirror:
        await publisher.fact(node(1))
        await until(lambda: len(mirror.table.slurm_nodes) == 1)
        names = (await connection.call(f"CONSUMER.NAMES.{FACTS.name}"))["consumers"]
        for name in names:
            await connection.call(f"CONSUMER.DELETE.{FACTS.name}.{name}")
        await publisher.fact(node(2))
        took = await until(lambda: len(mirror.table.slurm_nodes) == 2)
        assert took < 6
        assert mirror.ready.is_set()


async def test_subscriptions_leave_no_task_behind(connection: Connection) -> None:
    """Five hundred readings of both streams, each closed in the middle."""
    publisher = Publisher(connection, source="test")
    await publisher.fact(node(1))
    await publisher.event(event(1))
    await replay(connection)
    await asyncio.sleep(0.1)
    before = len(asyncio.all_tasks())
    for _ in range(250):
        await replay(connection)
        await stored_events(connection)
    await asyncio.sleep(0.1)
    assert len(asyncio.all_tasks()) <= before
    assert (await connection.call(f"STREAM.INFO.{FACTS.name}"))["state"]["consumer_count"] == 0


async def test_several_subjects_are_read_from_a_time_on_without_a_gap(connection: Connection) -> None:
    """A server that is given both passes over the first; every one that came later is told."""
    publisher = Publisher(connection, source="test")
    await publisher.event(GapFound(id="0", at=now(), where="one"))
    await asyncio.sleep(0.05)
    at = now()
    for i, where in enumerate(("one", "two", "other"), 1):
        await publisher.event(GapFound(id=f"{i}", at=now(), where=where))

    subjects = [f"lockstep.event.fleet.gap-found.v1._site.{where}" for where in ("one", "two")]
    told = []
    async with aclosing(subscribe_events(connection, subjects, start=Start(at=at))) as items:
        async for item in items:
            if isinstance(item, CaughtUp):
                break
            told.append(item.event.id)

    assert told == ["1", "2"]


async def test_events_that_retention_took_away_are_named(connection: Connection) -> None:
    """A reader that was away too long is told which sequences it never saw, then goes on."""
    publisher = Publisher(connection, source="test")
    await publisher.events(event(n) for n in range(1, 11))
    got: list[object] = []
    async with aclosing(OrderedReader(connection, EVENTS.name, EVENTS.subjects).items()) as items:
        async for item in items:
            got.append(item.sequence if isinstance(item, Received) else item)
            if item == CaughtUp():
                names = (await connection.call(f"CONSUMER.NAMES.{EVENTS.name}"))["consumers"]
                await connection.call(f"CONSUMER.DELETE.{EVENTS.name}.{names[0]}")
                await publisher.events(event(n) for n in range(11, 21))
                await connection.call(f"STREAM.PURGE.{EVENTS.name}", {"seq": 16})
            if got[-1] == 20:
                break
    assert got == [*range(1, 11), CaughtUp(), Missed(11, 15), *range(16, 21)]


async def test_a_fact_of_a_newer_version_is_counted_and_passed_over(connection: Connection) -> None:
    """Also a body that is no JSON at all; the facts behind them arrive."""
    message = pack_fact(node(1), "test")
    for body in (b'{"kind":"slurm.switch","name":"s1"}', b"\xff{", b'{"kind":"slurm.node","name":7}'):
        await connection.client.jetstream().publish(message.subject + "x", body)
    await connection.client.jetstream().publish(f"{message.subject}y", b'{"kind":"slurm.switch"}')
    await Publisher(connection, source="test").fact(node(2))
    feed = FactFeed(connection)
    async with aclosing(feed.items()) as items:
        first = await anext(items)
    assert isinstance(first, FactSeen)
    assert first.fact == node(2)
    assert feed.unknown == {"slurm.node": 1, "slurm.switch": 1}


async def test_facts_that_were_missed_lead_to_a_new_reading(connection: Connection) -> None:
    """A reader of facts holds a state: when the stream no longer has what comes next, all of it is read anew."""
    publisher = Publisher(connection, source="test")
    async with mirrored(connection) as mirror:
        await publisher.facts([node(1), node(2)])
        await until(lambda: mirror.standing == 2)
        for name in (await connection.call(f"CONSUMER.NAMES.{FACTS.name}"))["consumers"]:
            await connection.call(f"CONSUMER.DELETE.{FACTS.name}.{name}")
        await publisher.fact(msgspec.structs.replace(node(2), gone=True))
        await publisher.fact(node(3))
        await connection.call(f"STREAM.PURGE.{FACTS.name}", {"seq": 4})
        await until(lambda: ("main", "gpu-3") in mirror.table.slurm_nodes)
        assert list(mirror.table.slurm_nodes) == [("main", "gpu-3")]
        assert mirror.standing == 1


async def test_what_a_service_knows_before_the_stream_has_it_does_not_count_as_standing(connection: Connection) -> None:
    """It would seem to be missing there. What is gone does not count either, nor what was read and is gone again."""
    publisher = Publisher(connection, source="test")
    async with mirrored(connection) as mirror:
        await publisher.facts([node(1), node(2), node(3)])
        await publisher.fact(msgspec.structs.replace(node(2), gone=True))
        await publisher.fact(node(1, "DOWN"))
        await until(lambda: mirror.sequence == 5)
        mirror.table.apply(node(9))
        assert (mirror.standing, len(mirror.table)) == (2, 3)
