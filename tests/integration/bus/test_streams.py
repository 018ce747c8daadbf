"""The streams of a real nats-server: made as they must be, full, and lost, which is told once and made good."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec
import pytest

from lockstep.base.errors import Retry
from lockstep.bus.acks import Acks, Answer
from lockstep.bus.connection import Connection
from lockstep.bus.envelope import Message
from lockstep.bus.keeper import Facts, StreamKeeper
from lockstep.bus.publisher import Publisher
from lockstep.bus.streams import ensure
from lockstep.contracts.facts import StreamHealth
from lockstep.contracts.subjects import EVENTS, FACTS
from lockstep.runtime.settings import NatsSettings
from tests.fakes.nats import connected, nats_server
from tests.integration.bus.real_bus import event, mirrored, node, replay, stored_events, until


@asynccontextmanager
async def kept(connection: Connection, publisher: Publisher) -> AsyncIterator[list[str]]:
    """The streams are kept, and the publisher says everything anew when one was lost, as services do it."""
    lost: list[str] = []
    again = asyncio.Event()

    def on_lost(stream: str) -> None:
        lost.append(stream)
        again.set()

    def facts() -> Facts:
        return Facts(claims=[publisher.claim] if publisher.claim else [])

    keeper = StreamKeeper(connection, on_lost, publisher.events, facts=facts)
    await keeper.check()

    async def republish() -> None:
        while True:
            await again.wait()
            again.clear()
            await publisher.republish()

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(keeper.run()), group.create_task(republish())]
        yield lost
        for task in tasks:
            task.cancel()


async def test_a_deleted_stream_is_made_again_and_everything_is_said_anew(connection: Connection) -> None:
    """Readers are told that what they knew no longer counts."""
    publisher = Publisher(connection, source="test")
    async with mirrored(connection) as mirror, kept(connection, publisher) as lost:
        await publisher.facts([node(1), node(2)])
        await until(lambda: len(mirror.table.slurm_nodes) == 2)
        await connection.call(f"STREAM.DELETE.{FACTS.name}")
        await until(lambda: FACTS.name in lost)
        await until(lambda: mirror.ready.is_set() and len(mirror.table.slurm_nodes) == 2)
        await publisher.fact(node(1, "DOWN"))
        await until(lambda: mirror.table.slurm_nodes["main", "gpu-1"].base == "DOWN")
        assert sorted(f.identity for f in await replay(connection)) == ["LOCKSTEP_FACTS", "gpu-1", "gpu-2"]


async def test_a_store_that_lost_its_newest_messages_is_noticed(tmp_path: Path) -> None:
    """After a power cut the same stream may end earlier than what was acknowledged."""
    folder = tmp_path / "nats"
    async with nats_server(folder) as server, connected(server.address) as connection:
        publisher = Publisher(connection, source="test")
        async with mirrored(connection) as mirror, kept(connection, publisher) as lost:
            await publisher.facts([node(1), node(2)])
            await until(lambda: len(mirror.table.slurm_nodes) == 2)
            await server.kill()
            for block in folder.rglob(f"{FACTS.name}/msgs/*"):
                block.unlink()
            await server.again()
            await until(lambda: lost == [FACTS.name])
            await until(lambda: mirror.ready.is_set() and len(mirror.table.slurm_nodes) == 2)
            assert sorted(f.identity for f in await replay(connection)) == ["LOCKSTEP_FACTS", "gpu-1", "gpu-2"]


async def test_streams_are_brought_to_what_they_must_be(connection: Connection) -> None:
    """A stream that somebody changed by hand is changed back; one that cannot be is named."""
    config = (await connection.call(f"STREAM.INFO.{FACTS.name}"))["config"]
    await connection.call(f"STREAM.UPDATE.{FACTS.name}", config | {"max_msgs_per_subject": 7})
    await ensure(connection)
    config = (await connection.call(f"STREAM.INFO.{FACTS.name}"))["config"]
    assert config["max_msgs_per_subject"] == 1
    await connection.call(f"STREAM.DELETE.{EVENTS.name}")
    await connection.call(
        f"STREAM.CREATE.{EVENTS.name}", config | {"name": EVENTS.name, "subjects": EVENTS.subjects, "storage": "memory"}
    )
    with pytest.raises(Exception, match=EVENTS.name):
        await ensure(connection)


async def test_a_changed_bound_changes_the_stream(connection: Connection) -> None:
    """At the next start of a service, without losing what fits."""
    await Publisher(connection, source="test").events([event(1), event(2)])
    await ensure(connection, NatsSettings(events_max_bytes=5 << 20, events_max_age_s=3600).streams)
    config = (await connection.call(f"STREAM.INFO.{EVENTS.name}"))["config"]
    assert (config["max_bytes"], config["max_age"]) == (5 << 20, 3600 * 10**9)
    assert await stored_events(connection) == ["e-1", "e-2"]


async def test_a_full_stream_of_facts_takes_no_more_and_drops_none(connection: Connection) -> None:
    """Whoever publishes is told so and goes on trying; an older fact is never given up for a newer."""
    small = msgspec.structs.replace(FACTS, max_bytes=1 << 20)
    await ensure(connection, [small])
    publisher = Publisher(connection, source="test", patience_s=0.5)
    with pytest.raises(Retry, match="maximum bytes"):
        await publisher.facts(node(number, comment="x" * 50_000) for number in range(30))
    there = await replay(connection)
    assert 10 < len(there) < 30
    assert [fact.identity for fact in there] == [f"gpu-{n}" for n in range(len(there))]
    await ensure(connection)
    assert await publisher.fact(node(99))


async def test_a_first_word_about_a_stream_that_does_not_get_through_is_no_gap(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was never stored cannot be missing. It is said again, and counts no loss."""
    gaps: list[str] = []
    publisher = Publisher(connection, source="test")
    keeper = StreamKeeper(connection, gaps.append, publisher.events)

    async def unanswered(_self: Acks, messages: list[Message], _within_s: float) -> list[Answer]:
        return [Retry("no answer") for _ in messages]

    with monkeypatch.context() as patch:
        patch.setattr(Acks, "send", unanswered)
        with pytest.raises(Retry):
            await keeper.check()
    await keeper.check()

    assert gaps == []
    assert {f.losses for f in await replay(connection) if isinstance(f, StreamHealth)} == {0}


@pytest.mark.parametrize("verb", ["DELETE", "PURGE"])
@pytest.mark.parametrize("stream", [FACTS.name, EVENTS.name])
async def test_eight_keepers_that_find_a_gap_tell_it_once(connection: Connection, verb: str, stream: str) -> None:
    """They look in the same moment. Each starts anew, once; the stream has one event, and one loss is counted."""
    publisher = Publisher(connection, source="test")
    await publisher.facts([node(1), node(2)])
    await publisher.events([event(1), event(2)])
    gaps: list[list[str]] = [[] for _ in range(8)]
    publishers = [Publisher(connection, source=f"p-{n}") for n in range(8)]
    keepers = [StreamKeeper(connection, each.append, p.events) for each, p in zip(gaps, publishers, strict=True)]

    async def look(keeper: StreamKeeper) -> None:
        for _ in range(20):
            with suppress(Retry):
                await keeper.check()

    await asyncio.gather(*map(look, keepers))
    await connection.call(f"STREAM.{verb}.{stream}")
    await asyncio.gather(*map(look, keepers))

    assert gaps == [[stream]] * 8
    assert len([ident for ident in await stored_events(connection) if ":gap:" in ident]) == 1
    [health] = [f for f in await replay(connection) if isinstance(f, StreamHealth) and f.stream == stream]
    assert health.losses == 1
