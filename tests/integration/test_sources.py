"""Both watchers as they run, over a real nats-server, with an API server and a slurmrestd that can fail."""

import asyncio
import resource
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lockstep.bus.connection import Connection
from lockstep.bus.events import EventSeen, subscribe_events
from lockstep.bus.facts import FactFeed
from lockstep.bus.ordered import CaughtUp
from lockstep.contracts.events import (
    Event,
    NodeCordoned,
    PodGone,
    SlurmNodeVanished,
    SlurmStateChanged,
    SourceBack,
    SourceLost,
)
from lockstep.contracts.facts import SlurmNode
from lockstep.contracts.subjects import FACTS, facts_of
from lockstep.fleet.facts import FactTable
from lockstep.fleet.mirror import Mirror
from lockstep.kube import keys
from lockstep.pod_watcher.main import SERVICE as POD_WATCHER
from lockstep.runtime.service import run_services
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
from tests.fakes.nats import NatsServer, connected, nats_server
from tests.fakes.slurmrestd import FakeSlurmrestd

KUBE, NODES = ("kube", "_site"), ("slurm.node", "main")


class Site:
    """The three systems, and what a service would see of them."""

    def __init__(self, folder: Path, nats: NatsServer, kube: FakeKube, slurm: FakeSlurmrestd) -> None:
        self.nats, self.kube, self.slurm = nats, kube, slurm
        slurm.tokens()
        key = folder / "key"
        key.write_bytes(slurm.key)
        address = nats.address
        self.settings = Settings(
            clusters=[ClusterSettings(name="main", namespace="slurm", url=slurm.url, key_file=str(key))],
            nats=NatsSettings(url=address.url, user=address.user, password_file=address.password_file),
            kube=KubeSettings(kubeconfig=kube.kubeconfig(folder)),
            health=HealthSettings(port=0),
            lease=LeaseSettings(enabled=False),
            poll=PollSettings(min_interval_s=0.1),
        )
        self.connection: Connection
        self.task: asyncio.Task[None]
        self.table: FactTable

    @asynccontextmanager
    async def sources(self, settings: Settings | None = None) -> AsyncIterator[None]:
        """Both watchers run inside the context."""
        work = run_services(settings or self.settings, [POD_WATCHER, SLURM_POLLER], name="sources")
        self.task = task = asyncio.get_running_loop().create_task(work)
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def as_of(self, source: tuple[str, str]) -> datetime:
        """The newest heartbeat."""
        health = self.table.sources.get(source)
        return (health and health.complete_as_of) or datetime.min.replace(tzinfo=UTC)

    async def complete(self) -> None:
        """Waits until both sources were complete after now."""
        now = datetime.now(UTC)  # noqa: TID251
        await eventually(lambda: self.task.done() or min(self.as_of(KUBE), self.as_of(NODES)) > now, within_s=20)
        assert not self.task.done(), self.task.exception()

    async def events(self) -> list[Event]:
        """All events that are in the stream."""
        found: list[Event] = []
        async with aclosing(subscribe_events(self.connection)) as items:  # type: ignore[type-var]
            async for item in items:
                if isinstance(item, CaughtUp):
                    break
                if isinstance(item, EventSeen) and isinstance(item.event, Event):
                    found.append(item.event)
        return found


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    """Three workers: gpu-0 to gpu-2 on host-0 to host-2."""
    async with (
        nats_server(tmp_path / "nats") as nats,
        FakeKube() as kube,
        FakeSlurmrestd([f"gpu-{i}" for i in range(3)], quiet_s=0.2) as slurm,
    ):
        for i in range(3):
            add_worker(kube, i)
        it = Site(tmp_path, nats, kube, slurm)
        async with connected(nats.address) as connection, asyncio.TaskGroup() as group:
            mirror = Mirror(FactFeed(connection))
            it.connection, it.table = connection, mirror.table
            reading = group.create_task(mirror.run())
            yield it
            reading.cancel()


