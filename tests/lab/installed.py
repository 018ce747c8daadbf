"""Lockstep on the lab as a site has it: the chart, installed by helm; each service is two pods with rights of its own.

>>> site = Installed(lab)
>>> site.install()                           # images, the namespace, the key's Secret, helm install, all ready
>>> site.cli("get", "workers")               # on the machine, as an administrator who was given a NATS user
>>> site.kill("drain"); site.uninstall()
"""

import base64
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import paths, product
from .helm import CHART, NAMESPACE, Helm
from .lockstep import SERVICES, Command
from .progress import step, together, wait_for

if TYPE_CHECKING:
    from .lab import Lab

KEY = "slurm-auth"
PERSON = "ops"
"""The NATS user of whoever uses the command."""
VOLUMES = ("nats-0", "nats-1", "nats-2")
VOLUMES_ROOT = paths.STATE / "volumes"
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


class Installed(Command):
    """One release, in a namespace that takes restricted pods only."""

    def __init__(self, lab: "Lab", *, chart: Path = CHART) -> None:
        """`chart` is the one that `install` installs."""
        super().__init__(paths.STATE / "installed" / "settings.yaml")
        self._lab = lab
        self.helm = Helm(lab, chart=chart)

    @property
    def values(self) -> dict[str, Any]:
        """What a site with one cluster would say."""
        slurm = self._lab.slurm
        key = {"name": KEY, "key": "jwt.key"}
        right = {"user": PERSON, "verbs": ["hold", "release", "cancel-drain"], "clusters": ["*"], "override": True}
        return {
            "clusters": [{"name": "main", "namespace": "slurm", "url": slurm.url, "keySecretRef": key}],
            "requests": {"allow": [right]},
        }

    def prepare(self) -> None:
        """What is there before the chart: its images on the nodes, the namespace, the key, a volume."""
        with step("images of Lockstep and NATS"):
            archives = [product.lockstep_image(), product.nats_image()]
            together(*(lambda archive=archive: self._lab.load(archive) for archive in archives))
        kube = self._lab.kube
        key = base64.b64encode(self._lab.slurm.key_file.read_bytes()).decode()
        names = {"namespace": NAMESPACE, "name": KEY}
        for manifest in (
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "slurm"}},
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": RESTRICTED}},
            {"apiVersion": "v1", "kind": "Secret", "metadata": names, "data": {"jwt.key": key}},
            *_volumes(),
        ):
            kube.apply(manifest)

    def install(self, values: Mapping[str, Any] | None = None) -> None:
        """Install it, or bring what is installed to this chart and these values; ready when it returns."""
        self.prepare()
        with step("helm install"):
            self.helm.upgrade({**self.values, **(values or {})}, "--install")
        self._write_settings()

    def uninstall(self) -> None:
        """Remove the release; what a site would keep stays."""
        self.helm.uninstall()

    def stop(self) -> None:
        """As `uninstall`; and the namespace with all that is left in it."""
        self.uninstall()
        self._lab.kube.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found")
        self._lab.kube.kubectl("delete", "persistentvolume", *VOLUMES, "--ignore-not-found")
        shutil.rmtree(VOLUMES_ROOT, ignore_errors=True)

    def kill(self, service: str = "") -> None:
        """End the pods of all services, or of one, without warning; others come by themselves."""
        names = [pod["metadata"]["name"] for each in ([service] if service else SERVICES) for pod in self.pods(each)]
        self._lab.kube.kubectl("-n", NAMESPACE, "delete", "pod", "--force", "--grace-period=0", *names)

    def up(self, timeout_s: float = 60) -> None:
        """Nobody need start anything: wait until every service has all its pods, and each is ready."""
        wait_for("all pods of Lockstep ready", self._is_ready, timeout_s, 0.2)

    def pods(self, service: str) -> list[dict[str, Any]]:
        """The pods of one service that are not on their way out."""
        path = f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=app.kubernetes.io/component={service}"
        items = self._lab.kube.request("GET", path)["items"]
        return [pod for pod in items if "deletionTimestamp" not in pod["metadata"]]

    def leader(self, service: str) -> str:
        """The pod of this service that acts; empty while none does."""
        path = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/lockstep-{service}"
        holder = self._lab.kube.request("GET", path)["spec"].get("holderIdentity") or ""
        return str(holder).rpartition("-")[0]

    def pids(self, pod: str) -> list[int]:
        """The processes in a pod, as this machine sees them."""
        uid = self._lab.kube.request("GET", f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}")["metadata"]["uid"]
        return sorted(_pids_of(str(uid)))

    def signal(self, pod: str, number: int) -> None:
        """Send a signal to the service in a pod, past Kubernetes."""
        for pid in self.pids(pod):
            os.kill(pid, number)

    def logs(self, service: str) -> str:
        """What all pods of a service have logged."""
        names = [pod["metadata"]["name"] for pod in self.pods(service)]
        return "".join(self._lab.kube.kubectl("-n", NAMESPACE, "logs", name) for name in names)

    def last_words(self, lines: int) -> str:
        """The end of each pod's log."""
        said = ""
        for name in (pod["metadata"]["name"] for service in SERVICES for pod in self.pods(service)):
            log = self._lab.kube.kubectl("-n", NAMESPACE, "logs", name, f"--tail={lines}", check=False)
            said += f"{name}:\n{log}"
        return said

    def password(self, user: str) -> str:
        """Of a NATS user that the chart made."""
        path = f"/api/v1/namespaces/{NAMESPACE}/secrets/lockstep-nats-{user}"
        return base64.b64decode(self._lab.kube.request("GET", path)["data"]["password"]).decode()

    @property
    def nats_url(self) -> str:
        """NATS as this machine reaches it, by the Service's address."""
        service = self._lab.kube.request("GET", f"/api/v1/namespaces/{NAMESPACE}/services/lockstep-nats")
        return f"nats://{service['spec']['clusterIP']}:4222"

    def _write_settings(self) -> None:
        """What an administrator at this machine would have in her file."""
        home, slurm = self.settings_file.parent, self._lab.slurm
        password = paths.write(home / "nats.password", self.password(PERSON), mode=0o600)
        main = {"name": "main", "namespace": "slurm", "url": slurm.url, "key_file": str(slurm.key_file)}
        settings = {
            "clusters": [main],
            "kube": {"kubeconfig": str(self._lab.kube.kubeconfig)},
            "nats": {"url": self.nats_url, "user": PERSON, "password_file": str(password)},
            "lease": {"namespace": NAMESPACE},
            "requests": self.values["requests"],
        }
        paths.write(self.settings_file, json.dumps(settings, indent=1))

    def _is_ready(self) -> bool:
        each = [pod for service in SERVICES for pod in self.pods(service)]
        ready = [pod for pod in each if _condition(pod, "Ready") == "True"]
        return len(ready) == len(each) == 2 * len(SERVICES)


def _volumes() -> Sequence[dict[str, Any]]:
    """A volume for each NATS server that there may be, on this machine's disk: the lab has no provisioner."""
    spec = {"capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOnce"]}
    found = []
    for number, name in enumerate(VOLUMES):
        folder = VOLUMES_ROOT / name
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o777)
        claim = {"namespace": NAMESPACE, "name": f"data-lockstep-nats-{number}"}
        own = {"claimRef": claim, "hostPath": {"path": str(folder)}, "storageClassName": ""}
        manifest = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}}
        found.append({**manifest, "spec": {**spec, **own}})
    return found


def _pids_of(uid: str) -> Iterator[int]:
    """Everything in a pod's cgroup but its sandbox's pause."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if uid in (folder / "cgroup").read_text() and b"pause" not in (folder / "cmdline").read_bytes():
                yield int(folder.name)
        except OSError:
            continue


def _condition(pod: Mapping[str, Any], kind: str) -> str:
    return next((str(c["status"]) for c in pod["status"].get("conditions", ()) if c["type"] == kind), "")
