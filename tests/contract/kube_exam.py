"""The exam that every Kubernetes API server sits, fake or real: what the port promises, asked over HTTP.

A class that inherits `KubeExam` provides the fixture `site`. Each test makes objects of its own.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import Any, Protocol

import msgspec
import pytest

from lockstep.contracts.hold import (
    Condition,
    Drain,
    DrainPolicy,
    HoldPhase,
    HoldSpec,
    HoldStatus,
    JobBrief,
    WaitingFor,
    WorkerCounts,
    WorkerSelector,
)
from lockstep.kube import keys
from lockstep.kube.client import KubeClient
from lockstep.kube.conditions import slurm_conditions
from lockstep.kube.errors import AlreadyExists, Conflict, Invalid, NotFound
from lockstep.kube.port import Regarding
from lockstep.kube.wire import Hold, Lease, LeaseSpec, Node, ObjectMeta, Pod

Object = dict[str, Any]
PATIENCE_S = 20.0


class Yard(Protocol):
    """What is done to Kubernetes beside the port, by its administrator. Paths are those of the API."""

    async def create(self, path: str, body: Object) -> Object:
        """Create an object in a collection; what the server made of it."""
        ...

    async def patch(self, path: str, body: Object) -> Object:
        """Merge into an object."""
        ...

    async def read(self, path: str) -> Object:
        """An object or a list."""
        ...

    async def delete(self, path: str) -> None:
        """Delete an object at once."""
        ...


_numbers = count(1)


@dataclass(kw_only=True)
class Site:
    """One API server to examine."""

    kube: KubeClient
    yard: Yard
    namespace: str
    mark: str = field(default_factory=lambda: f"exam-{next(_numbers)}")
    """A label value and a name of this test alone."""

    async def pod(self, name: str, **labels: str) -> Object:
        """A pod that nobody runs; its metadata."""
        meta = {"name": name, "labels": {"exam": self.mark} | labels}
        spec = {
            "nodeName": "nobody",
            "containers": [{"name": "slurmd", "image": "none"}],
            "automountServiceAccountToken": False,
        }
        body = {"metadata": meta, "spec": spec}
        made = await self.yard.create(f"/api/v1/namespaces/{self.namespace}/pods", body)
        return dict(made["metadata"])

    async def node(self) -> str:
        """A node that is no machine; its name."""
        meta = {"name": self.mark, "labels": {"exam": self.mark}}
        await self.yard.create("/api/v1/nodes", {"metadata": meta, "spec": {}})
        return self.mark

    async def deployment(self) -> str:
        """A Deployment that wants no pods; its path."""
        labels = {"exam": self.mark}
        pods = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "none", "image": "none"}]}}
        spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": pods}
        path = f"/apis/apps/v1/namespaces/{self.namespace}/deployments"
        await self.yard.create(path, {"metadata": {"name": self.mark, "labels": labels}, "spec": spec})
        return f"{path}/{self.mark}"

    async def read_pod(self, name: str) -> Object:
        """The pod as it is stored."""
        return await self.yard.read(f"/api/v1/namespaces/{self.namespace}/pods/{name}")

    async def read_node(self, name: str) -> Object:
        """The node as it is stored."""
        return await self.yard.read(f"/api/v1/nodes/{name}")


async def eventually(true: Callable[[], Awaitable[bool]]) -> None:
    """Wait until it is so."""
    async with asyncio.timeout(PATIENCE_S):
        while not await true():
            await asyncio.sleep(0.05)


class KubeExam:
    """The questions."""

    async def test_lists_come_page_by_page(self, site: Site) -> None:
        """All of them, in pages, filtered by the server."""
        for i in range(7):
            await site.pod(f"{site.mark}-{i}", odd=str(i % 2))
        found = await site.kube.list_pods(label_selector=f"exam={site.mark}")
        odd = await site.kube.list_pods(namespace=site.namespace, label_selector=f"exam={site.mark},odd=1")
        assert [p.metadata.name for p in found] == [f"{site.mark}-{i}" for i in range(7)]
        assert len(odd) == 3
        assert found[0].metadata.namespace == site.namespace
        assert found[0].spec.node_name == "nobody"

    async def test_what_is_not_there_is_none(self, site: Site) -> None:
        """Not found is an answer."""
        assert await site.kube.get_node("none") is None
        assert await site.kube.get_pod(site.namespace, "none") is None
        assert await site.kube.get_hold(site.namespace, "none") is None
        assert await site.kube.get_lease(site.namespace, "none") is None

    async def test_a_label_is_put_on_the_pod_that_was_meant(self, site: Site) -> None:
        """Another pod of the same name, or another version where that matters, is a conflict and is left alone."""
        kube, ns, name = site.kube, site.namespace, site.mark
        pod = await site.pod(name)
        await kube.patch_pod_labels(ns, name, {keys.POD_PROTECT: "true"}, uid=pod["uid"])
        off = {keys.POD_PROTECT: None}
        with pytest.raises(Conflict):
            await kube.patch_pod_labels(ns, name, off, uid="7f3f5c39-0000-0000-0000-000000000000")
        with pytest.raises(Conflict):
            await kube.patch_pod_labels(ns, name, off, uid=pod["uid"], resource_version=pod["resourceVersion"])
        stored = await site.read_pod(name)
        assert stored["metadata"]["labels"] == {"exam": site.mark, keys.POD_PROTECT: "true"}
        await kube.patch_pod_labels(
            ns, name, off, uid=pod["uid"], resource_version=stored["metadata"]["resourceVersion"]
        )
        assert (await site.read_pod(name))["metadata"]["labels"] == {"exam": site.mark}
        with pytest.raises(NotFound):
            await kube.patch_pod_labels(ns, "none", off, uid="x")

    async def test_annotations_come_and_go(self, site: Site) -> None:
        """On pods and on nodes; of the pod that was meant."""
        pod, node = await site.pod(site.mark), await site.node()
        node_uid = (await site.read_node(node))["metadata"]["uid"]
        await site.kube.annotate_pod(site.namespace, site.mark, {keys.POD_CORDON: "true"}, uid=pod["uid"])
        await site.kube.annotate_node(node, {keys.IGNORE_CONDITIONS: "DiskPressure"}, uid=node_uid)
        assert (await site.read_pod(site.mark))["metadata"]["annotations"] == {keys.POD_CORDON: "true"}
        assert (await site.read_node(node))["metadata"]["annotations"][keys.IGNORE_CONDITIONS] == "DiskPressure"
        await site.kube.annotate_pod(site.namespace, site.mark, {keys.POD_CORDON: None}, uid=pod["uid"])
        assert not (await site.read_pod(site.mark))["metadata"].get("annotations")
        with pytest.raises(Conflict):
            await site.kube.annotate_node(node, {"a": "b"}, uid="7f3f5c39-0000-0000-0000-000000000000")

    async def test_pod_conditions_are_shown_beside_the_kubelets(self, site: Site) -> None:
        """Ours come, turn and go by type; the kubelet's stay; nothing is written when nothing differs."""
        name = site.mark
        uid = (await site.pod(name))["uid"]
        path = f"/api/v1/namespaces/{site.namespace}/pods/{name}"
        ready = {"type": "Ready", "status": "True"}
        await site.yard.patch(f"{path}/status", {"status": {"conditions": [ready], "phase": "Running"}})

        async def show(base: str, *flags: str, reason: str = "lockstep: x") -> bool:
            wanted = slurm_conditions(base, flags, reason)
            return await site.kube.set_pod_conditions(site.namespace, name, wanted, keys.SLURM_STATE_PREFIX, uid=uid)

        assert await show("MIXED", "DRAIN")
        assert await show("IDLE", "DRAIN", reason="lockstep: y")
        before = await site.read_pod(name)
        assert not await show("IDLE", "DRAIN", reason="lockstep: y")
        assert await site.read_pod(name) == before
        told = {c["type"]: c.get("message") for c in before["status"]["conditions"]}
        assert told == {"Ready": None, "SlurmNodeStateDrain": "lockstep: y", "SlurmNodeStateIdle": "lockstep: y"}
        assert before["status"]["phase"] == "Running"
        assert await show("IDLE", reason="")
        after = (await site.read_pod(name))["status"]["conditions"]
        assert {c["type"]: c.get("message", "") for c in after} == {"Ready": "", "SlurmNodeStateIdle": ""}
        with pytest.raises(Conflict):
            await site.kube.set_pod_conditions(site.namespace, name, [], keys.SLURM_STATE_PREFIX, uid="another")
        with pytest.raises(NotFound):
            await site.kube.set_pod_conditions(site.namespace, "none", [], keys.SLURM_STATE_PREFIX, uid=uid)

    async def test_the_node_condition_turns(self, site: Site) -> None:
        """One condition, written when it differs."""
        node = await site.node()
        out = Condition(type=keys.IN_SERVICE, status="False", reason="Manual", message="lockstep: a: b")
        assert await site.kube.set_node_condition(node, out)
        assert not await site.kube.set_node_condition(node, out)
        assert await site.kube.set_node_condition(node, Condition(type=keys.IN_SERVICE, status="True", reason="Fine"))
        [shown] = [c for c in (await site.read_node(node))["status"]["conditions"] if c["type"] == keys.IN_SERVICE]
        assert (shown["status"], shown["reason"]) == ("True", "Fine")
        with pytest.raises(NotFound):
            await site.kube.set_node_condition("none", out)

    async def test_a_deployment_shows_our_condition_beside_its_controllers(self, site: Site) -> None:
        """It comes and turns by type, the controller's stay; nothing is written when nothing differs."""
        kube, ns, name = site.kube, site.namespace, site.mark
        path = await site.deployment()
        theirs = {"type": "Theirs", "status": "True", "reason": "Before"}
        await site.yard.patch(f"{path}/status", {"status": {"conditions": [theirs]}})

        async def shown() -> dict[str, tuple[str, str, str]]:
            stored = (await site.yard.read(path))["status"]["conditions"]
            return {c["type"]: (c["status"], c.get("reason", ""), c.get("message", "")) for c in stored}

        lost = Condition(type=keys.SLURM_READ, status="False", reason="SlurmLost", message="no key")
        assert await kube.set_deployment_condition(ns, name, lost)
        assert not await kube.set_deployment_condition(ns, name, lost)
        assert (await shown())[keys.SLURM_READ] == ("False", "SlurmLost", "no key")
        assert await kube.set_deployment_condition(
            ns, name, Condition(type=keys.SLURM_READ, status="True", reason="Read")
        )
        found = await shown()
        assert found[keys.SLURM_READ] == ("True", "Read", "")
        assert found["Theirs"] == ("True", "Before", "")
        with pytest.raises(NotFound):
            await kube.set_deployment_condition(ns, "none", lost)

    async def test_our_cordon_is_marked_and_lifted(self, site: Site) -> None:
        """BR-002: the mark stands while our cordon does."""
        node = await site.node()
        assert await site.kube.cordon(node, mark=True)
        stored = await site.read_node(node)
        assert stored["spec"]["unschedulable"] is True
        assert stored["metadata"]["annotations"][keys.MIRRORED_CORDON] == "true"
        assert not await site.kube.cordon(node, mark=True)
        assert await site.kube.uncordon(node)
        stored = await site.read_node(node)
        assert "unschedulable" not in stored["spec"]
        assert keys.MIRRORED_CORDON not in stored["metadata"].get("annotations", {})
        assert not await site.kube.uncordon(node)

    async def test_a_foreign_cordon_is_left_alone(self, site: Site) -> None:
        """BR-002, BR-033: neither marked nor lifted; only a person who insists lifts it."""
        node = await site.node()
        await site.yard.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})
        assert not await site.kube.cordon(node, mark=True)
        assert not await site.kube.uncordon(node)
        stored = await site.read_node(node)
        assert stored["spec"]["unschedulable"] is True
        assert keys.MIRRORED_CORDON not in stored["metadata"].get("annotations", {})
        assert await site.kube.uncordon(node, only_ours=False)

    async def test_a_user_who_lifts_our_mirror_has_the_last_word(self, site: Site) -> None:
        """Her uncordon is not undone, and a cordon that she sets after it is hers and not ours to lift."""
        node = await site.node()
        assert await site.kube.cordon(node, mark=True)
        await site.yard.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": None}})
        assert not await site.kube.cordon(node, mark=True)

        await site.yard.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})
        assert not await site.kube.uncordon(node)
        assert (await site.read_node(node))["spec"]["unschedulable"] is True

    async def test_a_reason_that_ended_leaves_no_words_behind(self, site: Site) -> None:
        """A condition that stays while its reason goes shows none: a merge would keep the old text."""
        pod = await site.pod(site.mark)
        name, uid = pod["name"], pod["uid"]
        for reason in ("bad DIMM", ""):
            wanted = slurm_conditions("IDLE", [], reason)
            await site.kube.set_pod_conditions(site.namespace, name, wanted, keys.SLURM_STATE_PREFIX, uid=uid)
        [shown] = [c for c in (await site.read_pod(name))["status"]["conditions"] if c["type"] == "SlurmNodeStateIdle"]
        assert shown.get("message", "") == ""

    async def test_there_is_never_a_second_budget_over_the_same_pods(self, site: Site) -> None:
        """With two budgets over one pod the eviction API answers 500, so slurm-operator's is as good as ours."""
        pods = keys.protected(site.mark)
        path = f"/apis/policy/v1/namespaces/{site.namespace}/poddisruptionbudgets"
        other = {"spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"exam": site.mark}}}}
        await site.yard.create(path, other | {"metadata": {"name": f"other-{site.mark}"}})
        assert await site.kube.ensure_pdb(site.namespace, keys.pdb_name(site.mark), pods)
        made = await site.yard.read(f"{path}/slurm-workers-pdb-{site.mark}")
        assert made["spec"] == {"maxUnavailable": 0, "selector": {"matchLabels": pods}}
        assert not await site.kube.ensure_pdb(site.namespace, keys.pdb_name(site.mark), pods)
        assert not await site.kube.ensure_pdb(site.namespace, "by-another-name", pods)

    async def test_a_hold_is_created_told_and_released(self, site: Site) -> None:
        """Status is written as a whole: what is empty now does not stay."""
        kube, ns, name = site.kube, site.namespace, site.mark
        spec = HoldSpec(
            workers=WorkerSelector(names=["w-1"]),
            reason="DIMM ü ✓",
            expires_at=datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC),
            drain=Drain(policy=DrainPolicy.REQUEUE, deadline="2h"),
        )
        hold = await kube.create_hold(ns, name, spec, annotations={"note": "x"})
        assert (hold.spec, hold.fault, hold.metadata.annotations["note"]) == (spec, "", "x")
        with pytest.raises(AlreadyExists):
            await kube.create_hold(ns, name, spec)
        uid = hold.metadata.uid
        job = JobBrief(id=4242, user="u", partition="p", state="RUNNING", ends=datetime(2030, 1, 1, tzinfo=UTC))
        counts = WorkerCounts(selected=1, draining=1)
        waiting = HoldStatus(
            phase=HoldPhase.DRAINING,
            owner="ana",
            message="waits",
            observed_generation=1,
            workers=counts,
            waiting_for=[WaitingFor(worker="w-1", jobs=[job])],
            conditions=[Condition(type="Accepted", status="True", reason="Fine", last_transition_time=spec.expires_at)],
        )
        for status in (waiting, HoldStatus(workers=WorkerCounts(selected=1))):
            await kube.set_hold_status(ns, name, status, uid=uid)
            told = await kube.get_hold(ns, name)
            assert told is not None
            assert (told.status, told.spec) == (status, spec)
        with pytest.raises(Conflict):
            await kube.set_hold_status(ns, name, waiting, uid="another")
        with pytest.raises(NotFound):
            await kube.set_hold_status(ns, "none", waiting, uid=uid)
        with pytest.raises(Conflict):
            await kube.delete_hold(ns, name, uid="another")
        assert [h.metadata.name for h in await kube.list_holds(namespace=ns) if h.metadata.uid == uid] == [name]
        assert await kube.delete_hold(ns, name, uid=uid)
        assert not await kube.delete_hold(ns, name, uid=uid)

    async def test_an_empty_name_never_means_all(self, site: Site) -> None:
        """DELETE on the collection would release every hold."""
        spec = HoldSpec(workers=WorkerSelector(names=["w-1"]), reason="x")
        await site.kube.create_hold(site.namespace, site.mark, spec)
        for name in ("", ".", "..", "a/b", f"{site.mark}?x=y"):
            with pytest.raises(Invalid):
                await site.kube.delete_hold(site.namespace, name)
        assert await site.kube.get_hold(site.namespace, site.mark)

    async def test_the_same_news_is_one_event_with_a_count(self, site: Site) -> None:
        """`kubectl describe` shows x3, not three lines; Events about nodes live in `default`."""
        node = Regarding(kind="Node", name=site.mark, uid=site.mark)
        for _ in range(3):
            await site.kube.emit_event(node, reason="HoldReasserted", message="held by\nana", kind="Warning")
        await site.kube.emit_event(node, reason="HoldReasserted", message="held by bob", kind="Warning")
        stored = await site.yard.read("/api/v1/namespaces/default/events")
        ours = [e for e in stored["items"] if e["involvedObject"]["name"] == site.mark]
        assert sorted((e["count"], e["message"]) for e in ours) == [(1, "held by bob"), (3, "held by ana")]

    async def test_versions_are_understood(self, site: Site) -> None:
        """BR-153: `36+` is 36."""
        version = await site.kube.server_version()
        assert (version.major, version.minor) == (1, 36)
        assert version.text.startswith("v1.36.")

    async def test_a_lease_is_replaced_only_at_its_version(self, site: Site) -> None:
        """Two who saw the same version: one wins. Times keep their microseconds."""
        kube = site.kube
        at = datetime(2030, 1, 1, 0, 0, 0, 0, tzinfo=UTC)
        spec = LeaseSpec(
            holder_identity="a",
            lease_duration_seconds=15,
            acquire_time=at,
            renew_time=at,
            lease_transitions=170_000_000,
        )
        lease = Lease(metadata=ObjectMeta(name=site.mark, namespace=site.namespace), spec=spec)
        made = await kube.create_lease(lease)
        assert made.spec == spec
        with pytest.raises(AlreadyExists):
            await kube.create_lease(lease)
        later = msgspec.structs.replace(spec, holder_identity=None, renew_time=at.replace(microsecond=123456))
        assert (await kube.update_lease(msgspec.structs.replace(made, spec=later))).spec == later
        with pytest.raises(Conflict):
            await kube.update_lease(made)
        read = await kube.get_lease(site.namespace, site.mark)
        assert read is not None
        assert read.spec == later

    async def test_a_watch_tells_what_there_is_and_then_what_changes(self, site: Site) -> None:
        """List, synced, changes with before and after, and what went."""
        first = f"{site.mark}-a"
        await site.pod(first)
        path = f"/api/v1/namespaces/{site.namespace}/pods"
        selector = f"exam={site.mark}"
        async with aclosing(site.kube.watch(Pod, namespace=site.namespace, label_selector=selector)) as watch:
            told = [await anext(watch), await anext(watch)]
            assert [d.kind for d in told] == ["changed", "synced"]
            await site.pod(f"{site.mark}-b")
            await site.yard.patch(f"{path}/{site.mark}-b", {"metadata": {"labels": {"x": "y"}}})
            await site.yard.delete(f"{path}/{first}")
            kinds = []
            while "gone" not in kinds:
                async with asyncio.timeout(PATIENCE_S):
                    delta = await anext(watch)
                kinds.append(delta.kind)
                if delta.kind == "changed" and delta.before and delta.after and delta.after.metadata.labels.get("x"):
                    assert "x" not in delta.before.metadata.labels
            assert delta.before is not None
            assert delta.before.metadata.name == first
            assert kinds.count("changed") >= 2

    async def test_holds_and_nodes_are_watched_too(self, site: Site) -> None:
        """Each kind has the same watch."""
        node = await site.node()
        async with aclosing(site.kube.watch(Node)) as nodes, aclosing(site.kube.watch(Hold)) as holds:
            names = set()
            while node not in names:
                delta = await anext(nodes)
                names.add(delta.after.metadata.name if delta.after else "")
            while (await anext(holds)).kind != "synced":
                pass
            spec = HoldSpec(workers=WorkerSelector(nodes=[node]), reason="x")
            await site.kube.create_hold(site.namespace, site.mark, spec)
            async with asyncio.timeout(PATIENCE_S):
                told = await anext(holds)
            assert told.after is not None
            assert (told.after.metadata.name, told.after.spec) == (site.mark, spec)
