"""What a watcher that begins tells: that all is known once it is, and after a restart only differences."""

import asyncio

import msgspec
import pytest

from lockstep.contracts.facts import KubeHold, KubeNode, KubePod
from lockstep.kube.wire import Hold, Node, Pod
from tests.unit.pod_watcher.as_read import AT
from tests.unit.pod_watcher.scene import SYNCED, Scene, changed, eventually, node

pytestmark = pytest.mark.usefixtures("quick")


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
