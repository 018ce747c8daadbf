"""The pod watcher over a scripted Kubernetes and a bus that writes down what it is given."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from random import Random
from typing import Any, cast

import msgspec
import pytest
from structlog.testing import capture_logs

from lockstep.base.errors import Fatal, Retry
from lockstep.bus.publisher import Publisher
from lockstep.contracts.common import WorkerRef
from lockstep.contracts.events import Event, NodeEvent, NodeGone, SourceBack, SourceLost
from lockstep.contracts.facts import Fact, KubeHold, KubeNode, KubePod, SourceHealth
from lockstep.contracts.subjects import tag_of
from lockstep.fleet.facts import FactTable
from lockstep.fleet.pairing import Site
from lockstep.kube.errors import Unreachable
from lockstep.kube.port import Delta, KubeApi
from lockstep.kube.wire import Hold, ManagedMeta, Node, NodeSpec, Pod
from lockstep.pod_watcher import handlers
from lockstep.pod_watcher.handlers import PodWatcher
from lockstep.pod_watcher.traces import Traces
from lockstep.runtime.settings import ClusterSettings, Settings
from lockstep.runtime.telemetry import KEYS
from tests.spans import header_of, kept_spans

AT = datetime(2026, 7, 1, 12, tzinfo=UTC)
SETTINGS = Settings(
    clusters=[ClusterSettings(name="main", namespace="slurm", url="http://slurm:6820", key_file="/key")]
)
SYNCED: Delta[Any] = Delta(kind="synced", at=AT)


class Bus:
    """Writes down what is published; does not answer while `away`."""

    def __init__(self) -> None:
        self.told: list[Fact] = []
        self.happened: list[Event] = []
        self.order: list[str] = []
        self.traces: dict[str, str] = {}
        self.causes: dict[str, str] = {}
        self.away = False

    async def facts(
        self,
        facts: Sequence[Fact],
        traces: Mapping[str, str] | None = None,
        causes: Mapping[str, str] | None = None,
    ) -> int:
        """As the publisher."""
        if self.away:
            raise Retry("NATS is away", after_s=0.01)
        self.causes |= causes or {}
        self.told += facts
        self.order += [fact.identity for fact in facts]
        self.traces |= traces or {}
        return len(self.told)

    async def fact(self, fact: Fact) -> bool:
        """As the publisher."""
        return await self.facts([fact]) > 0

    async def events(self, events: Iterable[Event], traces: Mapping[str, str] | None = None) -> None:
        """As the publisher."""
        if self.away:
            raise Retry("NATS is away", after_s=0.01)
        self.happened += events
        self.order += [tag_of(type(event)) for event in events]
        self.traces |= traces or {}

    @property
    def beats(self) -> list[SourceHealth]:
        """The heartbeats and health messages."""
        return [fact for fact in self.told if isinstance(fact, SourceHealth)]

    @property
    def things(self) -> list[Fact]:
        """All other facts."""
        return [fact for fact in self.told if not isinstance(fact, SourceHealth)]


class Kube:
    """A watch for each kind that says what the test says."""

    def __init__(self) -> None:
        self.lines: dict[type[Any], asyncio.Queue[Delta[Any] | None]] = {k: asyncio.Queue() for k in (Node, Pod, Hold)}
        self.silent = False

    async def watch(self, kind: type[Any], **_: Any) -> AsyncIterator[Delta[Any]]:
        """As the port."""
        while (delta := await self.lines[kind].get()) is not None:
            yield delta

    async def server_version(self) -> None:
        """A sign of life."""
        if self.silent:
            raise Unreachable("no answer")

    def say(self, kind: type[Any], *deltas: Delta[Any] | None) -> None:
        """Say this on the watch of a kind."""
        for delta in deltas:
            self.lines[kind].put_nowait(delta)

    def all_synced(self) -> None:
        """Every list is complete."""
        for kind in self.lines:
            self.say(kind, SYNCED)


class Scene:
    """A watcher that runs."""

    def __init__(self, known: Iterable[Fact] = ()) -> None:
        self.kube, self.bus = Kube(), Bus()
        self.watcher = PodWatcher(
            cast(KubeApi, self.kube),
            cast(Publisher, self.bus),
            SETTINGS,
            known=known,
            step_of=Traces(FactTable(), Site(), ["main"]).step,
            workers_on=lambda node: [WorkerRef(cluster="main", name="gpu-7", kube_node=node)],
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Scene"]:
        """Runs inside the context."""
        task = asyncio.get_running_loop().create_task(self.watcher.run())
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers, "BEAT_S", 0.02)
    monkeypatch.setattr(handlers, "PROBE_S", 0.02)
    monkeypatch.setattr(handlers, "AGAIN_S", 0.02)


def node(name: str, version: int = 1, **spec: Any) -> Node:
    """A Node."""
    return Node(metadata=ManagedMeta(name=name, uid=f"u-{name}", resource_version=str(version)), spec=NodeSpec(**spec))


def changed(after: Any) -> Delta[Any]:
    """A watch's line."""
    return Delta(kind="changed", after=after, at=AT)


