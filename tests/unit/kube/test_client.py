"""What the client does when others write in between; `tests/contract/kube_exam.py` asks what it reads and writes."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from typing import Any

import pytest

from lockstep.contracts.hold import HoldSpec, HoldStatus, WorkerSelector
from lockstep.kube import keys
from lockstep.kube.client import KubeClient
from lockstep.kube.errors import Conflict
from lockstep.kube.wire import Pod
from tests.fakes.kube import FakeKube
from tests.unit.kube.conftest import MakeClient


def meanwhile(look: Callable[..., Awaitable[Any]], *changes: Callable[[], object]) -> Callable[..., Awaitable[Any]]:
    """`look`, and right after the first looks one of these changes each."""
    due = list(changes)

    async def looked(*arguments: str) -> Any:
        seen = await look(*arguments)
        if due:
            due.pop(0)()
        return seen

    return looked


async def test_a_cordon_that_came_in_between_wins(
    api: FakeKube, kube: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """BR-002: the patch carries the version that was looked at; the second look sees somebody else's cordon."""
    api.put("nodes", "n", spec={})
    cordon = lambda: api.put("nodes", "n", spec={"unschedulable": True})  # noqa: E731
    monkeypatch.setattr(kube, "get_node", meanwhile(kube.get_node, cordon))
    assert not await kube.cordon("n", mark=True)
    assert "annotations" not in api.get("nodes", "n")["metadata"]


async def test_a_heartbeat_in_between_does_not_stop_a_cordon(
    api: FakeKube, kube: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kubelet and the controllers write to the same node for their own reasons."""
    api.put("nodes", "n", spec={})
    beat = lambda: api.put("nodes", "n", status={"conditions": []})  # noqa: E731
    monkeypatch.setattr(kube, "get_node", meanwhile(kube.get_node, beat, beat))
    assert await kube.cordon("n", mark=True)
    assert api.get("nodes", "n")["spec"] == {"unschedulable": True}


async def test_a_node_that_never_rests_is_a_conflict(
    api: FakeKube, kube: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three tries, then the caller decides anew."""
    api.put("nodes", "n", spec={"unschedulable": True}, metadata={"annotations": {keys.MIRRORED_CORDON: "true"}})
    beat = lambda: api.put("nodes", "n", status={"conditions": []})  # noqa: E731
    monkeypatch.setattr(kube, "get_node", meanwhile(kube.get_node, beat, beat, beat))
    with pytest.raises(Conflict):
        await kube.uncordon("n")
    assert api.get("nodes", "n")["spec"] == {"unschedulable": True}


async def test_a_hold_that_was_changed_in_between_is_told_all_the_same(
    api: FakeKube, kube: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The status is ours; what its author changes meanwhile stays."""
    hold = await kube.create_hold("slurm", "h", HoldSpec(workers=WorkerSelector(names=["w"]), reason="x"))
    note = lambda: api.put("holds", "h", "slurm", metadata={"labels": {"a": "b"}})  # noqa: E731
    monkeypatch.setattr(kube, "get_hold", meanwhile(kube.get_hold, note))
    await kube.set_hold_status("slurm", "h", HoldStatus(message="seen"), uid=hold.metadata.uid)
    stored = api.get("holds", "h", "slurm")
    assert (stored["status"]["message"], stored["metadata"]["labels"]) == ("seen", {"a": "b"})


async def test_rights_can_be_asked_for(api: FakeKube, kube: KubeClient) -> None:
    """So that a missing right is told at start, not at the first write."""
    api.allowed = {("patch", "nodes")}
    assert await kube.can_i("patch", "nodes")
    assert not await kube.can_i("delete", "nodes")


async def test_a_thousand_cancelled_watches_leave_nothing_open(api: FakeKube, make_client: MakeClient) -> None:
    """BR-102: one session, closed streams; warnings of unclosed ones are errors here."""
    api.put("pods", "w", "slurm")
    kube = await make_client(qps=100_000.0)

    async def once() -> None:
        async with aclosing(kube.watch(Pod)) as watch:
            assert (await anext(watch)).kind == "changed"
            assert (await anext(watch)).kind == "synced"
            with suppress(TimeoutError):
                async with asyncio.timeout(0):
                    await anext(watch)

    for _ in range(1000):
        await once()
    async with asyncio.timeout(30):
        while api.watches:
            await asyncio.sleep(0.01)
