"""Three real nats-servers keep the streams: the leader dies or freezes while much is said, and nothing is lost."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from lockstep.base.errors import Retry
from lockstep.bus.publisher import Publisher
from lockstep.bus.streams import ensure
from lockstep.contracts.events import GapFound, NodeRebooted
from lockstep.contracts.subjects import EVENTS, FACTS, STREAMS
from lockstep.pod_watcher.main import SERVICE as POD_WATCHER
from lockstep.runtime.health import Health
from lockstep.runtime.process import Process
from tests.fakes.nats import connected, nats_server
from tests.fakes.nats_cluster import Cluster, nats_cluster
from tests.integration.test_gaps import Fleet, a_fleet, eventually, much_happens

THRICE = [msgspec.structs.replace(stream, replicas=3) for stream in STREAMS]
AT = datetime(2026, 1, 1, tzinfo=UTC)


@asynccontextmanager
async def replicated_fleet(folder: Path, cluster: Cluster) -> AsyncIterator[Fleet]:
    """Four processes that want three copies of each stream."""
    async with a_fleet(folder, cluster) as fleet:
        nats = msgspec.structs.replace(fleet.settings.nats, replicas=3)
        fleet.settings = msgspec.structs.replace(fleet.settings, nats=nats)
        yield fleet


async def replicas(fleet: Fleet) -> set[int]:
    """How many copies the streams have, as they are configured."""
    infos = [await fleet.connection.call(f"STREAM.INFO.{stream.name}") for stream in STREAMS]
    return {info["config"]["num_replicas"] for info in infos}


async def talk(publisher: Publisher, told: list[str]) -> None:
    """One event after the other, for ever; `told` are those that the stream has acknowledged."""
    while True:
        event = NodeRebooted(id=f"e-{len(told)}", at=AT, node="host-1", before="a", after="b")
        try:
            await publisher.event(event)
        except Retry:
            continue
        told.append(event.id)
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(("way", "stream"), [("killed", FACTS.name), ("frozen", EVENTS.name)])
async def test_a_stream_leader_that_goes_takes_nothing_along(tmp_path: Path, way: str, stream: str) -> None:
    """Each acknowledged event is there, once; the facts are what both systems show; nobody ends or tells of a gap."""
    async with nats_cluster(tmp_path / "nats") as cluster, replicated_fleet(tmp_path, cluster) as fleet:
        async with fleet.running(), asyncio.TaskGroup() as group:
            assert await replicas(fleet) == {3}
            told: list[str] = []
            talking = group.create_task(talk(Publisher(fleet.connection, source="test"), told))
            await asyncio.sleep(0.5)
            leader = await cluster.leader(fleet.connection, stream)
            before = len(told)
            if way == "killed":
                await leader.kill()
            else:
                leader.pause(True)
            much_happens(fleet)
            await fleet.in_step(40)
            assert len(told) > before
            if way == "killed":
                await leader.again()
            else:
                leader.pause(False)
            await asyncio.sleep(6)
            await fleet.in_step(40)
            talking.cancel()
        found = Counter(event.id for event in await fleet.events(NodeRebooted) if event.id.startswith("e-"))
        assert {ident: found[ident] for ident in told if found[ident] != 1} == {}
        assert max(found.values()) == 1
        assert await fleet.events(GapFound) == []


async def test_a_stream_in_use_gets_its_copies_while_facts_flow(tmp_path: Path) -> None:
    """From one copy to three; what was there stays, and who set three by hand keeps them."""
    async with (
        nats_cluster(tmp_path / "nats") as cluster,
        a_fleet(tmp_path, cluster) as fleet,
        fleet.running(),
        asyncio.TaskGroup() as group,
    ):
        assert await replicas(fleet) == {1}
        told: list[str] = []
        talking = group.create_task(talk(Publisher(fleet.connection, source="test"), told))
        await asyncio.sleep(0.3)
        await ensure(fleet.connection, THRICE)
        much_happens(fleet)
        await fleet.in_step()
        await ensure(fleet.connection)
        assert await replicas(fleet) == {3}
        talking.cancel()
        found = Counter(event.id for event in await fleet.events(NodeRebooted))
        assert all(found[ident] == 1 for ident in told)
        assert await fleet.events(GapFound) == []


async def test_too_few_servers_are_said_once_and_waited_for(tmp_path: Path) -> None:
    """The process lives and says what it waits for; when the third server comes, it goes on by itself."""
    with capture_logs() as lines:
        async with (
            nats_cluster(tmp_path / "nats", first=2) as cluster,
            replicated_fleet(tmp_path, cluster) as fleet,
            asyncio.TaskGroup() as group,
        ):
            health = Health()
            process = Process(fleet.settings, "pod-watcher", health, 0)
            running = group.create_task(process.run([POD_WATCHER], embedded=False))

            async def waits() -> bool:
                return "nats.replicas is 3" in health.missing().get("start", "")

            async def is_ready() -> bool:
                return not health.missing()

            await eventually(waits)
            await asyncio.sleep(3)
            await cluster.members["nats-2"].start()
            await eventually(is_ready, 30)
            assert await replicas(fleet) == {3}
            running.cancel()
    said = [line for line in lines if line["event"] == "Waits for the streams"]
    assert len(said) == 1


async def test_one_server_alone_cannot_keep_three_copies(tmp_path: Path) -> None:
    """That is said with the setting's name, as something that may change."""
    async with nats_server(tmp_path / "nats") as server, connected(server.address) as connection:
        with pytest.raises(Retry, match=r"LOCKSTEP_FACTS: nats.replicas is 3, and there are not so many servers"):
            await ensure(connection, THRICE)
