"""A real API server with RBAC: what each service may do, and what it takes to take Lockstep away."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lockstep.base.clock import now
from lockstep.base.errors import BadInput, LockstepError
from lockstep.cli import uninstall_cleanup
from lockstep.cli.exits import Exit
from lockstep.cli.parser import build
from lockstep.cli.rights import (
    APPS,
    DEPLOYMENT_RIGHTS,
    LEASE_RIGHTS,
    LEASE_RIGHTS_OF_CLEANUP,
    LEASES,
    REQUEST_RIGHTS,
    RIGHTS,
    RIGHTS_OF_CLEANUP,
    Right,
)
from lockstep.contracts.hold import GROUP, Condition
from lockstep.contracts.permissions import WRITES
from lockstep.kube import keys
from lockstep.kube.client import KubeClient
from lockstep.kube.settings import KubeClientSettings
from lockstep.kube.wire import Lease, LeaseSpec, ObjectMeta
from tests.deploy.cases import GOOD
from tests.deploy.rights import rules
from tests.fakes.slurmrestd import FakeSlurmrestd
from tests.integration.control_plane import ControlPlane, control_plane
from tests.lab.helm import NAMESPACE, Helm

pytestmark = pytest.mark.timeout(300)
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
KINDS = (
    *(("", name, sub) for name in ("nodes", "pods") for sub in ("", "status")),
    *(("", name, "") for name in ("secrets", "configmaps", "events", "namespaces", "services", "serviceaccounts")),
    *(("", "pods", sub) for sub in ("exec", "eviction", "log")),
    (GROUP, "holds", ""),
    (GROUP, "holds", "status"),
    ("policy", "poddisruptionbudgets", ""),
    (LEASES, "leases", ""),
    *((APPS, "deployments", sub) for sub in ("", "status", "scale")),
    ("rbac.authorization.k8s.io", "clusterroles", ""),
    ("rbac.authorization.k8s.io", "rolebindings", ""),
    ("apiextensions.k8s.io", "customresourcedefinitions", ""),
)
OURS = "lockstep.sh/"
FORWARD = {"forward": [{"name": "hook", "url": "http://hook.example.com/"}]}
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """An API server with the chart's service accounts, roles and bindings, and nothing else of the chart."""
    with control_plane() as found:
        for name in (NAMESPACE, "slurm", "research"):
            found.kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        for document in yaml.safe_load_all(Helm().template(GOOD["requests-and-people"] | FORWARD)):
            if document and ("Role" in document["kind"] or document["kind"] == "ServiceAccount"):
                found.kube.apply(document)
        yield found


def may(plane: ControlPlane, user: str, right: Right, namespace: str, name: str = "") -> bool:
    """What the API server says about this user."""
    asked = {
        "verb": right.verb,
        "group": right.group,
        "resource": right.resource,
        "subresource": right.subresource,
        "namespace": namespace,
        "name": name,
    }
    spec = {"user": user, "groups": ["system:authenticated", "system:serviceaccounts"], "resourceAttributes": asked}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    return bool(plane.kube.request("POST", REVIEWS, body)["status"]["allowed"])


@pytest.mark.parametrize("service", WRITES)
def test_a_service_may_do_what_the_table_says_and_nothing_else(plane: ControlPlane, service: str) -> None:
    """Each verb on each kind, everywhere, in a cluster's namespace, in ours and in somebody else's. No secret."""
    user = f"system:serviceaccount:{NAMESPACE}:lockstep-{service}"
    table = RIGHTS.get(service.replace("-", "_"), []) + (REQUEST_RIGHTS if service == "drain" else [])
    here = {"": {r for r in table if not r.namespaced}, "slurm": {r for r in table if r.namespaced}}
    wrong = []
    for namespace in ("", "slurm", NAMESPACE, "default"):
        for group, resource, subresource in KINDS:
            for verb in VERBS:
                right = Right(verb, resource, group, subresource, namespaced=namespace != "")
                wanted = any(r[:4] == right[:4] for r in here[""] | here.get(namespace, set()))
                if namespace == NAMESPACE and resource == "leases" and verb == "create":
                    wanted = True
                if may(plane, user, right, namespace) != wanted:
                    wrong.append((namespace, str(right), "missing" if wanted else "too much"))
    assert wrong == []


