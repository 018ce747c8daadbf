"""Watches that are lost, silent or over, and a NATS that is away: what is told of it, and that nothing is forgotten."""

import asyncio

import pytest
from structlog.testing import capture_logs

from lockstep.base.errors import Fatal
from lockstep.contracts.events import SourceBack, SourceLost
from lockstep.contracts.facts import KubeNode, SourceHealth
from lockstep.kube.port import Delta
from lockstep.kube.wire import Node, Pod
from lockstep.runtime.telemetry import KEYS
from tests.unit.pod_watcher.as_read import AT
from tests.unit.pod_watcher.scene import SYNCED, Scene, changed, eventually, node

pytestmark = pytest.mark.usefixtures("quick")


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


async def test_the_end_of_a_watch_ends_the_service() -> None:
    """A watcher that is dead in a process that lives would be blind without anybody knowing."""
    scene = Scene()
    scene.kube.say(Pod, None)
    with pytest.raises(ExceptionGroup) as caught:
        await asyncio.wait_for(scene.watcher.run(), 2)

    assert caught.group_contains(Fatal)