def add_worker(kube: FakeKube, i: int) -> None:
    """A Node and a worker pod on it."""
    kube.put("nodes", f"host-{i}", status={"nodeInfo": {"bootID": "b"}})
    kube.put(
        "pods",
        f"slurmd-{i}",
        "slurm",
        metadata={"labels": {keys.APP: "slurmd", keys.CLUSTER: "main"}},
        spec={"nodeName": f"host-{i}", "hostname": f"gpu-{i}"},
        status={"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    )


def cordon(kube: FakeKube, name: str) -> None:
    """As kubectl does."""
    fields = [{"manager": "kubectl-cordon", "fieldsV1": {"f:spec": {"f:unschedulable": {}}}}]
    kube.put("nodes", name, spec={"unschedulable": True}, metadata={"managedFields": fields})


async def eventually(holds: Callable[[], object], within_s: float = 10.0) -> None:
    """Waits until it holds."""
    async with asyncio.timeout(within_s):
        while not holds():
            await asyncio.sleep(0.01)


async def test_both_systems_are_in_the_mirror(site: Site) -> None:
    """Nodes, pods, Holds, Slurm nodes; jobs where a drain waits for them."""
    job = site.slurm.start_job(["gpu-1"])
    site.slurm.nodes["gpu-1"].flags.add("DRAIN")
    site.kube.put("holds", "dimm", "slurm", spec={"workers": {"names": ["gpu-2"]}, "reason": "DIMM"})
    site.kube.put("holds", "bad", "slurm", spec={"reason": "no workers"})
    async with site.sources():
        await site.complete()

        assert set(site.table.nodes) == {"host-0", "host-1", "host-2"}
        assert {key for key, pods in site.table.pods.items() if len(pods) == 1} == set(site.table.slurm_nodes)
        assert [str(job)] == list(site.table.jobs["main"])
        holds = site.table.holds["main"]
        assert holds["slurm/dimm"].spec is not None
        assert "workers" in holds["slurm/bad"].fault


async def test_a_cordon_is_a_fact_and_an_event_at_once(site: Site) -> None:
    """Through API server, watch and NATS."""
    async with site.sources():
        await site.complete()
        took = []
        for i in range(3):
            began = time.perf_counter()
            cordon(site.kube, f"host-{i}")
            while not site.table.nodes[f"host-{i}"].unschedulable:
                await asyncio.sleep(0.0005)
            took.append(time.perf_counter() - began)
        await asyncio.sleep(0.1)
        events = await site.events()

    assert min(took) < 0.05
    assert [(type(event), getattr(event, "by", "")) for event in events] == [(NodeCordoned, "kubectl-cordon")] * 3


async def test_after_a_restart_what_is_missing_is_gone_and_the_rest_is_not_said_again(site: Site) -> None:
    """What happened meanwhile is told as an event."""
    async with site.sources():
        await site.complete()
    site.kube.remove("pods", "slurmd-2", "slurm")
    site.kube.remove("nodes", "host-2")
    cordon(site.kube, "host-1")
    site.slurm.nodes["gpu-0"].flags.add("DRAIN")
    del site.slurm.nodes["gpu-2"]
    site.slurm.touch()
    read = {name: fact.read_at for (_, name), fact in site.table.slurm_nodes.items()}
    async with site.sources():
        await site.complete()
        events = await site.events()

    assert set(site.table.nodes) == {"host-0", "host-1"}
    assert set(site.table.slurm_nodes) == {("main", "gpu-0"), ("main", "gpu-1")}
    assert not site.table.pods["main", "gpu-2"]
    assert site.table.slurm_nodes["main", "gpu-1"].read_at == read["gpu-1"]
    assert site.table.slurm_nodes["main", "gpu-0"].read_at != read["gpu-0"]
    told = {type(event) for event in events}
    assert {NodeCordoned, PodGone, SlurmStateChanged, SlurmNodeVanished} <= told
    assert {e.worker.kube_node for e in events if isinstance(e, SlurmStateChanged)} == {"host-0"}


async def test_an_outage_of_slurm_is_told_once_and_facts_stand(site: Site) -> None:
    """Kubernetes goes on meanwhile."""
    async with site.sources():
        await site.complete()
        site.slurm.slurmctld_up = False
        await eventually(lambda: site.table.sources[NODES].last_error)
        as_of = site.as_of(NODES)
        cordon(site.kube, "host-1")
        await eventually(lambda: site.table.nodes["host-1"].unschedulable)
        await asyncio.sleep(1)
        assert site.as_of(NODES) == as_of
        assert len(site.table.slurm_nodes) == 3
        site.slurm.slurmctld_up = True
        await site.complete()
        await asyncio.sleep(0.2)
        events = await site.events()

    outages = [event for event in events if isinstance(event, SourceLost | SourceBack)]
    assert [type(event) for event in outages] == [SourceLost, SourceBack]


async def test_an_outage_of_kubernetes_is_told_once_and_facts_stand(site: Site) -> None:
    """Three watches break; what changed meanwhile is found by the lists after it."""
    async with site.sources():
        await site.complete()
        port = int(site.kube.url.rpartition(":")[2])
        await site.kube.stop()
        await eventually(lambda: site.table.sources[KUBE].last_error)
        as_of = site.as_of(KUBE)
        site.kube.remove("pods", "slurmd-2", "slurm")
        await asyncio.sleep(1)
        assert site.as_of(KUBE) == as_of
        assert len(site.table.pods) == 3
        await site.kube.start(port)
        await site.complete()
        await asyncio.sleep(0.2)
        events = await site.events()

    outages = [event for event in events if isinstance(event, SourceLost | SourceBack)]
    assert [type(event) for event in outages] == [SourceLost, SourceBack]
    assert len(site.table.pods) == 2


async def test_what_changes_while_nats_is_dead_is_told_when_it_is_back(site: Site) -> None:
    """Kill -9 and a start on the same store."""
    async with site.sources():
        await site.complete()
        await site.nats.kill()
        cordon(site.kube, "host-1")
        site.slurm.nodes["gpu-1"].flags.add("DRAIN")
        site.slurm.touch()
        await asyncio.sleep(1)
        await site.nats.again()
        await eventually(lambda: site.table.nodes["host-1"].unschedulable, within_s=20)
        await eventually(lambda: "DRAIN" in site.table.slurm_nodes["main", "gpu-1"].flags)
        await site.complete()


async def test_a_lost_stream_is_filled_again(site: Site) -> None:
    """All facts are there anew although nothing has changed."""
    async with site.sources():
        await site.complete()
        await site.connection.call(f"STREAM.DELETE.{FACTS.name}")
        await asyncio.sleep(0.5)
        await eventually(lambda: len(site.table.nodes) == 3 and len(site.table.slurm_nodes) == 3, within_s=20)
        await site.complete()


async def test_a_thousand_workers_cost_little_while_nothing_happens(site: Site) -> None:
    """Watchers, publisher, mirror and fakes share this process: the bound is wide, the bench narrow."""
    for i in range(3, 1_000):
        add_worker(site.kube, i)
        site.slurm.nodes[f"gpu-{i}"] = type(site.slurm.nodes["gpu-0"])(name=f"gpu-{i}")
    site.slurm.touch()
    settings = msgspec.structs.replace(site.settings, poll=PollSettings())
    async with site.sources(settings):
        await eventually(lambda: len(site.table.slurm_nodes) == len(site.table.nodes) == 1_000, within_s=60)
        await site.complete()
        await asyncio.sleep(3)
        before, calls = resource.getrusage(resource.RUSAGE_SELF), len(site.slurm.calls)
        await asyncio.sleep(5)
        after = resource.getrusage(resource.RUSAGE_SELF)

    share = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / 5
    print(f"idle with 1,000 workers: {share:.1%} of a core, {len(site.slurm.calls) - calls} requests")
    assert share < 0.15


async def test_a_fact_of_slurm_is_where_its_subject_says(site: Site) -> None:
    """One subject a thing, so that a reader may ask for one kind."""
    async with site.sources():
        await site.complete()
    feed = FactFeed(site.connection, [facts_of(SlurmNode, "main")])
    found: list[Any] = []
    async with aclosing(feed.items()) as items:  # type: ignore[type-var]
        async for item in items:
            if isinstance(item, CaughtUp):
                break
            found.append(item)

    assert sorted(seen.fact.name for seen in found) == ["gpu-0", "gpu-1", "gpu-2"]
