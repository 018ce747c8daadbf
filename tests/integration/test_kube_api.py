"""A real kube-apiserver sits the exam; and what only a real one can show: schemas, policies, rights, restarts.

Needs root. The control plane is one of its own, beside any lab that is up.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from lockstep.base.clock import monotonic
from lockstep.contracts.hold import Condition
from lockstep.kube import keys
from lockstep.kube.client import KubeClient
from lockstep.kube.errors import Denied, KubeError
from lockstep.kube.lease import Leadership
from lockstep.kube.resources import PODS
from lockstep.kube.settings import KubeClientSettings
from lockstep.kube.watch import Watch
from lockstep.kube.wire import Hold, Pod
from tests.contract.kube_exam import KubeExam
from tests.contract.kube_site import Object, Site, eventually
from tests.integration.control_plane import ControlPlane, control_plane
from tests.lab.kube import Kube
from tests.lab.rest import ApiError
from tests.unit.kube.following import following

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(scope="session")
def plane() -> Iterator[ControlPlane]:
    """A control plane."""
    with control_plane() as plane:
        yield plane


class RealYard:
    """The administrator's hand on the real one."""

    def __init__(self, kube: Kube) -> None:
        """Of this cluster."""
        self._kube = kube

    async def create(self, path: str, body: Object) -> Object:
        """POST."""
        return await self._ask("POST", f"{path}?fieldManager=exam", body)

    async def patch(self, path: str, body: Object) -> Object:
        """PATCH."""
        return await self._ask("PATCH", path, body, "application/merge-patch+json")

    async def read(self, path: str) -> Object:
        """GET."""
        return await self._ask("GET", path, None)

    async def delete(self, path: str) -> None:
        """DELETE, without waiting for a kubelet."""
        await self._ask("DELETE", f"{path}?gracePeriodSeconds=0", None)

    async def _ask(self, method: str, path: str, body: Any, kind: str = "application/json") -> Object:
        found: Object = await asyncio.to_thread(self._kube.request, method, path, body, kind=kind)
        return found


def settings(plane: ControlPlane, folder: Path, token: Path, **more: Any) -> KubeClientSettings:
    """A kubeconfig whose token is in a file of its own, as a pod's is."""
    server = {"server": plane.kube.server, "certificate-authority": str(plane.kube.authority)}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "exam",
        "contexts": [{"name": "exam", "context": {"cluster": "exam", "user": "me"}}],
        "clusters": [{"name": "exam", "cluster": server}],
        "users": [{"name": "me", "user": {"tokenFile": str(token)}}],
    }
    path = folder / f"{token.name}.kubeconfig"
    path.write_text(json.dumps(config))
    return KubeClientSettings(kubeconfig=str(path), **more)


