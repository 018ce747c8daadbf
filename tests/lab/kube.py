"""The control plane: etcd, API server, controller manager, scheduler; and a small client that is kubectl.

Each is one process of ``Processes`` under its upstream name, so each can be killed or frozen alone. Users authenticate
with static tokens (the lab's own components) or with service accounts (everything that is tested).
"""

import json
import os
import subprocess
import urllib.request
from functools import cached_property
from http.client import HTTPException
from pathlib import Path
from typing import Any

from . import paths, ports
from .build import KUBERNETES
from .pki import Pki
from .processes import Processes
from .progress import step, wait_for
from .rest import ApiError, Rest

ACCOUNTS = "lockstep-lab"
"""Namespace of the service accounts that ``token_for`` makes."""

CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")


class KubeError(RuntimeError):
    """kubectl failed, or an object was refused; the text is what was said."""


class Kube:
    """The lab's Kubernetes cluster, seen as its administrator."""

    def __init__(self, processes: Processes, *, address: str = ports.HOST) -> None:
        """Use (or start) the cluster whose API server listens on ``address``."""
        self._processes = processes
        self._address = address
        self._pki = Pki()
        self.server = f"https://{address}:{ports.API_SERVER}"

    @property
    def kubeconfig(self) -> Path:
        """Kubeconfig of the administrator."""
        return self._pki.file("admin.kubeconfig")

    @property
    def authority(self) -> Path:
        """Certificate of the authority that signed the API server's."""
        return self._pki.file("ca.crt")

    def up(self, nodes: int, *, hollow: bool = False) -> None:
        """Start the control plane with static users for this many kubelets; ready when the API server says so.

        Hollow nodes send no heartbeats, and must not be called dead for that.
        """
        with step("Kubernetes control plane"):
            self._pki.create(nodes)
            for user in (
                "admin",
                "system:kube-controller-manager",
                "system:kube-scheduler",
                "system:kube-proxy",
                "coredns",
            ):
                self._pki.kubeconfig(user, self.server)
            self._start_etcd()
            self._start_apiserver()
            self.wait_ready()
            self._start_controllers(hollow=hollow)

    def node_kubeconfig(self, node: str) -> Path:
        """Kubeconfig of one kubelet."""
        return self._pki.kubeconfig(f"system:node:{node}", self.server)

    def component_kubeconfig(self, user: str) -> Path:
        """Kubeconfig of a component of the lab, such as ``system:kube-proxy``."""
        return self._pki.file(f"{user.replace(':', '-')}.kubeconfig")

    def wait_ready(self, timeout_s: float = 60) -> None:
        """Wait until the API server is ready.

        Raises:
            TimeoutError: It is not; its log says why.
        """
        log = self._processes.log("kube-apiserver")
        wait_for(f"API server ready (log: {log})", self.ready, timeout_s)

    def ready(self) -> bool:
        """Whether the API server answers that it is ready."""
        try:
            return bool(self._rest.request("GET", "/readyz") == "ok")
        except (OSError, HTTPException, ApiError):
            return False

    def kubectl(self, *arguments: str, input: str | None = None, check: bool = True) -> str:  # noqa: A002
        """Run kubectl as administrator and return what it printed.

        Raises:
            KubeError: It failed, unless ``check`` is false.
        """
        answer = subprocess.run(
            [KUBERNETES.path("kubectl"), f"--kubeconfig={self.kubeconfig}", *arguments],
            input=input,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "KUBECACHEDIR": str(paths.STATE / "kubectl-cache")},
        )
        if check and answer.returncode != 0:
            raise KubeError(f"kubectl {' '.join(arguments)}: {answer.stderr.strip()}")
        return answer.stdout

    def get_json(self, *what: str) -> dict[str, Any]:
        """What ``kubectl get … -o json`` answers, such as ``get_json("pods", "-A")``."""
        found: dict[str, Any] = json.loads(self.kubectl("get", *what, "-o", "json"))
        return found

    def apply(self, manifest: str | dict[str, Any]) -> None:
        """Apply YAML, or an object, on the server side.

        Raises:
            KubeError: It was refused; says which.
        """
        if isinstance(manifest, str):
            self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=manifest)
            return
        try:
            self._rest.apply(manifest)
        except ApiError as error:
            raise KubeError(f"apply {manifest['kind']} {manifest['metadata']['name']}: {error}") from error

    def request(self, method: str, path: str, body: Any = None, *, kind: str = "application/json") -> Any:
        """One HTTP request as administrator, without starting kubectl; see ``Rest.request``."""
        return self._rest.request(method, path, body, kind=kind)

    def token_for(self, name: str) -> str:
        """Token of a user made for a test: the service account ``name`` in the namespace ``lockstep-lab``.

        It may do nothing until a test binds a role to ``system:serviceaccount:lockstep-lab:NAME``. Valid for a day.
        """
        for manifest in (
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ACCOUNTS}},
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": ACCOUNTS}},
        ):
            self.apply(manifest)
        return self.kubectl("-n", ACCOUNTS, "create", "token", name, "--duration=24h").strip()

    def account_kubeconfig(self, namespace: str, name: str) -> Path:
        """Kubeconfig of a service account, which is made if it is not there; valid for a day."""
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}}
        self.apply(account)
        token = self.kubectl("-n", namespace, "create", "token", name, "--duration=24h").strip()
        return self._pki.kubeconfig(f"{namespace}:{name}", self.server, token=token)

    def revoke(self, name: str) -> None:
        """Make all tokens of ``token_for(name)`` worthless; the API server's cache accepts them for 10 s more."""
        self.kubectl("-n", ACCOUNTS, "delete", "serviceaccount", name)

    def compact(self) -> int:
        """Compact etcd to its current revision and return that: a watch from an older one gets 410 Gone."""
        base = f"http://{ports.LOOPBACK}:{ports.ETCD}/v3/kv"
        revision = int(_post(f"{base}/range", {"key": "AA=="})["header"]["revision"])
        _post(f"{base}/compaction", {"revision": str(revision), "physical": True})
        return revision

    @cached_property
    def _rest(self) -> Rest:
        return Rest(self.server, self._pki.token("admin"), self.authority)

    def _start_etcd(self) -> None:
        client, peer = (f"http://{ports.LOOPBACK}:{port}" for port in (ports.ETCD, ports.ETCD_PEER))
        self._processes.start(
            "etcd",
            [
                "/usr/bin/etcd",
                f"--data-dir={paths.STATE / 'etcd'}",
                f"--listen-client-urls={client}",
                f"--advertise-client-urls={client}",
                f"--listen-peer-urls={peer}",
                f"--initial-advertise-peer-urls={peer}",
                f"--initial-cluster=default={peer}",
                "--unsafe-no-fsync",
                "--quota-backend-bytes=4294967296",
            ],
        )

    def _start_apiserver(self) -> None:
        file = self._pki.file
        self._processes.start(
            "kube-apiserver",
            [
                KUBERNETES.path("kube-apiserver"),
                f"--etcd-servers=http://{ports.LOOPBACK}:{ports.ETCD}",
                f"--bind-address={self._address}",
                f"--advertise-address={self._address}",
                f"--secure-port={ports.API_SERVER}",
                f"--tls-cert-file={file('apiserver.crt')}",
                f"--tls-private-key-file={file('apiserver.key')}",
                f"--client-ca-file={file('ca.crt')}",
                f"--token-auth-file={file('tokens.csv')}",
                f"--kubelet-client-certificate={file('kubelet-client.crt')}",
                f"--kubelet-client-key={file('kubelet-client.key')}",
                "--kubelet-preferred-address-types=InternalIP",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-key-file={file('service-accounts.pub')}",
                f"--service-account-signing-key-file={file('service-accounts.key')}",
                f"--service-cluster-ip-range={ports.SERVICES}",
                "--authorization-mode=Node,RBAC",
                "--enable-admission-plugins=NodeRestriction",
                "--allow-privileged=true",
                "--profiling=false",
                "--shutdown-delay-duration=0s",
            ],
        )

    def _start_controllers(self, *, hollow: bool) -> None:
        """Start controller manager and scheduler; without leader election, since each is alone."""

        def common(user: str) -> list[str]:
            kubeconfig = self.component_kubeconfig(user)
            flags = ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
            limits = ("--leader-elect=false", "--kube-api-qps=200", "--kube-api-burst=400")
            return [f"--bind-address={ports.LOOPBACK}", *limits, *(f"--{flag}={kubeconfig}" for flag in flags)]

        self._processes.start(
            "kube-controller-manager",
            [
                KUBERNETES.path("kube-controller-manager"),
                *common("system:kube-controller-manager"),
                f"--secure-port={ports.CONTROLLER_MANAGER}",
                f"--root-ca-file={self.authority}",
                f"--service-account-private-key-file={self._pki.file('service-accounts.key')}",
                "--use-service-account-credentials=true",
                f"--node-monitor-grace-period={'24h' if hollow else '40s'}",
            ],
        )
        self._processes.start(
            "kube-scheduler",
            [
                KUBERNETES.path("kube-scheduler"),
                *common("system:kube-scheduler"),
                f"--secure-port={ports.SCHEDULER}",
            ],
        )


def _post(url: str, body: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        found: dict[str, Any] = json.loads(answer.read())
        return found
