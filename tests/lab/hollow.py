"""Nodes without kubelet, a thousand if need be, and the small loop that plays kubelet for them.

For scale only: a bound pod is called Running and Ready at once, a deleted one is removed at once, nothing ever runs.
The loop is the lab's process ``hollow``: one watch on all pods, eight connections for the writes.
"""

import http.client
import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from . import paths, ports
from .kube import Kube
from .processes import Processes
from .progress import step
from .rest import ApiError, Rest

NAME = "hollow"
_WRITERS = 8
_CAPACITY = {"cpu": "64", "memory": "512Gi", "pods": "110", "ephemeral-storage": "1Ti", "nvidia.com/gpu": "8"}
_GONE_ON = (404, 409, 422)
"""Statuses that mean that the pod has changed or gone meanwhile; its next event is on the way."""
_READY = ("Initialized", "ContainersReady", "Ready")


def up(processes: Processes, kube: Kube, count: int) -> None:
    """Create the nodes ``node-1`` to ``node-COUNT`` and start the loop."""
    with step(f"{count} hollow nodes"):
        with ThreadPoolExecutor(_WRITERS) as pool:
            for _ in pool.map(lambda number: kube.request("POST", "/api/v1/nodes", node(number)), range(1, count + 1)):
                pass
        argv = [sys.executable, "-m", "tests.lab.hollow", kube.server, str(kube.kubeconfig), str(kube.authority)]
        processes.start(NAME, argv, cwd=paths.CHECKOUT)


def node(number: int) -> dict[str, Any]:
    """A Node object that is Ready, with eight GPUs; the API server keeps a status that comes with the creation."""
    name, now = f"node-{number}", _now()
    conditions = [
        {
            "type": kind,
            "status": "True" if kind == "Ready" else "False",
            "reason": "Hollow",
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        for kind in ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
    ]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"},
        },
        "status": {
            "capacity": _CAPACITY,
            "allocatable": _CAPACITY,
            "conditions": conditions,
            "addresses": [
                {"type": "InternalIP", "address": ports.node_address(number)},
                {"type": "Hostname", "address": name},
            ],
            "nodeInfo": {
                "kubeletVersion": "v1.36.3",
                "containerRuntimeVersion": "hollow://1",
                "operatingSystem": "linux",
                "architecture": "amd64",
            }
            | dict.fromkeys(
                ("bootID", "kernelVersion", "kubeProxyVersion", "machineID", "osImage", "systemUUID"), "hollow"
            ),
        },
    }


class Loop:
    """Plays kubelet for every bound pod, until it is killed."""

    def __init__(self, rest: Rest) -> None:
        """Act through this client, as administrator."""
        self._rest = rest
        self._addresses = _addresses()
        self._started: set[str] = set()

    def run(self) -> None:
        """Watch and act; after any failure list again."""
        with ThreadPoolExecutor(_WRITERS) as pool:
            while True:
                try:
                    for pod in self._pods():
                        pool.submit(self._act, pod)
                except (OSError, http.client.HTTPException, ApiError, ValueError, KeyError) as error:
                    print(f"listing again: {error!r}", flush=True)
                    time.sleep(0.5)

    def _pods(self) -> Iterator[dict[str, Any]]:
        """Every bound pod that is there, then every change."""
        path = "/api/v1/pods?fieldSelector=spec.nodeName!="
        found = self._rest.request("GET", path)
        yield from found["items"]
        since = found["metadata"]["resourceVersion"]
        for change in self._rest.watch(f"{path}&watch=1&resourceVersion={since}&timeoutSeconds=600", timeout_s=700):
            if change["type"] == "ERROR":
                raise ValueError(str(change["object"]))
            if change["type"] != "DELETED":
                yield change["object"]

    def _act(self, pod: dict[str, Any]) -> None:
        meta = pod["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        try:
            if "deletionTimestamp" in meta:
                if meta.get("deletionGracePeriodSeconds") != 0:
                    now = {"gracePeriodSeconds": 0, "preconditions": {"uid": meta["uid"]}}
                    self._rest.request("DELETE", path, now)
            elif pod["status"].get("phase") == "Pending" and meta["uid"] not in self._started:
                self._started.add(meta["uid"])
                patch = {"metadata": {"uid": meta["uid"]}, "status": self._running(pod)}
                self._rest.request("PATCH", f"{path}/status", patch, kind="application/strategic-merge-patch+json")
        except (OSError, http.client.HTTPException, ApiError) as error:
            self._started.discard(meta["uid"])
            if not (isinstance(error, ApiError) and error.status in _GONE_ON):
                print(f"{path}: {error!r}", flush=True)

    def _running(self, pod: dict[str, Any]) -> dict[str, Any]:
        now, address = _now(), next(self._addresses)
        return {
            "phase": "Running",
            "startTime": now,
            "podIP": address,
            "podIPs": [{"ip": address}],
            "conditions": [{"type": kind, "status": "True", "lastTransitionTime": now} for kind in _READY],
            "containerStatuses": [
                {
                    "name": container["name"],
                    "image": container["image"],
                    "imageID": container["image"],
                    "containerID": f"hollow://{pod['metadata']['uid']}",
                    "ready": True,
                    "started": True,
                    "restartCount": 0,
                    "state": {"running": {"startedAt": now}},
                }
                for container in pod["spec"]["containers"]
            ],
        }


def _addresses() -> Iterator[str]:
    """Addresses for pods, over and over; nobody can reach them."""
    while True:
        for third in range(16, 250):
            for fourth in range(1, 251):
                yield f"10.144.{third}.{fourth}"


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def main(server: str, kubeconfig: str, authority: str) -> None:
    """Run the loop with the token of a kubeconfig that the lab wrote."""
    token = json.loads(Path(kubeconfig).read_text())["users"][0]["user"]["token"]
    Loop(Rest(server, token, Path(authority))).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
