"""A write of ours shows in Slurm before the news of it has come: who waits for it, and for how long."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest

from lockstep.bus.ordered import CaughtUp
from lockstep.bus.publisher import Publisher
from lockstep.contracts.events import SlurmPhaseChanged, SlurmReasonChanged, SlurmStateChanged
from lockstep.contracts.facts import Fact, SlurmNode, Wrote
from lockstep.contracts.policy import Policy
from lockstep.fleet.mirror import Mirror
from lockstep.slurm.port import SlurmApi
from lockstep.slurm_poller.decide import bare
from lockstep.slurm_poller.handlers import ClusterPoller
from lockstep.slurm_poller.news import WITHIN_S, News
from tests.builders import OURS, a_desired, a_slurm_node, a_view, wrote_drain, wrote_undrain
from tests.unit.fleet.test_mirror import Feed
from tests.unit.slurm_poller.scene import POLL, Bus, Slurm

pytestmark = pytest.mark.looptime

IDLE, DRAINED = bare(a_slurm_node("IDLE")), bare(a_slurm_node("IDLE+DRAIN", reason=OURS))
OTHER, BUSY = bare(a_slurm_node("IDLE", name="gpu-8")), bare(a_slurm_node("MIXED", name="gpu-8"))
HELD, FREE = a_desired(a_view()), a_desired()
SET, LIFTED = wrote_drain(cause="drain-set"), wrote_undrain(cause="drain-lifted")


class Scene:
    """A poller that has told of two nodes, and what the stream has told it."""

    def __init__(self, mirror: Mirror, feed: Feed, node: SlurmNode) -> None:
        self.mirror, self.feed = mirror, feed
        self.slurm, self.bus = Slurm(node, OTHER), Bus()
        self.poller = ClusterPoller(
            "main",
            cast(SlurmApi, self.slurm),
            cast(Publisher, self.bus),
            poll=POLL,
            policy=Policy(),
            known=[node, OTHER],
            news=News(mirror),
        )

    async def say(self, fact: Fact, cause: str) -> None:
        """The stream tells this, because of that."""
        await self.feed.say(fact, cause=cause)

    def told(self) -> list[str]:
        """The workers of which facts were told, in order."""
        return [fact.name for fact in self.bus.told if isinstance(fact, SlurmNode)]

    def causes(self) -> list[str]:
        """Of what was told of the worker's state, phase and reason."""
        kinds = SlurmStateChanged | SlurmPhaseChanged | SlurmReasonChanged
        return [e.cause_id for e in self.bus.happened if isinstance(e, kinds) and e.worker.name == "gpu-7"]

    async def cycle(self) -> float:
        """Reads and tells once; how many seconds that took."""
        began = asyncio.get_running_loop().time()
        await self.poller.cycle()
        return asyncio.get_running_loop().time() - began


@asynccontextmanager
async def scene(node: SlurmNode, *asked: Fact) -> AsyncIterator[Scene]:
    """The drain service has asked for this, as the event `asked` tells."""
    feed = Feed()
    mirror = Mirror(feed)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(mirror.run())
        await feed.say(*asked, CaughtUp(), cause="asked")
        here = Scene(mirror, feed, node)
        await here.cycle()
        here.bus.told.clear()
        yield here
        task.cancel()


@pytest.mark.parametrize(
    ("before", "after", "known", "wrote"),
    [
        pytest.param(IDLE, DRAINED, [HELD], SET, id="DRAIN"),
        pytest.param(DRAINED, IDLE, [FREE, SET], LIFTED, id="UNDRAIN"),
    ],
)
async def test_a_write_that_is_read_before_its_news_is_the_cause_of_what_shows_it(
    before: SlurmNode, after: SlurmNode, known: list[Fact], wrote: Wrote
) -> None:
    """Only that worker waits; the fact carries the event that came of the write."""
    async with scene(before, *known) as here, asyncio.TaskGroup() as group:
        here.slurm.now(after, BUSY)
        cycle = group.create_task(here.cycle())
        await asyncio.sleep(0.1)
        assert here.told() == ["gpu-8"]
        assert not any("beat" in told for told in here.bus.order)
        await here.say(wrote, wrote.cause)
        await cycle

        assert here.told() == ["gpu-8", "gpu-7"]
        assert here.causes() == [wrote.cause] * 3
        first = next(e for e in here.bus.happened if isinstance(e, SlurmStateChanged) and e.worker.name == "gpu-7")
        assert first.id in here.bus.causes.values()
        assert here.bus.order[-1] != "gpu-7"


async def test_a_write_that_the_table_has_before_the_stream_is_waited_for_too() -> None:
    """In one process the table has what was written at once, and its event is not stored yet."""
    async with scene(IDLE, HELD) as here, asyncio.TaskGroup() as group:
        here.mirror.anticipate(SET)
        here.slurm.now(DRAINED, OTHER)
        cycle = group.create_task(here.cycle())
        await asyncio.sleep(0.1)
        assert here.told() == []
        await here.say(SET, SET.cause)
        await cycle

        assert here.causes() == ["drain-set"] * 3


async def test_news_that_never_comes_is_waited_for_once_and_not_for_long() -> None:
    """The writer has died, or its answer was lost: what asked for the write stands in its place."""
    async with scene(IDLE, HELD) as here:
        here.slurm.now(DRAINED, OTHER)
        assert await here.cycle() == pytest.approx(WITHIN_S)
        here.slurm.now(bare(a_slurm_node("DOWN+DRAIN", reason=OURS)), OTHER)
        assert await here.cycle() == 0

        assert set(here.causes()) == {"asked"}
        assert here.mirror.on_change == []


async def test_what_others_do_is_told_at_once() -> None:
    """A resume against a hold opens the worker until it is seen."""
    async with scene(DRAINED, HELD, SET) as here:
        await here.say(SET, SET.cause)
        here.slurm.now(IDLE, OTHER)

        assert await here.cycle() == 0
        assert set(here.causes()) == {""}


async def test_what_waited_is_read_again_where_the_stream_did_not_take_the_rest() -> None:
    """Slurm is asked for what changed since the last reading that was told whole."""
    async with scene(IDLE, HELD) as here:
        here.slurm.now(DRAINED, BUSY)
        here.bus.away = True
        await here.cycle()
        assert here.told() == []
        here.bus.away = False
        await here.say(SET, SET.cause)
        await here.cycle()

        assert here.told() == ["gpu-8", "gpu-7"]
        assert here.causes() == ["drain-set"] * 3
