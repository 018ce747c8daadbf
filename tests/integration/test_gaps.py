"""What NATS loses is found, said once, and read anew: four processes, a real nats-server, both systems faked."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import pytest
from structlog.testing import capture_logs

from lockstep.bus.connection import Connection
from lockstep.bus.events import EventSeen, subscribe_events
from lockstep.bus.facts import FactFeed, FactSeen
from lockstep.bus.ordered import CaughtUp
from lockstep.bus.publisher import Publisher
from lockstep.bus.streams import ensure
from lockstep.contracts.events import Event, GapFound, NodeRebooted, SourceBack, StreamFilling
from lockstep.contracts.facts import Fact, KubeNode, KubePod, SlurmNode, SourceHealth
from lockstep.contracts.subjects import EVENTS, FACTS, STREAMS, Stream, facts_of
from lockstep.drain.main import SERVICE as DRAIN
from lockstep.pod_watcher.main import SERVICE as POD_WATCHER
from lockstep.reconciler.main import SERVICE as RECONCILER
from lockstep.runtime.health import Health
from lockstep.runtime.process import Process
from lockstep.runtime.settings import (
    ClusterSettings,
    HealthSettings,
    KubeSettings,
    LeaseSettings,
    NatsSettings,
    PollSettings,
    Settings,
)
from lockstep.slurm_poller.main import SERVICE as SLURM_POLLER
from tests.fakes.kube import FakeKube
from tests.fakes.nats import NatsServer, SmallDiskNats, connected, nats_server, small_disk
from tests.fakes.slurmrestd import FakeSlurmrestd
from tests.integration.test_sources import add_worker, cordon

E = TypeVar("E", bound=Event)
SERVICES = (POD_WATCHER, SLURM_POLLER, DRAIN, RECONCILER)


class Fleet:
    """Three workers, and four processes that tell of them."""

    def __init__(self, folder: Path, nats: NatsServer, kube: FakeKube, slurm: FakeSlurmrestd) -> None:
        self.nats, self.kube, self.slurm = nats, kube, slurm
        self.store = folder / "nats" / "nats"
        slurm.tokens()
        (folder / "key").write_bytes(slurm.key)
        address = nats.address
        self.settings = Settings(
            clusters=[
                ClusterSettings(name="main", namespace="slurm", url=slurm.url, key_file=str(folder / "key")),
            ],
            nats=NatsSettings(url=address.url, user=address.user, password_file=address.password_file),
            kube=KubeSettings(kubeconfig=kube.kubeconfig(folder)),
            health=HealthSettings(port=0),
            lease=LeaseSettings(enabled=False),
            poll=PollSettings(min_interval_s=0.1),
        )
        self.connection: Connection

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Each service in a process of its own; all facts are there when the context begins.

        gpu-1 is drained then, because its node is cordoned. Whatever NATS loses, it stays so.
        """
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(Process(self.settings, s.name, Health(), 0).run([s], embedded=False))
                for s in SERVICES
            ]
            try:
                await eventually(self._is_drained)
                await self.in_step()
                await asyncio.sleep(2.5)
                tasks.append(group.create_task(self._stays_drained()))
                yield
            finally:
                for task in tasks:
                    task.cancel()

    async def _is_drained(self) -> bool:
        return "DRAIN" in self.slurm.nodes["gpu-1"].flags

    async def _stays_drained(self) -> None:
        while True:
            assert "DRAIN" in self.slurm.nodes["gpu-1"].flags
            await asyncio.sleep(0.01)

    async def facts(self, *filters: str) -> list[Fact]:
        """Every fact that stands in the stream."""
        found: dict[tuple[type[Fact], str], Fact] = {}
        feed = FactFeed(self.connection, filters or FACTS.subjects)
        async with aclosing(feed.items()) as items:  # type: ignore[type-var]
            async for item in items:
                if isinstance(item, CaughtUp):
                    return [fact for fact in found.values() if not fact.gone]
                if isinstance(item, FactSeen):
                    found[type(item.fact), f"{item.fact.scope}/{item.fact.identity}"] = item.fact
        raise AssertionError

    async def events(self, kind: type[E]) -> list[E]:
        """The events of that kind that are in the stream."""
        found: list[E] = []
        async with aclosing(subscribe_events(self.connection)) as items:  # type: ignore[type-var]
            async for item in items:
                if isinstance(item, CaughtUp):
                    return found
                if isinstance(item, EventSeen) and isinstance(item.event, kind):
                    found.append(item.event)
        raise AssertionError

    async def out_of_step(self) -> list[object]:
        """Where the facts are not what both systems show, neither more nor less, and which source does not beat."""
        facts = await self.facts()
        shown = {f.name: set(f.flags) for f in facts if isinstance(f, SlurmNode)}
        nodes = {f.name: f.unschedulable for f in facts if isinstance(f, KubeNode)}
        pods = {f.name for f in facts if isinstance(f, KubePod)}
        beats = {f.source: f for f in facts if isinstance(f, SourceHealth)}
        kube = {o["metadata"]["name"]: o for o in self.kube.objects("nodes")}
        there = [
            (shown, {name: node.flags for name, node in self.slurm.nodes.items()}),
            (nodes, {name: bool(o.get("spec", {}).get("unschedulable")) for name, o in kube.items()}),
            (pods, {o["metadata"]["name"] for o in self.kube.objects("pods")}),
        ]
        silent = [beats.get(source, source) for source in ("kube", "slurm.node") if not _beats(beats.get(source))]
        return [*(pair for pair in there if pair[0] != pair[1]), *silent]

    async def are_in_step(self) -> bool:
        """Whether the facts are what both systems show."""
        return not await self.out_of_step()

    async def in_step(self, within_s: float = 25) -> None:
        """Waits until they are."""
        await eventually(self.are_in_step, within_s)

    async def one_gap(self, stream: str) -> None:
        """Waits until a gap is told, and fails unless it is one and stays one."""
        await eventually(lambda: self.events(GapFound))
        await asyncio.sleep(5)
        assert [gap.where for gap in await self.events(GapFound)] == [stream]


