"""What the client reads and writes; the same is asked of a real API server in the integration tests."""

import asyncio
from contextlib import aclosing, suppress

import pytest

from lockstep.contracts.hold import Condition, HoldPhase, HoldSpec, HoldStatus, WaitingFor, WorkerCounts, WorkerSelector
from lockstep.kube import keys
from lockstep.kube.client import KubeClient
from lockstep.kube.conditions import slurm_conditions
from lockstep.kube.errors import AlreadyExists, Conflict, Invalid, NotFound
from lockstep.kube.port import KubeApi, Regarding, ServerVersion
from lockstep.kube.wire import Pod
from tests.fakes.kube import FakeKube
from tests.unit.kube.conftest import MakeClient


def test_the_client_is_what_the_port_promises(kube: KubeClient) -> None:
    """Mypy reads this; a missing method is a failure of the type check."""
    port: KubeApi = kube
    assert port is kube


async def test_lists_come_page_by_page(api: FakeKube, make_client: MakeClient) -> None:
    """All of them, in pages of the size that is set, filtered by the server."""
    for i in range(7):
        api.put("pods", f"w-{i}", "slurm", metadata={"labels": {"odd": str(i % 2)}})
    api.put("pods", "w-0", "other")
    kube = await make_client(page=3)
    assert len(await kube.list_pods()) == 8
    assert len(await kube.list_pods(namespace="slurm")) == 7
    assert [p.metadata.name for p in await kube.list_pods(label_selector="odd=1")] == ["w-1", "w-3", "w-5"]


async def test_what_is_not_there_is_none(kube: KubeClient) -> None:
    """Not found is an answer."""
    assert await kube.get_node("n") is None
    assert await kube.get_pod("slurm", "w") is None
    assert await kube.get_hold("slurm", "h") is None
    assert await kube.get_lease("slurm", "l") is None


async def test_a_label_is_put_on_the_pod_that_was_meant(api: FakeKube, kube: KubeClient) -> None:
    """A new pod of the same name, or a newer version where that matters, is a conflict and is left alone."""
    pod = api.put("pods", "w", "slurm", metadata={"labels": {"a": "1"}})["metadata"]
    await kube.patch_pod_labels("slurm", "w", {keys.POD_PROTECT: "true"}, uid=pod["uid"])
    assert api.get("pods", "w", "slurm")["metadata"]["labels"] == {"a": "1", keys.POD_PROTECT: "true"}
    with pytest.raises(Conflict):
        await kube.patch_pod_labels("slurm", "w", {keys.POD_PROTECT: None}, uid="another")
    with pytest.raises(Conflict):
        await kube.patch_pod_labels(
            "slurm", "w", {keys.POD_PROTECT: None}, uid=pod["uid"], resource_version=pod["resourceVersion"]
        )
    assert api.get("pods", "w", "slurm")["metadata"]["labels"][keys.POD_PROTECT] == "true"
    with pytest.raises(NotFound):
        await kube.patch_pod_labels("slurm", "none", {}, uid="x")


async def test_pod_conditions_are_shown_beside_the_kubelets(api: FakeKube, kube: KubeClient) -> None:
    """Ours come, turn and go by type; the kubelet's stay; nothing is written when nothing differs."""
    ready = {"type": "Ready", "status": "True"}
    uid = api.put("pods", "w", "slurm", status={"conditions": [ready], "phase": "Running"})["metadata"]["uid"]

    async def show(base: str, *flags: str) -> bool:
        wanted = slurm_conditions(base, flags, "lockstep: x")
        return await kube.set_pod_conditions("slurm", "w", wanted, keys.SLURM_STATE_PREFIX, uid=uid)

    assert await show("MIXED", "DRAIN")
    assert await show("IDLE", "DRAIN")
    before = api.version
    assert not await show("IDLE", "DRAIN")
    assert api.version == before
    status = api.get("pods", "w", "slurm")["status"]
    assert [c["type"] for c in status["conditions"]] == ["Ready", "SlurmNodeStateDrain", "SlurmNodeStateIdle"]
    assert status["phase"] == "Running"
    with pytest.raises(Conflict):
        await kube.set_pod_conditions("slurm", "w", [], keys.SLURM_STATE_PREFIX, uid="another")
    with pytest.raises(NotFound):
        await kube.set_pod_conditions("slurm", "none", [], keys.SLURM_STATE_PREFIX, uid=uid)


async def test_the_node_condition_turns(api: FakeKube, kube: KubeClient) -> None:
    """One condition, written when it differs."""
    api.put("nodes", "n", status={"conditions": [{"type": "Ready", "status": "True"}]})
    out = Condition(type=keys.IN_SERVICE, status="False", reason="Manual", message="lockstep: a: b")
    assert await kube.set_node_condition("n", out)
    assert not await kube.set_node_condition("n", out)
    assert await kube.set_node_condition("n", Condition(type=keys.IN_SERVICE, status="True", reason="InService"))
    [_, shown] = api.get("nodes", "n")["status"]["conditions"]
    assert (shown["status"], shown["reason"]) == ("True", "InService")


