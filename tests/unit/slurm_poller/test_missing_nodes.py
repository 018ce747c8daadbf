"""Nodes that a reading lacks: whether that is believed."""

import pytest
from structlog.testing import capture_logs

from tests.unit.slurm_poller.scene import Scene, a_node


@pytest.mark.parametrize("left", [0, 2])
async def test_a_reading_without_most_nodes_is_not_believed_at_once(left: int) -> None:
    """It is read again in full; no heartbeat and no gones meanwhile. Then it is believed."""
    nodes = [a_node(f"n{i}") for i in range(5)]
    with capture_logs() as logs:
        scene = Scene(*nodes)
        await scene.cycle()
        scene.news()
        scene.slurm.asked.clear()
        scene.slurm.now(*nodes[:left])
        await scene.cycle()
        assert scene.news() == []
        await scene.cycle()

    assert scene.news() == [*(f"gone n{i}" for i in range(left, 5)), "beat slurm.node"]
    assert scene.slurm.asked[:2] == [("nodes", 1), ("nodes", 0)]
    assert [line["event"] for line in logs] == ["Most nodes are missing, reading again"] + ["Changed"] * (5 - left)
    assert len(scene.bus.happened) == 5 - left


async def test_a_short_fault_makes_no_node_vanish() -> None:
    """A hundred, none, a hundred: nothing is told."""
    nodes = [a_node(f"n{i}") for i in range(100)]
    scene = Scene(*nodes)
    await scene.cycle()
    scene.slurm.now()
    await scene.cycle()
    scene.slurm.now(*nodes)
    await scene.cycle()

    assert not any(fact.gone for fact in scene.bus.told)
    assert scene.bus.happened == []


async def test_a_few_nodes_may_vanish_at_once() -> None:
    """Scale-in is ordinary."""
    scene = Scene(*(a_node(f"n{i}") for i in range(5)))
    await scene.cycle()
    scene.news()
    scene.slurm.now(*(a_node(f"n{i}") for i in range(3)))
    await scene.cycle()

    assert scene.news() == ["gone n3", "gone n4", "beat slurm.node"]
