"""A real kube-apiserver sits the exam; and what only a real one can show: rights, who wrote what, evictions, restarts.

Needs root. The control plane is one of its own, beside any lab that is up.
"""

import asyncio
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from lockstep.base.clock import monotonic
from lockstep.contracts.hold import Condition
from lockstep.kube import keys
from lockstep.kube.client import KubeClient
from lockstep.kube.errors import Denied, KubeError
from lockstep.kube.lease import Leadership
from lockstep.kube.resources import PODS
from lockstep.kube.watch import Watch
from lockstep.kube.wire import Hold, Pod
from tests.contract.kube_exam import KubeExam
from tests.contract.kube_site import Site, eventually
from tests.integration.control_plane import ControlPlane
from tests.integration.kube.real_kube import settings
from tests.lab.rest import ApiError
from tests.unit.kube.following import following

pytestmark = pytest.mark.timeout(1200)


class TestReal(KubeExam):
    """The exam on the real one."""


async def test_rights_are_what_the_server_says(site: Site) -> None:
    """Denied is told as such; what is not in our role is not ours."""
    assert await site.kube.can_i("patch", "nodes")
    assert await site.kube.can_i("patch", "holds", group="lockstep.sh", namespace="slurm", subresource="status")
    assert not await site.kube.can_i("delete", "nodes")
    assert not await site.kube.can_i("get", "secrets", namespace="slurm")
    with pytest.raises(Denied):
        await site.kube._http.request("GET", "/api/v1/secrets")


async def test_the_server_says_who_cordoned(plane: ControlPlane, site: Site) -> None:
    """kubectl's cordon and ours are told apart by `managedFields`."""
    node = await site.node()
    await site.kube.cordon(node, mark=True)
    ours = await site.kube.get_node(node)
    await site.kube.uncordon(node)
    await asyncio.to_thread(plane.kube.kubectl, "cordon", node)
    theirs = await site.kube.get_node(node)
    assert ours is not None
    assert theirs is not None
    assert (ours.cordoned_by, ours.cordon_is_ours) == (keys.FIELD_MANAGER, True)
    assert (theirs.cordoned_by, theirs.cordon_is_ours) == ("kubectl", False)


async def test_the_controller_of_a_deployment_keeps_our_condition(site: Site) -> None:
    """It writes status anew with each rollout, and our write begins none."""
    path = await site.deployment()

    async def observed(generation: int) -> bool:
        return bool((await site.yard.read(path)).get("status", {}).get("observedGeneration", 0) >= generation)

    await eventually(lambda: observed(1))
    lost = Condition(type=keys.SLURM_READ, status="False", reason="SlurmLost", message="no key")
    assert await site.kube.set_deployment_condition("slurm", site.mark, lost)
    assert (await site.yard.read(path))["metadata"]["generation"] == 1
    await site.yard.patch(path, {"spec": {"minReadySeconds": 1}})
    await eventually(lambda: observed(2))
    conditions = {c["type"]: c["status"] for c in (await site.yard.read(path))["status"]["conditions"]}
    assert conditions[keys.SLURM_READ] == "False"
    assert {"Available", "Progressing"} <= conditions.keys()
    assert not await site.kube.set_deployment_condition("slurm", site.mark, lost)


async def test_a_protected_pod_is_not_evicted(site: Site) -> None:
    """BR-170: one budget, found by its selector; the refusal is 429, not 500; without the label the pod may go."""
    name, cluster = site.mark, site.mark
    assert await site.kube.ensure_pdb("slurm", keys.pdb_name(cluster), keys.protected(cluster))
    assert not await site.kube.ensure_pdb("slurm", "another-name", keys.protected(cluster))
    uid = (await site.pod(name, **{keys.CLUSTER: cluster}))["uid"]
    await site.kube.patch_pod_labels("slurm", name, {keys.POD_PROTECT: "true"}, uid=uid)
    path = f"/api/v1/namespaces/slurm/pods/{name}"
    await site.yard.patch(f"{path}/status", {"status": {"phase": "Running"}})
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": "slurm"}}
    with pytest.raises(ApiError) as refused:
        await site.yard.create(f"{path}/eviction", eviction)
    assert refused.value.status == 429
    await site.kube.patch_pod_labels("slurm", name, {keys.POD_PROTECT: None}, uid=uid)
    await site.yard.create(f"{path}/eviction", eviction)
    assert (await site.read_pod(name))["metadata"]["deletionTimestamp"]


async def test_a_real_compaction_is_met_with_a_list(plane: ControlPlane, site: Site) -> None:
    """BR-097, BR-098: a version that neither etcd nor a fresh watch cache has; one list, no loop."""
    await site.pod(site.mark)
    await asyncio.to_thread(plane.fail.compact)
    await asyncio.to_thread(plane.restart)
    watch = Watch(site.kube._http, PODS, namespace="slurm", label_selector=f"exam={site.mark}", random=Random(1))
    watch._version = "1"
    async with following(watch.deltas()) as told:
        await told.until(lambda t: t.alive and t.names == {site.mark}, within_s=20)
        assert site.kube.counters.lists == 1
        assert site.kube.counters.connects <= 2