async def eventually(holds: Callable[[], object], within_s: float = 2.0) -> None:
    """Waits until it holds."""
    async with asyncio.timeout(within_s):
        while not holds():
            await asyncio.sleep(0.005)


async def test_beats_only_when_every_watch_is_complete() -> None:
    """Facts come at once; that they are all, is said when the last list has come."""
    async with Scene().running() as scene:
        scene.kube.say(Node, changed(node("host-1")), SYNCED)
        scene.kube.say(Pod, SYNCED)
        await eventually(lambda: scene.bus.things)
        await asyncio.sleep(0.05)
        assert scene.bus.beats == []

        scene.kube.say(Hold, SYNCED)
        await eventually(lambda: len(scene.bus.beats) > 1)

        assert all(beat.complete_as_of is not None for beat in scene.bus.beats)
        assert scene.bus.happened == []


async def test_a_change_is_published_within_five_milliseconds() -> None:
    """From the watch's line to the bus."""
    async with Scene().running() as scene:
        scene.kube.all_synced()
        await eventually(lambda: scene.bus.beats)
        clock = asyncio.get_running_loop().time
        took = []
        for i in range(50):
            before, began = len(scene.bus.things), clock()
            scene.kube.say(Node, changed(node("host-1", i, unschedulable=i % 2 == 0)))
            while len(scene.bus.things) == before:
                await asyncio.sleep(0)
            took.append(clock() - began)

        assert sorted(took)[len(took) // 2] < 0.005


async def test_a_change_is_one_line_and_what_is_first_seen_is_none() -> None:
    """A fleet that is met for the first time has not changed."""
    with capture_logs() as logs:
        async with Scene().running() as scene:
            scene.kube.say(Node, changed(node("host-1")), changed(node("host-2")))
            scene.kube.all_synced()
            await eventually(lambda: scene.bus.beats)
            scene.kube.say(Node, changed(node("host-1", 1, unschedulable=True)))
            await eventually(lambda: scene.bus.happened)

    assert [(line["event"], line["node"], line["happened"]) for line in logs] == [
        ("Changed", "host-1", ["node.cordoned.v1"])
    ]


async def test_after_a_restart_only_differences_are_told() -> None:
    """What is as the stream says is left alone; what is no longer there is gone."""
    known = [
        KubeNode(name="host-1", uid="u-host-1", epoch=1, read_at=AT),
        KubeNode(name="host-2", uid="u-host-2", epoch=1, read_at=AT),
        KubePod(cluster="removed", worker="w", namespace="old", name="w"),
        KubeHold(cluster="main", namespace="slurm", name="dimm"),
    ]
    async with Scene(known).running() as scene:
        scene.kube.say(Node, changed(node("host-1")), changed(node("host-3", unschedulable=True)), SYNCED)
        await eventually(lambda: any(f.identity == "host-3" for f in scene.bus.things))
        assert "slurm/dimm" not in {f.identity for f in scene.bus.things}
        scene.kube.say(Pod, SYNCED)
        scene.kube.say(Hold, SYNCED)
        await eventually(lambda: scene.bus.beats)

        told = {fact.identity: fact.gone for fact in scene.bus.things}
        assert told == {"host-3": False, "host-2": True, "old/w": True, "slurm/dimm": True}
        assert all(fact.epoch == 0 for fact in scene.bus.told)


async def test_an_outage_is_two_events_and_two_lines() -> None:
    """Two watches that are lost and try again are one outage; facts stand and the heartbeat stays away."""
    with capture_logs() as logs:
        async with Scene().running() as scene:
            scene.kube.say(Node, changed(node("host-1")))
            scene.kube.all_synced()
            await eventually(lambda: scene.bus.beats)
            for kind in (Node, Pod):
                scene.kube.say(kind, Delta(kind="lost", at=AT, error="connection refused"))
            await eventually(lambda: scene.bus.happened)
            await asyncio.sleep(0.05)
            as_of = {beat.complete_as_of for beat in scene.bus.beats}
            await asyncio.sleep(0.1)
            assert {beat.complete_as_of for beat in scene.bus.beats} == as_of
            assert scene.bus.beats[-1].last_error == "nodes: connection refused"

            scene.kube.say(Node, SYNCED)
            await asyncio.sleep(0.05)
            assert {beat.complete_as_of for beat in scene.bus.beats} == as_of
            scene.kube.say(Pod, SYNCED)
            await eventually(lambda: len(scene.bus.happened) > 1)
            await eventually(lambda: not scene.bus.beats[-1].last_error)

    assert [type(event) for event in scene.bus.happened] == [SourceLost, SourceBack]
    assert not any(fact.gone for fact in scene.bus.things)
    assert [line["log_level"] for line in logs] == ["warning", "info"]
    assert {key for line in logs for key in line} - {"log_level"} <= KEYS


async def test_the_end_of_an_outage_that_a_predecessor_told_of_is_told() -> None:
    """It was cut off from its lease too: its successor says that Kubernetes is back, and not again that it was lost."""
    known = [SourceHealth(source="kube", last_error="nodes: refused", failing_since=AT, read_at=AT)]
    with capture_logs() as logs:
        async with Scene(known).running() as scene:
            scene.kube.say(Node, Delta(kind="lost", at=AT, error="refused"))
            scene.kube.all_synced()
            await eventually(lambda: scene.bus.happened)
            await eventually(lambda: scene.bus.beats and not scene.bus.beats[-1].last_error)

    assert [type(event) for event in scene.bus.happened] == [SourceBack]
    assert [line["log_level"] for line in logs] == ["info"]


async def test_a_broken_path_is_noticed_although_every_watch_is_silent() -> None:
    """A half-open connection tells nothing; then the API server is asked for a sign of life."""
    async with Scene().running() as scene:
        scene.kube.all_synced()
        await eventually(lambda: scene.bus.beats)
        scene.kube.silent = True
        await eventually(lambda: scene.bus.happened)
        assert isinstance(scene.bus.happened[0], SourceLost)
        last = scene.bus.beats[-1].complete_as_of
        await asyncio.sleep(0.1)
        assert scene.bus.beats[-1].complete_as_of == last

        scene.kube.silent = False
        await eventually(lambda: len(scene.bus.happened) == 2)
        await eventually(lambda: scene.bus.beats[-1].complete_as_of != last)


async def test_nothing_is_forgotten_while_nats_is_away() -> None:
    """The newest state is told when it is back, with the events; no heartbeat comes before it."""
    async with Scene().running() as scene:
        scene.kube.say(Node, changed(node("host-1")))
        scene.kube.all_synced()
        await eventually(lambda: scene.bus.beats)
        scene.bus.away = True
        scene.kube.say(Node, changed(node("host-1", 2, unschedulable=True)), changed(node("host-2")))
        await asyncio.sleep(0.05)
        scene.kube.say(Node, Delta(kind="gone", before=node("host-2"), at=AT))
        await asyncio.sleep(0.05)
        told = len(scene.bus.told)
        scene.bus.away = False
        await eventually(lambda: scene.bus.happened)

        after = scene.bus.told[told:]
        assert isinstance(after[0], KubeNode)
        assert after[0].unschedulable
        assert [f.gone for f in after if f.identity == "host-1"] == [False]
        await eventually(lambda: {f.identity: f.gone for f in scene.bus.things}["host-2"])


async def test_a_burst_ends_in_the_truth() -> None:
    """Cordoned and uncordoned a thousand times, a random part unseen: the last state is told, at least once."""
    random = Random(4)
    async with Scene().running() as scene:
        scene.kube.say(Node, changed(node("host-1")))
        scene.kube.all_synced()
        await eventually(lambda: scene.bus.beats)
        for i in range(1_000):
            if random.random() < 0.5:
                scene.kube.say(Node, changed(node("host-1", i, unschedulable=i % 2 == 0)))
            if random.random() < 0.2:
                await asyncio.sleep(0)
        scene.kube.say(Node, changed(node("host-1", 1_001, unschedulable=True)))
        await eventually(scene.kube.lines[Node].empty)
        await asyncio.sleep(0.05)

        last = scene.bus.things[-1]
        assert isinstance(last, KubeNode)
        assert last.unschedulable
        assert last.revision == "1001"


async def test_the_end_of_a_watch_ends_the_service() -> None:
    """A watcher that is dead in a process that lives would be blind without anybody knowing."""
    scene = Scene()
    scene.kube.say(Pod, None)
    with pytest.raises(ExceptionGroup) as caught:
        await asyncio.wait_for(scene.watcher.run(), 2)

    assert caught.group_contains(Fatal)


async def test_a_restart_with_what_was_published_says_nothing_new() -> None:
    """Facts of a first run, read back with its epoch, are no differences for the second."""
    async with Scene().running() as first:
        first.kube.say(Node, changed(node("host-1", unschedulable=True)))
        first.kube.all_synced()
        await eventually(lambda: first.bus.beats)
    known = [msgspec.structs.replace(fact, epoch=4) for fact in first.bus.things]
    async with Scene(known).running() as second:
        second.kube.say(Node, changed(node("host-1", unschedulable=True)))
        second.kube.all_synced()
        await eventually(lambda: second.bus.beats)

        assert second.bus.things == []


async def test_each_change_begins_a_flow_of_its_own_and_what_is_first_seen_none() -> None:
    """Two cordons at once are two traces; each goes along with its fact and its event."""
    with kept_spans("pod-watcher") as spans:
        async with Scene().running() as scene:
            scene.kube.say(Node, changed(node("host-1")), changed(node("host-2")))
            scene.kube.all_synced()
            await eventually(lambda: scene.bus.beats)
            assert (spans.all, scene.bus.traces) == ([], {})

            cordoned = [changed(node(name, 2, unschedulable=True)) for name in ("host-1", "host-2")]
            scene.kube.say(Node, *cordoned)
            await eventually(lambda: len(scene.bus.happened) == 2)
    ended = {str((span.attributes or {})["k8s.node.name"]): span for span in spans.named("kubernetes changed")}
    headers = {name: header_of(span) for name, span in ended.items()}
    assert len({header[3:35] for header in headers.values()}) == 2
    assert scene.bus.traces == {
        **{f"lockstep.fact.kube.node._site.{name}": header for name, header in headers.items()},
        **{event.id: headers[event.identity] for event in scene.bus.happened},
    }


async def test_what_happened_comes_before_the_fact_and_is_its_cause() -> None:
    """A crash in between repeats the event and loses none; each of many facts in one go has its own."""
    async with Scene().running() as scene:
        scene.kube.say(Node, changed(node("host-1")), changed(node("host-2")))
        scene.kube.all_synced()
        await eventually(lambda: scene.bus.beats)
        scene.bus.order.clear()
        scene.kube.say(
            Node, changed(node("host-1", 2, unschedulable=True)), changed(node("host-2", 2, unschedulable=True))
        )
        await eventually(lambda: "host-2" in scene.bus.order)

        assert scene.bus.order[:4] == ["node.cordoned.v1", "node.cordoned.v1", "host-1", "host-2"]
        assert scene.bus.causes == {
            f"lockstep.fact.kube.node._site.{name}": f"u-{name}:2:cordoned" for name in ("host-1", "host-2")
        }


async def test_what_happens_to_a_node_names_the_workers_on_it() -> None:
    """Whoever follows a worker need not know which node it is on."""
    async with Scene().running() as scene:
        scene.kube.say(Node, changed(node("host-1")))
        scene.kube.all_synced()
        await eventually(lambda: scene.bus.beats)
        scene.kube.say(Node, changed(node("host-1", 2, unschedulable=True)))
        scene.kube.say(Node, changed(node("host-1", 3)), Delta(kind="gone", before=node("host-1", 3), at=AT))
        await eventually(lambda: len(scene.bus.happened) > 0 and scene.bus.order[-1] == "kube")
        await eventually(lambda: type(scene.bus.happened[-1]) is NodeGone)

        assert all(isinstance(e, NodeEvent) and [w.name for w in e.workers] == ["gpu-7"] for e in scene.bus.happened)