def _beats(source: SourceHealth | None) -> bool:
    return source is not None and source.complete_as_of is not None and not source.last_error


F = TypeVar("F", bound=Fleet)


async def eventually(ask: Callable[[], Awaitable[object]], within_s: float = 20) -> None:
    """Waits until the answer is true."""
    async with asyncio.timeout(within_s):
        while not await ask():
            await asyncio.sleep(0.1)


@asynccontextmanager
async def a_fleet(
    folder: Path, nats: NatsServer, kind: type[F] = Fleet, streams: Sequence[Stream] = STREAMS
) -> AsyncIterator[F]:
    """gpu-0 to gpu-2 on host-0 to host-2; the second is cordoned."""
    names = [f"gpu-{i}" for i in range(3)]
    async with FakeKube() as kube, FakeSlurmrestd(names, quiet_s=0.2) as slurm:
        for i in range(3):
            add_worker(kube, i)
        cordon(kube, "host-1")
        fleet = kind(folder, nats, kube, slurm)
        async with connected(nats.address, streams=streams) as fleet.connection:
            yield fleet


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    """The fleet, with a server of its own."""
    async with nats_server(tmp_path / "nats") as nats, a_fleet(tmp_path, nats) as it:
        yield it


def much_happens(fleet: Fleet) -> None:
    """On both sides: things change, come and go."""
    fleet.kube.remove("pods", "slurmd-2", "slurm")
    fleet.kube.remove("nodes", "host-2")
    cordon(fleet.kube, "host-0")
    fleet.slurm.nodes["gpu-0"].flags.add("DRAIN")
    del fleet.slurm.nodes["gpu-2"]
    fleet.slurm.touch()


async def test_a_server_that_forgets_its_newest_messages_is_found_out(fleet: Fleet) -> None:
    """It comes back with the store of some seconds ago: what has gone since must not come back to life."""
    store = fleet.store
    async with fleet.running():
        fleet.nats.pause(True)
        shutil.copytree(store, store.with_name("earlier"))
        fleet.nats.pause(False)
        much_happens(fleet)
        await fleet.in_step()
        await fleet.nats.kill()
        shutil.rmtree(store)
        store.with_name("earlier").rename(store)
        await fleet.nats.again()
        await eventually(lambda: fleet.events(GapFound))
        await fleet.in_step()
        await asyncio.sleep(5)
        gaps = [gap.where for gap in await fleet.events(GapFound)]
        assert gaps.count(FACTS.name) == 1
        assert gaps.count(EVENTS.name) <= 1
        assert await fleet.out_of_step() == []


@pytest.mark.parametrize("stream", [FACTS.name, EVENTS.name])
async def test_a_deleted_stream_is_told_once(fleet: Fleet, stream: str) -> None:
    """It is made anew, and everything is read anew when it was that of the facts."""
    async with fleet.running():
        await fleet.connection.call(f"STREAM.DELETE.{stream}")
        much_happens(fleet)
        await fleet.one_gap(stream)
        await fleet.in_step()


@pytest.mark.parametrize("stream", [FACTS.name, EVENTS.name])
async def test_a_purged_stream_is_told_once(fleet: Fleet, stream: str) -> None:
    """An administrator empties it; nothing else changes, and no service would ever send those facts again."""
    async with fleet.running():
        await fleet.connection.call(f"STREAM.PURGE.{stream}")
        await fleet.one_gap(stream)
        await fleet.in_step()


