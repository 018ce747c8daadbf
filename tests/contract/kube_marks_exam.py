"""Of the exam of an API server: what we put on objects that are not ours."""

import pytest

from lockstep.contracts.hold import Condition
from lockstep.kube import keys
from lockstep.kube.conditions import slurm_conditions
from lockstep.kube.errors import Conflict, NotFound
from tests.contract.kube_site import Site


class MarksExam:
    """Labels, annotations and conditions, beside those of others."""

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

    async def test_a_reason_that_ended_leaves_no_words_behind(self, site: Site) -> None:
        """A condition that stays while its reason goes shows none: a merge would keep the old text."""
        pod = await site.pod(site.mark)
        name, uid = pod["name"], pod["uid"]
        for reason in ("bad DIMM", ""):
            wanted = slurm_conditions("IDLE", [], reason)
            await site.kube.set_pod_conditions(site.namespace, name, wanted, keys.SLURM_STATE_PREFIX, uid=uid)
        [shown] = [c for c in (await site.read_pod(name))["status"]["conditions"] if c["type"] == "SlurmNodeStateIdle"]
        assert shown.get("message", "") == ""