async def test_our_cordon_is_marked_and_only_ours_is_lifted(api: FakeKube, kube: KubeClient) -> None:
    """BR-002, BR-033: a cordon of somebody else is neither marked nor lifted."""
    api.put("nodes", "n", spec={})
    assert await kube.cordon("n", mark=True)
    assert api.get("nodes", "n")["spec"] == {"unschedulable": True}
    assert api.get("nodes", "n")["metadata"]["annotations"] == {keys.MIRRORED_CORDON: "true"}
    assert not await kube.cordon("n", mark=True)
    assert await kube.uncordon("n")
    assert api.get("nodes", "n")["spec"] == {}
    assert not await kube.uncordon("n")

    api.put("nodes", "foreign", spec={"unschedulable": True})
    assert not await kube.cordon("foreign", mark=True)
    assert not await kube.uncordon("foreign")
    assert api.get("nodes", "foreign")["spec"] == {"unschedulable": True}
    assert await kube.uncordon("foreign", only_ours=False)


async def test_a_cordon_that_came_in_between_wins(
    api: FakeKube, kube: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The patch carries the version that was looked at."""
    api.put("nodes", "n", spec={})
    look = kube.get_node

    async def look_too_early(name: str) -> object:
        node = await look(name)
        api.put("nodes", name, spec={"unschedulable": True})
        return node

    monkeypatch.setattr(kube, "get_node", look_too_early)
    with pytest.raises(Conflict):
        await kube.cordon("n", mark=True)
    assert "annotations" not in api.get("nodes", "n")["metadata"]


async def test_there_is_never_a_second_budget_over_the_same_pods(api: FakeKube, kube: KubeClient) -> None:
    """BR-170: with two budgets the eviction API answers 500, so slurm-operator's is as good as ours."""
    pods = keys.protected("main")
    api.put("poddisruptionbudgets", "other", "slurm", spec={"selector": {"matchLabels": {"app": "x"}}})
    assert await kube.ensure_pdb("slurm", keys.pdb_name("main"), pods)
    assert api.get("poddisruptionbudgets", "slurm-workers-pdb-main", "slurm")["spec"] == {
        "maxUnavailable": 0,
        "selector": {"matchLabels": pods},
    }
    assert not await kube.ensure_pdb("slurm", "by-another-name", pods)


async def test_a_hold_is_created_told_and_released(api: FakeKube, kube: KubeClient) -> None:
    """Status is written as a whole: what is empty now does not stay."""
    spec = HoldSpec(workers=WorkerSelector(names=["w-1"]), reason="DIMM")
    hold = await kube.create_hold("slurm", "dimm", spec)
    assert (hold.spec, hold.fault) == (spec, "")
    with pytest.raises(AlreadyExists):
        await kube.create_hold("slurm", "dimm", spec)
    uid = hold.metadata.uid
    waiting = HoldStatus(phase=HoldPhase.DRAINING, message="waits", waiting_for=[WaitingFor(worker="w-1")])
    done = HoldStatus(workers=WorkerCounts(selected=1))
    for status in (waiting, done):
        await kube.set_hold_status("slurm", "dimm", status, uid=uid)
        told = await kube.get_hold("slurm", "dimm")
        assert told is not None
        assert told.status == status
    assert api.get("holds", "dimm", "slurm")["status"]["phase"] == "Pending"
    with pytest.raises(Conflict):
        await kube.set_hold_status("slurm", "dimm", done, uid="another")
    with pytest.raises(Conflict):
        await kube.delete_hold("slurm", "dimm", uid="another")
    assert await kube.delete_hold("slurm", "dimm", uid=uid)
    assert not await kube.delete_hold("slurm", "dimm", uid=uid)


async def test_the_same_news_is_one_event_with_a_count(api: FakeKube, kube: KubeClient) -> None:
    """`kubectl describe` shows x3, not three lines; Events about nodes live in `default`."""
    node = Regarding(kind="Node", name="n", uid="u")
    for _ in range(3):
        await kube.emit_event(node, reason="HoldReasserted", message="held by\nana", kind="Warning")
    await kube.emit_event(node, reason="HoldReasserted", message="held by bob", kind="Warning")
    events = [o for (r, ns, _), o in api._objects.items() if (r, ns) == ("events", "default")]
    assert sorted((e["count"], e["message"]) for e in events) == [(1, "held by bob"), (3, "held by ana")]


async def test_versions_of_vendors_are_understood(kube: KubeClient) -> None:
    """BR-153: `36+` is 36."""
    assert await kube.server_version() == ServerVersion(major=1, minor=36, text="v1.36.3-fake")


async def test_rights_can_be_asked_for(api: FakeKube, kube: KubeClient) -> None:
    """So that a missing right is told at start, not at the first write."""
    api.allowed = {("patch", "nodes")}
    assert await kube.can_i("patch", "nodes")
    assert not await kube.can_i("delete", "nodes")


async def test_an_empty_name_never_means_all(api: FakeKube, kube: KubeClient) -> None:
    """DELETE on the collection would release every hold."""
    api.put("holds", "h", "slurm")
    with pytest.raises(Invalid):
        await kube.delete_hold("slurm", "")
    assert api.get("holds", "h", "slurm")


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
    async with asyncio.timeout(2):
        while api.watches:
            await asyncio.sleep(0.01)