async def test_facts_of_one_kind_that_were_purged_are_told_and_read_anew(fleet: Fleet) -> None:
    """The stream goes on as if nothing were missing; those who know the facts count more than it has."""
    async with fleet.running():
        await fleet.connection.call(f"STREAM.PURGE.{FACTS.name}", {"filter": facts_of(SlurmNode)})
        await fleet.one_gap(FACTS.name)
        await fleet.in_step()


async def test_a_gap_leads_to_a_new_list_of_both_systems(fleet: Fleet) -> None:
    """Not only to saying again what the watchers believe: Slurm's change here shows in no stamp."""
    async with fleet.running():
        lists = fleet.kube.lists
        fleet.slurm.nodes["gpu-2"].flags.add("DRAIN")
        await fleet.connection.call(f"STREAM.PURGE.{FACTS.name}")
        await eventually(lambda: fleet.events(GapFound))
        await fleet.in_step()
        assert fleet.kube.lists >= lists + 3


async def test_everything_that_nats_had_is_lost(fleet: Fleet) -> None:
    """The store is wiped: one gap for each stream that somebody had used."""
    async with fleet.running():
        await fleet.nats.kill()
        shutil.rmtree(fleet.store)
        much_happens(fleet)
        await fleet.nats.again()
        await eventually(lambda: fleet.events(GapFound))
        await fleet.in_step()
        await asyncio.sleep(5)
        gaps = [gap.where for gap in await fleet.events(GapFound)]
        assert sorted(set(gaps)) == sorted(gaps)
        assert {FACTS.name, EVENTS.name} <= set(gaps)


async def test_no_gap_is_told_while_nothing_is_lost(fleet: Fleet) -> None:
    """Restarts of NATS and of the services, facts that change and go: all in order."""
    for _ in range(2):
        async with fleet.running():
            await fleet.nats.kill()
            await fleet.nats.again()
            fleet.slurm.nodes["gpu-0"].flags ^= {"DRAIN"}
            fleet.slurm.touch()
            fleet.kube.remove("nodes", "host-2") if len(fleet.kube.objects("nodes")) > 2 else add_worker(fleet.kube, 2)
            await fleet.in_step()
            await asyncio.sleep(5)
    assert await fleet.events(GapFound) == []
    assert [event for event in await fleet.events(SourceBack) if event.source == "nats"] == []


async def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    """NATS answers and stores nothing: services go on trying. Afterwards: two lines a process, one event for all."""
    with small_disk(tmp_path / "nats" / "nats") as ballast, capture_logs() as lines:

        def told(text: str) -> list[str]:
            return [line["event"] for line in lines if line["event"] == text]

        async def is_stuck() -> bool:
            return len(told("NATS stores nothing")) >= 2

        async with (
            nats_server(tmp_path / "nats", SmallDiskNats) as nats,
            a_fleet(tmp_path, nats) as fleet,
            fleet.running(),
        ):
            before = len(await fleet.events(Event))
            ballast.fill()
            much_happens(fleet)
            await eventually(is_stuck, within_s=40)
            await asyncio.sleep(3)
            assert await fleet.out_of_step()
            ballast.free()
            await nats.kill()
            await nats.again()
            await fleet.in_step()
            await asyncio.sleep(5)
            assert await fleet.out_of_step() == []
            assert len(await fleet.events(Event)) > before
            outages = [event for event in await fleet.events(SourceBack) if event.source == "nats"]
            assert len(outages) == 1
            assert await fleet.events(GapFound) == []
        assert len(told("NATS stores messages again")) == len(told("NATS stores nothing")) <= len(SERVICES)


async def test_a_stream_that_fills_up_is_told_once_by_all(fleet: Fleet) -> None:
    """Four processes see it cross the line; there is one event, and none more while it stays there."""
    events = NatsSettings(events_max_bytes=1 << 20).streams[1]
    async with fleet.running():
        await ensure(fleet.connection, [events])
        publisher = Publisher(fleet.connection, source="test")
        at, text = datetime(2026, 1, 1, tzinfo=UTC), "x" * 50_000
        for number in range(18):
            await publisher.event(NodeRebooted(id=f"e-{number}", at=at, node="host-1", before=text, after=""))
        await eventually(lambda: fleet.events(StreamFilling))
        await asyncio.sleep(5)
        [event] = await fleet.events(StreamFilling)
        assert event.stream == EVENTS.name
        assert 0.8 <= event.used_bytes / event.limit_bytes < 1