@pytest.mark.parametrize("service", WRITES)
def test_a_service_has_its_own_lease_and_no_other(plane: ControlPlane, service: str) -> None:
    """By name; only making one cannot be bound to a name."""
    user = f"system:serviceaccount:{NAMESPACE}:lockstep-{service}"
    for other in WRITES:
        for right in LEASE_RIGHTS:
            wanted = other == service or right.verb == "create"
            assert may(plane, user, right, NAMESPACE, f"lockstep-{other}") == wanted


def test_the_slurm_poller_shows_its_condition_on_its_own_deployment_and_no_other(plane: ControlPlane) -> None:
    """By name; it reads the Deployment and writes its status, and nobody else may."""
    wanted = {("slurm-poller", "slurm-poller", right) for right in DEPLOYMENT_RIGHTS}
    found = {
        (service, other, right)
        for service in WRITES
        for other in WRITES
        for right in (Right(verb, "deployments", APPS, sub) for verb in VERBS for sub in ("", "status", "scale"))
        if may(plane, f"system:serviceaccount:{NAMESPACE}:lockstep-{service}", right, NAMESPACE, f"lockstep-{other}")
    }
    assert found == wanted


class Doomed:
    """A site that is to be cleaned, as seen by its administrator, and the settings for it."""

    def __init__(self, plane: ControlPlane, folder: Path, slurm: FakeSlurmrestd) -> None:
        self.plane, self.folder, self.slurm = plane, folder, slurm
        (folder / "key").write_bytes(slurm.key)
        token = plane.kube.token_for("cleanup")
        self.kubeconfig = str(self._kubeconfig("cleanup", token))
        self.admin = str(self._kubeconfig("admin", plane.kube._pki.token("admin")))
        self._grant("cleanup", "ClusterRole", "", [r for r in RIGHTS_OF_CLEANUP if not r.namespaced])
        self._grant("cleanup", "Role", "slurm", [r for r in RIGHTS_OF_CLEANUP if r.namespaced])
        self._grant("cleanup-leases", "Role", NAMESPACE, LEASE_RIGHTS_OF_CLEANUP)
        self._grant("cleanup-holds", "Role", "slurm", [Right(verb, "holds", GROUP) for verb in ("list", "delete")])

    def _kubeconfig(self, name: str, token: str) -> Path:
        server = {"server": self.plane.kube.server, "certificate-authority": str(self.plane.kube.authority)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": server}],
            "users": [{"name": "u", "user": {"token": token}}],
        }
        path = self.folder / f"{name}.kubeconfig"
        path.write_text(json.dumps(config))
        return path

    def _grant(self, name: str, kind: str, namespace: str, table: list[Right]) -> None:
        meta = {"name": name} | ({"namespace": namespace} if namespace else {})
        api = "rbac.authorization.k8s.io"
        self.plane.kube.apply({"apiVersion": f"{api}/v1", "kind": kind, "metadata": meta, "rules": rules(table)})
        self.plane.kube.apply(
            {
                "apiVersion": f"{api}/v1",
                "kind": f"{kind}Binding",
                "metadata": meta,
                "roleRef": {"apiGroup": api, "kind": kind, "name": name},
                "subjects": [{"kind": "ServiceAccount", "name": "cleanup", "namespace": "lockstep-lab"}],
            }
        )

    def settings(self, **policy: Any) -> str:
        """A file with the services' settings."""
        cluster = {"name": "main", "namespace": "slurm", "url": self.slurm.url, "key_file": str(self.folder / "key")}
        tree = {
            "clusters": [cluster],
            "policy": policy,
            "lease": {"namespace": NAMESPACE, "duration_s": 4},
            "kube": {"kubeconfig": self.kubeconfig},
        }
        path = self.folder / "settings.yaml"
        path.write_text(json.dumps(tree))
        return str(path)

    async def fill(self) -> None:
        """Everything that services write, beside what others wrote."""
        kube = self.plane.kube
        labels = {"app.kubernetes.io/name": "slurmd", keys.CLUSTER: "main", keys.POD_PROTECT: "true", "mine": "yes"}
        for name in ("host-1", "host-2", "host-3"):
            kube.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "gpu-1", "namespace": "slurm", "labels": labels},
            "spec": {"nodeName": "host-1", "containers": [{"name": "slurmd", "image": "none"}]},
        }
        kube.kubectl("-n", "slurm", "delete", "pod", "gpu-1", "--ignore-not-found", "--force")
        kube.apply(pod)
        spec = {"workers": {"names": ["gpu-1"]}, "reason": "DIMM"}
        hold = {"apiVersion": f"{GROUP}/v1alpha1", "kind": "Hold", "metadata": {"name": "dimm", "namespace": "slurm"}}
        kube.apply(hold | {"spec": spec})
        kube.kubectl("cordon", "host-2")
        kube.kubectl("annotate", "--overwrite", "node", "host-2", f"{keys.IGNORE_CONDITIONS}=DiskPressure")
        async with KubeClient(KubeClientSettings(kubeconfig=self.admin)) as ours:
            uid = (await ours.get_pod("slurm", "gpu-1")).metadata.uid  # type: ignore[union-attr]
            shown = [Condition(type=f"{keys.SLURM_STATE_PREFIX}Idle", status="True")]
            await ours.set_pod_conditions("slurm", "gpu-1", shown, keys.SLURM_STATE_PREFIX, uid=uid)
            await ours.set_node_condition("host-1", Condition(type=keys.IN_SERVICE, status="False", reason="Held"))
            await ours.cordon("host-1", mark=True)
            await ours.ensure_pdb("slurm", keys.pdb_name("main"), keys.protected("main"))
            await self.renew(ours)

    async def renew(self, kube: KubeClient) -> None:
        """A service leads."""
        spec = LeaseSpec(holder_identity="somebody", lease_duration_seconds=4, renew_time=now(), lease_transitions=1)
        meta = ObjectMeta(name="lockstep-reconciler", namespace=NAMESPACE)
        there = await kube.get_lease(NAMESPACE, "lockstep-reconciler")
        if there is None:
            await kube.create_lease(Lease(metadata=meta, spec=spec))
        else:
            await kube.update_lease(Lease(metadata=there.metadata, spec=spec))

    def state(self) -> dict[str, Any]:
        """What is there of what matters."""
        kube = self.plane.kube
        pod = kube.get_json("pod", "gpu-1", "-n", "slurm")
        nodes = {n["metadata"]["name"]: n for n in kube.get_json("nodes")["items"]}
        conditions = [c["type"] for n in nodes.values() for c in n["status"].get("conditions", [])]
        return {
            "protected": keys.POD_PROTECT in pod["metadata"]["labels"],
            "mine": pod["metadata"]["labels"].get("mine"),
            "pod": [c["type"] for c in pod["status"].get("conditions", []) if c["type"].startswith("SlurmNode")],
            "node": conditions.count(keys.IN_SERVICE),
            "cordoned": sorted(name for name, n in nodes.items() if n["spec"].get("unschedulable")),
            "annotations": sorted(
                k for n in nodes.values() for k in n["metadata"].get("annotations", {}) if "lockst" in k
            ),
            "budgets": [b["metadata"]["name"] for b in kube.get_json("pdb", "-n", "slurm")["items"]],
            "leases": [x["metadata"]["name"] for x in kube.get_json("leases", "-n", NAMESPACE)["items"]],
            "holds": [h["metadata"]["name"] for h in kube.get_json("holds", "-n", "slurm")["items"]],
        }


