"""The mirror: a feed into a table, and who is told."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from lockstep.base.errors import Fatal
from lockstep.bus.facts import FactFeed, FactSeen
from lockstep.bus.ordered import CaughtUp, Reset
from lockstep.contracts.facts import Fact, SlurmNode
from lockstep.fleet.facts import Touched, key_of
from lockstep.fleet.mirror import MERGE_AT, Mirror

W = ("main", "gpu-1")


class Feed(FactFeed):
    """A feed that says what the test says; `done` when the mirror has taken everything."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[FactSeen | CaughtUp | Reset | None] = asyncio.Queue()

    async def say(self, *items: Fact | CaughtUp | Reset | None, trace: str = "", cause: str = "", at: int = 1) -> None:
        """Says these, and waits until they were taken."""
        for item in items:
            self._queue.put_nowait(FactSeen(item, trace, at, cause) if isinstance(item, Fact) else item)
        await self._queue.join()

    async def items(self) -> AsyncIterator[FactSeen | CaughtUp | Reset]:
        """What was said; None ends it."""
        while (item := await self._queue.get()) is not None:
            yield item
            self._queue.task_done()


@asynccontextmanager
async def running() -> AsyncIterator[tuple[Mirror, Feed]]:
    """A mirror that runs."""
    feed = Feed()
    mirror = Mirror(feed)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(mirror.run())
        yield mirror, feed
        task.cancel()


def node(name: str, base: str = "IDLE") -> SlurmNode:
    """A Slurm node."""
    return SlurmNode(cluster="main", name=name, base=base)


async def test_it_is_ready_when_everything_was_told() -> None:
    """Not before: half a fleet is no fleet."""
    async with running() as (mirror, feed):
        await feed.say(node("gpu-1"))
        assert not mirror.ready.is_set()
        await feed.say(CaughtUp())
        assert mirror.ready.is_set()
        assert mirror.table.slurm_nodes[W].base == "IDLE"


async def test_a_reader_of_changes_first_hears_of_everything_then_of_each_burst_as_one() -> None:
    """Many facts while it was busy are one item."""
    async with running() as (mirror, feed):
        await feed.say(node("gpu-1"), node("gpu-2"), CaughtUp())
        changes = mirror.changes()
        assert (await anext(changes)).workers == {W, ("main", "gpu-2")}
        await feed.say(*(node("gpu-1", f"S{n}") for n in range(MERGE_AT * 2)), node("gpu-3"))
        assert await anext(changes) == Touched(workers=frozenset({W, ("main", "gpu-3")}))
        await changes.aclose()


async def test_changes_wait_until_the_mirror_is_ready() -> None:
    """Nobody decides on half of the facts."""
    async with running() as (mirror, feed):
        changes = mirror.changes()
        async with asyncio.TaskGroup() as group:
            first = group.create_task(anext(changes))
            await feed.say(node("gpu-1"))
            await asyncio.sleep(0.01)
            assert not first.done()
            await feed.say(CaughtUp())
        assert first.result().workers == {W}
        await changes.aclose()


async def test_an_echo_wakes_nobody() -> None:
    """The same fact again is no change; it is counted."""
    async with running() as (mirror, feed):
        await feed.say(node("gpu-1"), CaughtUp())
        changes = mirror.changes()
        await anext(changes)
        async with asyncio.TaskGroup() as group:
            second = group.create_task(anext(changes))
            await feed.say(node("gpu-1"))
            await asyncio.sleep(0.01)
            assert not second.done()
            assert mirror.dropped == 1
            await feed.say(node("gpu-1", "DOWN"))
        assert second.result().workers == {W}
        await changes.aclose()


@pytest.mark.parametrize("gone", [False, True])
async def test_what_one_service_put_in_ahead_of_the_stream_is_news_for_the_others_when_the_stream_tells_it(
    gone: bool,
) -> None:
    """In one process they share a table. Nobody is told before, for cause and trace come with the stream."""
    heard: list[tuple[Fact | None, Fact]] = []
    before, after = node("gpu-1"), msgspec.structs.replace(node("gpu-1", "DOWN"), gone=gone)
    async with running() as (mirror, feed):
        await feed.say(before, CaughtUp())
        mirror.on_change.append(lambda *both: heard.append(both))
        changes = mirror.changes()
        await anext(changes)
        async with asyncio.TaskGroup() as group:
            second = group.create_task(anext(changes))
            mirror.anticipate(after)
            await asyncio.sleep(0.01)
            assert mirror.table.get(after) == (None if gone else after)
            assert not second.done()
            await feed.say(after, cause="a")
        assert second.result().workers == {W}
        assert heard == [(before, after)]
        assert mirror.cause_of(key_of(after)) == "a"
        await feed.say(after)
        assert len(heard) == 1
        await changes.aclose()