@pytest.fixture(scope="session")
def token(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The token of a service account with just the rights that the client needs."""
    path = tmp_path_factory.mktemp("exam") / "token"
    path.write_text(plane.user("exam"))
    return path


@pytest.fixture
async def site(plane: ControlPlane, token: Path, tmp_path: Path) -> AsyncIterator[Site]:
    """The real API server."""
    async with KubeClient(settings(plane, tmp_path, token, page=3)) as kube:
        yield Site(kube=kube, yard=RealYard(plane.kube), namespace="slurm")


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


def manifest(name: str, spec: Object, **annotations: str) -> str:
    """A Hold as a person writes it."""
    meta = {"name": name, "namespace": "slurm", "annotations": annotations}
    return json.dumps({"apiVersion": "lockstep.sh/v1alpha1", "kind": "Hold", "metadata": meta, "spec": spec})


async def kubectl(
    plane: ControlPlane,
    *arguments: str,
    user: str = "ana@example.com",
    manifest: str = "",
    group: str = "system:masters",
) -> str:
    """Run kubectl as a person; what it printed, or why it failed."""
    asked = (*arguments, f"--as={user}", f"--as-group={group}")
    try:
        return await asyncio.to_thread(plane.kube.kubectl, *asked, input=manifest or None)
    except RuntimeError as e:
        return str(e)


GOOD: Object = {"workers": {"names": ["gpu-7"]}, "reason": "DIMM"}


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        pytest.param({"reason": "x"}, "spec.workers: Required value", id="no workers"),
        pytest.param(GOOD | {"workers": {}}, "give exactly one of names, hostlist", id="none chosen"),
        pytest.param(
            GOOD | {"workers": {"names": ["a"], "nodes": ["b"]}}, "give exactly one of names", id="two chosen"
        ),
        pytest.param(GOOD | {"workers": {"names": []}}, "should have at least 1 items", id="empty list"),
        pytest.param(GOOD | {"workers": {"names": ["a b"]}}, "spec.workers.names[0]", id="not a name"),
        pytest.param(GOOD | {"workers": {"hostlist": "a;b"}}, "spec.workers.hostlist", id="not a host list"),
        pytest.param(GOOD | {"workers": {"selector": {"matchLabels": {}}}}, "at least 1 properties", id="every pod"),
        pytest.param(GOOD | {"workers": {"names": ["a"] * 1025}}, "must have at most 1024 items", id="too many"),
        pytest.param(GOOD | {"reason": ""}, "spec.reason", id="no reason"),
        pytest.param(GOOD | {"reason": "  "}, "want more than spaces", id="blank reason"),
        pytest.param(GOOD | {"reason": "a\nb"}, "want one line without control characters", id="two lines"),
        pytest.param(GOOD | {"reason": "a\u202eb"}, "want one line without control characters", id="turned text"),
        pytest.param(GOOD | {"reason": "x" * 201}, "may not be more than 200", id="long reason"),
        pytest.param(GOOD | {"class": "slurm"}, 'Unsupported value: "slurm"', id="a class that is not for people"),
        pytest.param(GOOD | {"expiresAt": "2030-01-01T00:00:00"}, "must be of type date-time", id="no zone"),
        pytest.param(GOOD | {"drain": {"deadline": "soon"}}, "spec.drain.deadline", id="no duration"),
        pytest.param(GOOD | {"drain": {"policy": "Kill"}}, 'Unsupported value: "Kill"', id="no policy"),
        pytest.param(GOOD | {"drain": {"atDeadline": "Cancel"}}, "atDeadline needs a deadline", id="no deadline"),
    ],
)
async def test_a_bad_hold_is_refused_with_a_word_on_what_is_wrong(plane: ControlPlane, spec: Object, said: str) -> None:
    """BR-159: at the door, with the field, not later in a log."""
    assert said in await kubectl(plane, "create", "-f", "-", manifest=manifest("bad", spec))


async def test_a_hold_reads_well(plane: ControlPlane, site: Site) -> None:
    """What people see, also of text that is not ASCII, and with the defaults filled in."""
    spec = GOOD | {"reason": "Größe 日本 'q' = $x", "expiresAt": "2030-01-01T06:00:00+01:00"}
    assert "created" in await kubectl(plane, "create", "-f", "-", manifest=manifest(site.mark, spec))
    hold = await site.kube.get_hold("slurm", site.mark)
    assert hold is not None
    assert hold.spec is not None
    assert (hold.fault, hold.spec.reason, hold.owner) == ("", "Größe 日本 'q' = $x", "ana@example.com")
    await site.kube.set_hold_status("slurm", site.mark, hold.status, uid=hold.metadata.uid)
    [header, line] = (await kubectl(plane, "-n", "slurm", "get", "hold", site.mark)).splitlines()
    assert header.split() == ["NAME", "CLASS", "PHASE", "SELECTED", "DRAINED", "OWNER", "EXPIRES", "AGE", "REASON"]
    assert line.split()[:5] == [site.mark, "manual", "Pending", "0", "0"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"workers": {"names": ["another"]}}, "workers cannot be changed"),
        ({"class": "update"}, "class cannot be changed"),
        ({"cluster": "another"}, "cluster cannot be changed"),
    ],
)
async def test_whom_a_hold_is_for_cannot_change(plane: ControlPlane, site: Site, change: Object, said: str) -> None:
    """The reason and the deadline may; a hold on others is another hold."""
    await kubectl(plane, "create", "-f", "-", manifest=manifest(site.mark, GOOD))
    patch = ("-n", "slurm", "patch", "hold", site.mark, "--type=merge", "-p")
    assert said in await kubectl(plane, *patch, json.dumps({"spec": change}))
    assert "patched" in await kubectl(
        plane, *patch, json.dumps({"spec": {"reason": "other", "drain": {"deadline": "2h"}}})
    )


async def test_nobody_can_claim_to_be_another(plane: ControlPlane, site: Site) -> None:
    """The owner is who asked, whatever the manifest says, and stays so, whoever changes the Hold."""

    async def owner() -> str:
        hold = await site.kube.get_hold("slurm", site.mark)
        assert hold is not None
        return hold.owner

    forged = manifest(site.mark, GOOD, **{keys.OWNER: "bob@example.com"})
    assert "created" in await kubectl(plane, "create", "-f", "-", manifest=forged)
    assert await owner() == "ana@example.com"
    hold = ("-n", "slurm", "annotate", "hold", site.mark, "--overwrite")
    for change in (f"{keys.OWNER}=bob@example.com", f"{keys.OWNER}-"):
        for user in ("ana@example.com", "bob@example.com"):
            said = await kubectl(plane, *hold, change, user=user)
            assert "says who created the Hold (ana@example.com) and cannot be changed" in said
    apply = ("apply", "--server-side", "--force-conflicts", "-f", "-")
    assert "cannot be changed" in await kubectl(plane, *apply, manifest=forged, user="bob@example.com")
    assert "annotated" in await kubectl(plane, *hold, "note=x", user="bob@example.com")
    assert await owner() == "ana@example.com"
    await kubectl(plane, "-n", "slurm", "delete", "hold", site.mark)
    assert "created" in await kubectl(plane, "create", "-f", "-", manifest=forged, user="eve@example.com")
    assert await owner() == "eve@example.com"


def role(group: str, *verbs: str) -> list[Object]:
    """The right of a group to do this with Holds."""
    rbac, meta = "rbac.authorization.k8s.io", {"name": f"exam-{group}"}
    rules = [{"apiGroups": ["lockstep.sh"], "resources": ["holds"], "verbs": list(verbs)}]
    subject = {"apiGroup": rbac, "kind": "Group", "name": group}
    ref = {"apiGroup": rbac, "kind": "ClusterRole", "name": meta["name"]}
    binding = {"apiVersion": f"{rbac}/v1", "kind": "ClusterRoleBinding", "metadata": meta}
    return [
        {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": meta, "rules": rules},
        binding | {"roleRef": ref, "subjects": [subject]},
    ]


async def test_only_who_may_delegate_says_for_whom_a_hold_was_made(plane: ControlPlane, site: Site) -> None:
    """The drain service makes Holds for those who ask over NATS; nobody else can claim one, or take one over."""
    verbs = ("get", "create", "update", "patch", "delete")
    for rule in [*role("people", *verbs), *role("services", *verbs, "delegate")]:
        await asyncio.to_thread(plane.kube.apply, rule)
    asked = manifest(site.mark, GOOD, **{keys.REQUESTED_BY: "ops", keys.REQUEST: "r-1"})
    hold = ("-n", "slurm", "annotate", "hold", site.mark, "--overwrite")

    refused = await kubectl(plane, "create", "-f", "-", manifest=asked, group="people")
    assert "ana@example.com may not delegate holds in slurm, and cannot set or change them" in refused
    assert "created" in await kubectl(plane, "create", "-f", "-", manifest=asked, user="drain", group="services")
    made = await site.kube.get_hold("slurm", site.mark)
    assert made is not None
    assert (made.owner, made.requested_by, made.request) == ("nats:ops", "ops", "r-1")
    assert made.metadata.annotations[keys.OWNER] == "drain"
    for change in (f"{keys.REQUESTED_BY}=ana", f"{keys.REQUESTED_BY}-", f"{keys.REQUEST}=r-2"):
        assert "cannot set or change them" in await kubectl(plane, *hold, change, group="people")
    assert "annotated" in await kubectl(plane, *hold, "note=x", group="people")
    assert "annotated" in await kubectl(plane, *hold, f"{keys.REQUEST}=r-2", user="drain", group="services")
    await kubectl(plane, "-n", "slurm", "delete", "hold", site.mark, group="people")
    assert "created" in await kubectl(plane, "create", "-f", "-", manifest=manifest(site.mark, GOOD), group="people")
    assert "cannot set or change them" in await kubectl(plane, *hold, f"{keys.REQUESTED_BY}=bob", group="people")


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
