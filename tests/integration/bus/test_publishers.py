"""What a publisher sends to a real nats-server: only news, only while it may, and with its trace and its cause."""

from contextlib import aclosing
from datetime import UTC, datetime

import msgspec
import pytest

from lockstep.base.errors import Reject
from lockstep.bus.connection import Connection
from lockstep.bus.events import EventSeen, subscribe_events
from lockstep.bus.ordered import CaughtUp
from lockstep.bus.publisher import Publisher
from lockstep.bus.streams import stream_state
from lockstep.contracts.subjects import FACTS, fact_subject
from lockstep.fleet.facts import key_of
from lockstep.runtime.tracing import Step, sending, steps
from tests.integration.bus.real_bus import event, mirrored, node, replay
from tests.spans import header_of, is_child, kept_spans


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