async def test_a_lost_stream_empties_it_and_names_everybody_once_it_is_ready_again() -> None:
    """Nothing is decided in between."""
    async with running() as (mirror, feed):
        await feed.say(node("gpu-1"), node("gpu-2"), CaughtUp())
        changes = mirror.changes()
        await anext(changes)
        await feed.say(Reset("deleted"))
        assert not mirror.ready.is_set()
        assert len(mirror.table) == 0
        await feed.say(CaughtUp(), node("gpu-2"))
        assert (await anext(changes)).workers == {W, ("main", "gpu-2")}
        await changes.aclose()


async def test_callbacks_hear_each_change_with_what_was_before() -> None:
    """In order, news only."""
    heard: list[tuple[str, str]] = []
    async with running() as (mirror, feed):
        mirror.on_change.append(
            lambda before, after: heard.append((getattr(before, "base", "-"), getattr(after, "base", "-")))
        )
        await feed.say(node("gpu-1"), node("gpu-1"), node("gpu-1", "DOWN"))
    assert heard == [("-", "IDLE"), ("IDLE", "DOWN")]


async def test_the_trace_of_each_newest_fact_is_kept() -> None:
    """A fact that an overtaken leader still sends changes neither the table nor the trace."""
    async with running() as (mirror, feed):
        flows = mirror.table.flows
        await feed.say(msgspec.structs.replace(node("gpu-1"), epoch=2), trace="00-a")
        await feed.say(msgspec.structs.replace(node("gpu-1", "DOWN"), epoch=1), trace="00-b")
        assert [flow.traceparent for flow in flows.of([node("gpu-1"), node("gpu-2")])] == ["00-a"]
        await feed.say(Reset("lost"))
        assert flows.of([node("gpu-1")]) == []


async def test_a_feed_that_ends_is_fatal() -> None:
    """A mirror that stands still must not look alive."""
    feed = Feed()
    feed._queue.put_nowait(None)
    with pytest.raises(Fatal, match="ended"):
        await Mirror(feed).run()


async def test_the_newest_cause_of_several_things_is_found() -> None:
    """In the order of the stream; a fact without a cause leaves the one before."""
    one, two = node("gpu-1"), node("gpu-2")
    async with running() as (mirror, feed):
        await feed.say(one, cause="a", at=5)
        await feed.say(two, cause="b", at=6)
        await feed.say(node("gpu-1", "DOWN"), at=7)
        assert mirror.cause_of(key_of(one)) == "a"
        assert mirror.cause_of(key_of(one), key_of(two)) == "b"
        assert mirror.cause_of(key_of(node("gpu-3"))) == ""
        await feed.say(node("gpu-1"), cause="c", at=8)
        assert mirror.cause_of(key_of(two), key_of(one)) == "c"


async def test_a_fact_that_its_own_service_knew_before_the_stream_has_its_cause() -> None:
    """It was taken in when it was published; only the stream says why."""
    async with running() as (mirror, feed):
        mirror.table.apply(node("gpu-1"))
        await feed.say(node("gpu-1"), cause="a")
        assert mirror.cause_of(key_of(node("gpu-1"))) == "a"


async def test_what_is_gone_keeps_its_cause_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hold that went with it is told with it; not for ever, and not beyond the loss of the stream."""
    monkeypatch.setattr("lockstep.fleet.mirror.MAX_CAUSES_LEFT", 2)
    async with running() as (mirror, feed):
        await feed.say(node("gpu-0"), cause="stands")
        for i in (1, 2, 3):
            await feed.say(node(f"gpu-{i}"), cause="came")
            await feed.say(msgspec.structs.replace(node(f"gpu-{i}"), gone=True), cause=f"gone {i}")
        assert mirror.cause_of(key_of(node("gpu-0"))) == "stands"
        assert mirror.cause_of(key_of(node("gpu-3"))) == "gone 3"
        assert len(mirror.causes) <= 3
        await feed.say(Reset("deleted"))
        assert mirror.causes == {}


async def test_a_fact_of_a_lower_epoch_says_nothing_of_causes() -> None:
    """Whoever said it no longer may."""
    async with running() as (mirror, feed):
        await feed.say(msgspec.structs.replace(node("gpu-1"), epoch=2), cause="a")
        await feed.say(msgspec.structs.replace(node("gpu-1", "DOWN"), epoch=1), cause="b", at=2)
        assert mirror.cause_of(key_of(node("gpu-1"))) == "a"