def cleanup(config: str, *options: str) -> Any:
    """The command, with that settings file."""
    return uninstall_cleanup.run(build().parse_args(["uninstall-cleanup", "--config", config, *options]))


async def test_what_is_ours_goes_and_what_is_not_stays(
    plane: ControlPlane, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Looked at first, refused without a yes, refused while a service leads; done with just its rights; and again."""
    async with FakeSlurmrestd(["gpu-1", "gpu-2"]) as slurm:
        doomed = Doomed(plane, tmp_path, slurm)
        for name, reason in (("gpu-1", "lockstep: ana: DIMM"), ("gpu-2", "bob: fan")):
            slurm.nodes[name].flags.add("DRAIN")
            slurm.nodes[name].reason = reason
        await doomed.fill()
        before, config = doomed.state(), doomed.settings()

        assert await cleanup(config, "--dry-run") == Exit.OK
        told = capsys.readouterr().out
        assert "would remove protection slurm/gpu-1" in told
        assert "host-2" not in told
        assert doomed.state() == before

        with pytest.raises(BadInput, match="--yes: is wanted"):
            await cleanup(config)
        assert doomed.state() == before

        async with KubeClient(KubeClientSettings(kubeconfig=doomed.admin)) as ours, asyncio.TaskGroup() as group:
            refused = group.create_task(_refusal(config))
            await asyncio.sleep(1)
            await doomed.renew(ours)
            assert "these still lead: lockstep-reconciler" in await refused
        assert doomed.state() == before

        capsys.readouterr()
        assert await cleanup(config, "--yes") == Exit.OK
        told = capsys.readouterr().out
        assert "Removed: 1 disruption budget, 1 lease, 1 mirrored cordon, 1 node condition, 1 pod's conditions" in told
        assert "main: stay drained in Slurm (--undrain lifts that): gpu-1\n" in told
        assert doomed.state() == {
            "protected": False,
            "mine": "yes",
            "pod": [],
            "node": 0,
            "cordoned": ["host-2"],
            "annotations": [keys.IGNORE_CONDITIONS],
            "budgets": [],
            "leases": [],
            "holds": ["dimm"],
        }
        assert await cleanup(config, "--yes") == Exit.OK
        assert "Removed: nothing." in capsys.readouterr().out

        assert await cleanup(config, "--yes", "--holds", "--undrain") == Exit.OK
        assert doomed.state()["holds"] == []
        assert "DRAIN" not in slurm.nodes["gpu-1"].flags
        assert "DRAIN" in slurm.nodes["gpu-2"].flags


async def _refusal(config: str) -> str:
    try:
        await cleanup(config, "--yes")
    except LockstepError as e:
        return str(e)
    return ""


async def test_what_slurm_operator_writes_stays_where_the_policy_leaves_it_to_it(
    plane: ControlPlane, tmp_path: Path
) -> None:
    """Labels, conditions and a budget of the same name."""
    async with FakeSlurmrestd(["gpu-1"]) as slurm:
        doomed = Doomed(plane, tmp_path, slurm)
        await doomed.fill()
        kube = plane.kube
        budget = kube.get_json("pdb", keys.pdb_name("main"), "-n", "slurm")
        kube.kubectl("-n", "slurm", "delete", "pdb", keys.pdb_name("main"))
        kube.apply(
            {k: budget[k] for k in ("apiVersion", "kind", "spec")}
            | {"metadata": {"name": keys.pdb_name("main"), "namespace": "slurm"}}
        )
        assert await cleanup(doomed.settings(conditions=False, protect="off"), "--yes", "--force") == Exit.OK
        left = doomed.state()
        assert (left["protected"], left["pod"], left["budgets"]) == (
            True,
            ["SlurmNodeStateIdle"],
            [keys.pdb_name("main")],
        )
        assert left["node"] == 0
