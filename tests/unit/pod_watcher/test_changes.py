"""What becomes of a change: how soon it is told, in which order, in which flow, with which workers."""

import asyncio
from random import Random

import pytest
from structlog.testing import capture_logs

from lockstep.contracts.events import NodeEvent, NodeGone
from lockstep.contracts.facts import KubeNode
from lockstep.kube.port import Delta
from lockstep.kube.wire import Node
from tests.spans import header_of, kept_spans
from tests.unit.pod_watcher.as_read import AT
from tests.unit.pod_watcher.scene import Scene, changed, eventually, node

pytestmark = pytest.mark.usefixtures("quick")


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
