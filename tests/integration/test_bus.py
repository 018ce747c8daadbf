"""The bus against a real nats-server that is killed, cut off, emptied and slow."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lockstep.base.clock import now
from lockstep.base.errors import Reject, Retry
from lockstep.bus import ordered
from lockstep.bus.acks import Acks, Answer
from lockstep.bus.connection import Connection
from lockstep.bus.envelope import Message, pack_fact
from lockstep.bus.events import EventSeen, subscribe_events
from lockstep.bus.facts import FactFeed, FactSeen
from lockstep.bus.keeper import Facts, StreamKeeper
from lockstep.bus.ordered import CaughtUp, Missed, OrderedReader, Received, Start
from lockstep.bus.publisher import Publisher
from lockstep.bus.streams import ensure, stream_state
from lockstep.contracts.events import GapFound
from lockstep.contracts.facts import Fact, SlurmNode, StreamHealth
from lockstep.contracts.subjects import EVENTS, FACTS, fact_subject
from lockstep.fleet.facts import key_of
from lockstep.fleet.mirror import Mirror
from lockstep.runtime.settings import NatsSettings
from lockstep.runtime.tracing import Step, sending, steps
from tests.fakes.nats import NatsServer, TcpProxy, connected, nats_server
from tests.spans import header_of, is_child, kept_spans


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


async def test_an_unchanged_fact_is_not_sent_again(connection: Connection) -> None:
    """Only the time of reading is newer: that is the heartbeat's to say."""
    publisher = Publisher(connection, source="slurm-poller")
    assert await publisher.fact(node(1))
    before = await stream_state(connection, FACTS.name)
    read_later = msgspec.structs.replace(node(1), read_at=datetime(2026, 1, 1, tzinfo=UTC))
    assert not await publisher.fact(read_later)
    assert await stream_state(connection, FACTS.name) == before


async def test_a_state_that_comes_back_within_the_duplicate_window_is_news(connection: Connection) -> None:
    """A, B, A: whoever reads last must see A."""
    publisher = Publisher(connection, source="slurm-poller")
    for base in ("IDLE", "DOWN", "IDLE"):
        assert await publisher.fact(node(1, base))
    assert await replay(connection) == [node(1, "IDLE")]


async def test_a_new_process_sends_only_what_differs_from_the_stream(connection: Connection) -> None:
    """It is told what the stream knows, and compares."""
    await Publisher(connection, source="slurm-poller").facts([node(1), node(2)])
    successor = Publisher(connection, source="slurm-poller", epoch=2)
    successor.known(await replay(connection))
    assert await successor.facts([node(1), node(2, "DOWN"), node(3)]) == 2


async def test_what_is_gone_is_told_and_forgotten_by_the_publisher(connection: Connection) -> None:
    """The stream says so for a day; a thing that comes back is news."""
    publisher = Publisher(connection, source="slurm-poller")
    await publisher.fact(node(1))
    await publisher.fact(msgspec.structs.replace(node(1), gone=True))
    assert [fact.gone for fact in await replay(connection)] == [True]
    assert await publisher.fact(node(1))


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


async def test_a_cancellation_that_comes_together_with_the_answer_is_not_lost(connection: Connection) -> None:
    """A loop that calls JetStream ends whenever it is told to; else the process would never stop."""

    async def ask_for_ever() -> None:
        while True:
            await connection.call(f"STREAM.INFO.{FACTS.name}")

    for number in range(300):
        async with asyncio.timeout(5), asyncio.TaskGroup() as group:
            asking = group.create_task(ask_for_ever())
            await asyncio.sleep(0.0003 + number % 17 * 0.00005)
            asking.cancel()


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


async def test_a_leader_that_was_replaced_cannot_write_over_its_successor(connection: Connection) -> None:
    """It wakes up with what it wanted to say an hour ago; the stream refuses, and it is told why."""
    old = Publisher(connection, source="slurm-poller", epoch=1)
    await old.fact(node(1))
    await Publisher(connection, source="slurm-poller", epoch=2).fact(node(1, "DOWN"))
    with pytest.raises(Reject, match="epoch 2"):
        await old.fact(node(1, "MIXED"))
    assert await replay(connection) == [node(1, "DOWN", epoch=2)]


async def test_nothing_is_published_once_the_lease_may_have_run_out(connection: Connection) -> None:
    """The local fence comes before the network."""
    publisher = Publisher(connection, source="test", may_act=lambda: False)
    with pytest.raises(Reject, match="lease"):
        await publisher.fact(node(1))
    with pytest.raises(Reject, match="lease"):
        await publisher.event(event(1))
    assert await replay(connection) == []


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


async def test_a_message_carries_the_trace_of_its_own_flow(connection: Connection) -> None:
    """Several flows in one call; a heartbeat has none; the reader learns which fact arose in which."""
    publisher = Publisher(connection, source="test", sending=sending)
    with kept_spans() as spans, steps(lambda: {1: Step("one"), 2: Step("two")}) as traces:
        await publisher.facts([node(n) for n in (1, 2, 3)], {fact_subject(node(n)): traces[n] for n in (1, 2)})
        await publisher.events([event(1), event(2)], {"e-1": traces[1]})
    async with mirrored(connection) as mirror:
        flows = [flow.traceparent for flow in mirror.table.flows.of(node(n) for n in (3, 2, 1))]
    sent = spans.named("publish slurm.node")
    assert flows == [header_of(one) for one in sent]
    assert [is_child(one, spans[name]) for one, name in zip(sent, ("two", "one"), strict=True)] == [True, True]
    headers: list[str] = []
    async with aclosing(subscribe_events(connection)) as seen:
        async for item in seen:
            if isinstance(item, CaughtUp):
                break
            assert isinstance(item, EventSeen)
            headers.append(item.traceparent)
    assert headers == [header_of(spans["publish fleet.gap-found.v1"]), ""]


async def test_a_fact_keeps_its_cause_until_it_has_another(connection: Connection) -> None:
    """Through changes that have none, a successor and the loss of the stream; another cause alone is no news."""
    subject = fact_subject(node(1))

    async def cause() -> str:
        async with mirrored(connection) as mirror:
            return mirror.cause_of(key_of(node(1)))

    publisher = Publisher(connection, source="test", epoch=1)
    await publisher.facts([node(1)], causes={subject: "e-1"})
    assert await publisher.facts([node(1)], causes={subject: "e-2"}) == 0
    await publisher.facts([node(1, "DOWN")])
    assert await cause() == "e-1"
    successor = Publisher(connection, source="test", epoch=2)
    successor.known([node(1, "DOWN")], lambda _: "e-1")
    await successor.facts([node(1)])
    assert await cause() == "e-1"
    await connection.call(f"STREAM.PURGE.{FACTS.name}")
    await successor.republish()
    assert await cause() == "e-1"
    await successor.facts([node(1, "MIXED")], causes={subject: "e-3"})
    assert await cause() == "e-3"


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
