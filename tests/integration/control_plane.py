"""A Kubernetes control plane for one test run, with its own folders and ports, beside any lab that is up."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.lab import build, packages, paths, ports
from tests.lab.faults import Faults
from tests.lab.kube import Kube
from tests.lab.lockstep import install
from tests.lab.pki import Pki
from tests.lab.processes import Processes
from tests.lab.progress import wait_for
from tests.lab.rest import ApiError

HOLDS = "/apis/lockstep.sh/v1alpha1/namespaces/slurm/holds"
HOME = Path("/var/lib/lockstep-exam-kube")
PORTS = {"ETCD": 22379, "ETCD_PEER": 22380, "API_SERVER": 28443, "CONTROLLER_MANAGER": 29257, "SCHEDULER": 29259}

RULES: list[dict[str, Any]] = [
    {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["get", "list", "watch", "patch"]},
    {"apiGroups": [""], "resources": ["nodes/status", "pods/status"], "verbs": ["patch"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "get", "patch"]},
    {"apiGroups": ["policy"], "resources": ["poddisruptionbudgets"], "verbs": ["list", "create"]},
    {"apiGroups": ["lockstep.sh"], "resources": ["holds"], "verbs": ["get", "list", "watch", "create", "delete"]},
    {"apiGroups": ["lockstep.sh"], "resources": ["holds/status"], "verbs": ["patch"]},
    {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get"]},
    {"apiGroups": ["apps"], "resources": ["deployments/status"], "verbs": ["patch"]},
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]},
]
"""All that the client's calls need."""


class ControlPlane:
    """etcd, API server and controller manager, with our custom resource and policies, and a way to fail them."""

    def __init__(self, processes: Processes) -> None:
        """Not started yet."""
        self.kube = Kube(processes, address=ports.LOOPBACK)
        self.kube._pki = Pki(HOME / "state" / "pki")
        self.fail = Faults(processes, self.kube, [])

    def up(self) -> None:
        """Start it and install what a site's administrator installs."""
        self.kube.up(0, hollow=True)
        install(self.kube)
        meta = {"name": "lockstep-exam"}
        role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": meta, "rules": RULES}
        self.kube.apply(role)
        self.kube.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "nobody"}})
        self.kube.kubectl("-n", "slurm", "wait", "--for=create", "serviceaccount/default", "--timeout=30s")

    def kill(self) -> None:
        """End the API server without warning; its port is free when this returns."""
        self.fail.kill("kube-apiserver")
        wait_for("the API server's port is free", lambda: not ports._in_use(ports.API_SERVER), 10)

    def restart(self) -> None:
        """End it, start it again, and wait until it is ready; its caches are empty.

        Ready, it still refuses Holds with 503 for some three seconds: its admission looks their kind up first.
        """
        self.kill()
        self.fail.restart("kube-apiserver")
        self.kube.wait_ready()
        wait_for("the API server takes Holds", self._takes_holds, 20, 0.2)

    def _takes_holds(self) -> bool:
        spec = {"workers": {"names": ["gpu-1"]}, "reason": "exam"}
        hold = {"apiVersion": "lockstep.sh/v1alpha1", "kind": "Hold", "metadata": {"name": "exam"}, "spec": spec}
        try:
            self.kube.request("POST", f"{HOLDS}?dryRun=All", hold)
        except ApiError as error:
            if error.status != 503:
                raise
            return False
        return True

    def user(self, name: str) -> str:
        """A service account with the rights that the client needs; its token."""
        token = self.kube.token_for(name)
        self.kube.apply(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": f"lockstep-exam-{name}"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "lockstep-exam"},
                "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "lockstep-lab"}],
            }
        )
        return token


@contextmanager
def control_plane() -> Iterator[ControlPlane]:
    """One that runs, and is gone afterwards."""
    packages.install()
    build.build(build.KUBERNETES)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("STATE", "RUN", "LOGS"):
            patch.setattr(paths, name, HOME / name.lower())
        for name, port in PORTS.items():
            patch.setattr(ports, name, port)
        processes = Processes(paths.STATE, paths.LOGS)
        processes.stop_all()
        shutil.rmtree(paths.STATE, ignore_errors=True)
        paths.prepare()
        try:
            plane = ControlPlane(processes)
            plane.up()
            yield plane
        finally:
            processes.stop_all()
            shutil.rmtree(paths.STATE, ignore_errors=True)
