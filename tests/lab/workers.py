"""Workers as they are in a site: a real slurmd in a real pod, one on each Kubernetes node.

One StatefulSet makes them, so a pod's host name is its Slurm node's name, and stays it when the pod is evicted and
comes back. Two of them never share a Kubernetes node. Labels are those of Slinky's NodeSet pods. There is no disruption
budget: whether a worker may be evicted is for Lockstep to say.

>>> workers = Workers(kube, slurm)
>>> lab.load(workers.image())
>>> workers.create(3)                    # gpu-1, gpu-2, gpu-3: Ready in Kubernetes and IDLE in Slurm
>>> workers.node_of("gpu-1")
"""

import base64
from pathlib import Path
from typing import Any

from .images import image_from_rootfs
from .kube import Kube
from .progress import wait_for
from .rootfs import GPUS, slurm_rootfs
from .slurm import Slurm
from .slurm_conf import node_conf

NAMESPACE = "slurm"
PORT = 6818
"""Where slurmd listens in its pod."""
_KEY = "slurm-key"


class Workers:
    """The worker pods of one cluster: a StatefulSet, a headless service and the cluster's key."""

    def __init__(self, kube: Kube, slurm: Slurm, *, name: str = "gpu", namespace: str = NAMESPACE) -> None:
        """Workers are called `name`-1, `name`-2 and so on."""
        self._kube, self._slurm = kube, slurm
        self.name, self.namespace = name, namespace

    def image(self) -> Path:
        """Archive of the image with the cluster's version of slurmd; made once, to be loaded on every node."""
        root = slurm_rootfs(self._slurm.version)
        return image_from_rootfs(root, image_tag(self._slurm.version))

    def create(self, count: int, timeout_s: float = 180) -> list[str]:
        """Makes so many workers, more or fewer than before; returns their names when they are Ready and IDLE."""
        for manifest in manifests(self._slurm, name=self.name, namespace=self.namespace, count=count):
            self._kube.apply(manifest)
        names = [f"{self.name}-{number}" for number in range(1, count + 1)]
        self.wait(names, timeout_s)
        return names

    def wait(self, names: list[str], timeout_s: float = 60) -> None:
        """Waits until these workers are Ready in Kubernetes and IDLE in Slurm."""
        wait_for(f"{len(names)} worker pods ready", lambda: self._ready().issuperset(names), timeout_s)
        wait_for(f"{len(names)} workers idle in Slurm", lambda: self._slurm.idle().issuperset(names), timeout_s)

    def delete(self) -> None:
        """Removes the pods and all that belongs to them; Slurm goes on knowing the nodes."""
        self._kube.kubectl("delete", "namespace", self.namespace, "--ignore-not-found")

    def pod(self, name: str) -> dict[str, Any]:
        """The worker's pod as it is now."""
        return self._kube.get_json("pod", name, "--namespace", self.namespace)

    def node_of(self, name: str) -> str:
        """The Kubernetes node that the worker is on; empty while it has none."""
        return str(self.pod(name)["spec"].get("nodeName", ""))

    def _ready(self) -> set[str]:
        selector = "labelSelector=app.kubernetes.io/name=slurmd"
        pods = self._kube.request("GET", f"/api/v1/namespaces/{self.namespace}/pods?{selector}")
        return {
            pod["metadata"]["name"]
            for pod in pods["items"]
            for condition in pod["status"].get("conditions", ())
            if (condition["type"], condition["status"]) == ("Ready", "True")
        }


def image_tag(version: str) -> str:
    """The name under which every node knows the worker image."""
    return f"docker.io/lockstep-lab/slurmd:{version}"


def labels(cluster: str, name: str) -> dict[str, str]:
    """The labels of a worker pod, as Slinky's operator sets them."""
    return {
        "app.kubernetes.io/name": "slurmd",
        "app.kubernetes.io/instance": name,
        "app.kubernetes.io/component": "worker",
        "slinky.slurm.net/cluster": cluster,
    }


def manifests(slurm: Slurm, *, name: str, namespace: str, count: int) -> list[dict[str, Any]]:
    """Namespace, key, service and StatefulSet of the workers, in the order in which they must be made."""
    marks = labels(slurm.cluster, name)
    head = {"name": name, "namespace": namespace, "labels": marks}
    key = {"slurm.key": base64.b64encode((slurm.etc / "slurm.key").read_bytes()).decode()}
    service = {"clusterIP": "None", "publishNotReadyAddresses": True, "ports": [{"port": PORT}]}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": _KEY, "namespace": namespace}, "data": key},
        {"apiVersion": "v1", "kind": "Service", "metadata": head, "spec": service | {"selector": marks}},
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": head,
            "spec": {
                "serviceName": name,
                "replicas": count,
                "ordinals": {"start": 1},
                "podManagementPolicy": "Parallel",
                "selector": {"matchLabels": marks},
                "template": {"metadata": {"labels": marks}, "spec": _pod_spec(slurm, marks)},
            },
        },
    ]


def _pod_spec(slurm: Slurm, selector: dict[str, str]) -> dict[str, Any]:
    return {
        "terminationGracePeriodSeconds": 5,
        "automountServiceAccountToken": False,
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": selector}}
                ]
            }
        },
        "containers": [
            {
                "name": "slurmd",
                "image": image_tag(slurm.version),
                "imagePullPolicy": "IfNotPresent",
                "command": ["/bin/sh", "-ec", _start(f"{slurm.address}:{slurm.ports.slurmctld}")],
                "securityContext": {"privileged": True},
                "ports": [{"name": "slurmd", "containerPort": PORT}],
                "readinessProbe": _readiness(slurm.version),
                "volumeMounts": [{"name": "key", "mountPath": "/etc/slurm/slurm.key", "subPath": "slurm.key"}],
            }
        ],
        "volumes": [{"name": "key", "secret": {"secretName": _KEY, "defaultMode": 0o600}}],
    }


def _start(controller: str) -> str:
    """The container's script: fake GPUs, then slurmd, which gets its configuration from slurmctld."""
    last = GPUS - 1
    return (
        f"for i in $(seq 0 {last}); do test -e /dev/nvidia$i || mknod -m 666 /dev/nvidia$i c 1 3; done\n"
        "mkdir -p /run/slurm\n"
        f"exec slurmd -D -Z --conf-server {controller} --conf '{node_conf(port=PORT)}'\n"
    )


def _readiness(version: str) -> dict[str, Any]:
    """Since 25.11 slurmd itself says whether it has registered; before, an open port must do."""
    asks = (
        {"httpGet": {"path": "/readyz", "port": "slurmd"}} if version >= "25.11" else {"tcpSocket": {"port": "slurmd"}}
    )
    return asks | {"periodSeconds": 1, "failureThreshold": 3}