async def test_a_killed_api_server_is_met_again(plane: ControlPlane, site: Site) -> None:
    """BR-103: killed, restarted with changes and a compaction meanwhile; watches of all kinds are whole again."""
    for name in "abc":
        await site.pod(f"{site.mark}-{name}")
    pods = site.kube.watch(Pod, namespace="slurm", label_selector=f"exam={site.mark}")
    async with following(pods) as told, following(site.kube.watch(Hold)) as holds:
        await told.until(lambda t: t.alive)
        await holds.until(lambda t: t.alive)
        await asyncio.to_thread(plane.kill)
        await told.until(lambda t: not t.alive)
        await asyncio.to_thread(plane.restart)
        await site.yard.delete(f"/api/v1/namespaces/slurm/pods/{site.mark}-a")
        await site.pod(f"{site.mark}-d")
        await asyncio.to_thread(plane.fail.compact)
        wanted = {f"{site.mark}-{name}" for name in "bcd"}
        await told.until(lambda t: t.alive and t.names == wanted, within_s=40)
        await holds.until(lambda t: t.alive, within_s=40)
        await site.pod(f"{site.mark}-e")
        await told.until(lambda t: f"{site.mark}-e" in t.names)
    assert told.kinds().count("lost") == 1


async def test_a_frozen_api_server_is_noticed(plane: ControlPlane, token: Path, tmp_path: Path, site: Site) -> None:
    """BR-096: connections stay open and nothing answers; lost within the deadline and a time-out, then whole again."""
    await site.pod(f"{site.mark}-a")
    quick = settings(plane, tmp_path, token, progress_deadline_s=2.0, timeout_s=1.0)
    async with KubeClient(quick) as kube:
        watch = kube.watch(Pod, namespace="slurm", label_selector=f"exam={site.mark}")
        async with following(watch) as told:
            await told.until(lambda t: t.alive)
            await asyncio.to_thread(plane.fail.stop, "kube-apiserver")
            try:
                await told.until(lambda t: not t.alive, within_s=10)
            finally:
                await asyncio.to_thread(plane.fail.cont, "kube-apiserver")
            await site.pod(f"{site.mark}-b")
            await told.until(lambda t: t.alive and len(t.names) == 2, within_s=30)


async def test_a_revoked_token_is_replaced_from_its_file(plane: ControlPlane, tmp_path: Path, site: Site) -> None:
    """BR-128: the old account is gone, the file has the new token; calls and watches go on, no caller sees it."""
    file = tmp_path / "rotating"
    file.write_text(await asyncio.to_thread(plane.user, f"{site.mark}-old"))
    new = await asyncio.to_thread(plane.user, f"{site.mark}-new")
    async with KubeClient(settings(plane, tmp_path, file, reread_s=3600.0)) as kube:
        watch = kube.watch(Pod, namespace="slurm", label_selector=f"exam={site.mark}")
        async with following(watch) as told:
            await told.until(lambda t: t.alive)
            file.write_text(new)
            await asyncio.to_thread(plane.fail.revoke, f"{site.mark}-old")

            async def refused_once() -> bool:
                await kube.list_pods(namespace="slurm", label_selector="exam=none")
                return kube.counters.unauthorized > 0

            await eventually(refused_once)
            assert kube.counters.unauthorized == 1
            await site.pod(site.mark)
            await told.until(lambda t: t.names == {site.mark}, within_s=20)


async def test_only_one_leads_through_an_outage(plane: ControlPlane, site: Site) -> None:
    """BR-108: two candidates, the API server dies and comes back; never two at once, and later epochs are higher."""
    candidates = [
        Leadership(site.kube, site.mark, "slurm", who, duration_s=5, renew_s=0.5, margin_s=1.0, random=Random(i))
        for i, who in enumerate("ab")
    ]
    led: list[int] = []

    async def look() -> None:
        while True:
            leading = [c.epoch for c in candidates if c.holds(monotonic())]
            assert len(leading) <= 1
            led.extend(leading)
            await asyncio.sleep(0.01)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(c.run()) for c in candidates] + [group.create_task(look())]
        await eventually(lambda: asyncio.sleep(0, bool(led)))
        await asyncio.to_thread(plane.kill)
        async with asyncio.timeout(15):
            for c in candidates:
                await c.lost()
        count = len(led)
        await asyncio.to_thread(plane.restart)
        await eventually(lambda: asyncio.sleep(0, len(led) > count))
        for task in tasks:
            task.cancel()
    assert led == sorted(led)
    assert led[-1] > led[0]
    with suppress(KubeError):
        lease = await site.kube.get_lease("slurm", site.mark)
        assert lease is not None
        assert not lease.spec.holder_identity
