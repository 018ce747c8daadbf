"""Nodes without kubelet, a thousand if need be, and the small loop that plays kubelet for them.

For scale only: a bound pod is called Running and Ready at once, a deleted one is removed at once, no container ever runs.
The loop is the lab's process ``hollow``: one watch on all pods, eight connections for the writes.
"""

import contextlib
import http.client
import json
import ssl
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from . import paths, ports
from .kube import Kube
from .processes import Processes
from .progress import step

NAME = "hollow"
_WRITERS = 8
_CAPACITY = {"cpu": "64", "memory": "512Gi", "pods": "110", "ephemeral-storage": "1Ti", "nvidia.com/gpu": "8"}
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
    """A Node object that is Ready, with eight GPUs. The API server keeps a status that is sent along at the creation."""
    name, now = f"node-{number}", _now()
    conditions = [
        {"type": kind, "status": "True" if kind == "Ready" else "False", "reason": "Hollow", "lastHeartbeatTime": now, "lastTransitionTime": now}
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
            "nodeInfo": {"kubeletVersion": "v1.36.3", "containerRuntimeVersion": "hollow://1", "operatingSystem": "linux", "architecture": "amd64"}
            | dict.fromkeys(("bootID", "kernelVersion", "kubeProxyVersion", "machineID", "osImage", "systemUUID"), "hollow"),
        },
    }


class Loop:
    """Plays kubelet for every bound pod, until it is killed."""

    def __init__(self, server: str, token: str, authority: Path) -> None:
        """Talk to this API server as its administrator."""
        host, _, port = server.removeprefix("https://").partition(":")
        self._address = host, int(port)
        self._headers = {"Authorization": f"Bearer {token}"}
        self._tls = ssl.create_default_context(cafile=str(authority))
        self._own = threading.local()
        self._addresses = _addresses()
        self._started: set[str] = set()

    def run(self) -> None:
        """Watch and act; after any failure list again."""
        with ThreadPoolExecutor(_WRITERS) as pool:
            while True:
                try:
                    for pod in self._pods():
                        pool.submit(self._act, pod)
                except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
                    print(f"listing again: {error!r}", flush=True)
                    time.sleep(0.5)

    def _pods(self) -> Iterator[dict[str, Any]]:
        """Every pod that is there, then every change."""
        found = self._request("GET", "/api/v1/pods?fieldSelector=spec.nodeName!=")
        yield from found["items"]
        version = found["metadata"]["resourceVersion"]
        path = f"/api/v1/pods?watch=1&fieldSelector=spec.nodeName!=&resourceVersion={version}&timeoutSeconds=600"
        connection = self._connect(timeout_s=700)
        with contextlib.closing(connection):
            connection.request("GET", path, headers=self._headers)
            for line in connection.getresponse():
                change = json.loads(line)
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
                    self._request("DELETE", path, {"gracePeriodSeconds": 0, "preconditions": {"uid": meta["uid"]}})
            elif pod["status"].get("phase") == "Pending" and meta["uid"] not in self._started:
                self._started.add(meta["uid"])
                self._request("PATCH", f"{path}/status", {"metadata": {"uid": meta["uid"]}, "status": self._running(pod)})
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._started.discard(meta["uid"])
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

    def _request(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """One request over this thread's own connection; 404, 409 and 422 mean that the pod has gone on meanwhile."""
        kind = "application/strategic-merge-patch+json" if method == "PATCH" else "application/json"
        connection = getattr(self._own, "connection", None)
        if connection is None:
            connection = self._own.connection = self._connect(timeout_s=30)
        try:
            connection.request(method, path, body and json.dumps(body), self._headers | {"Content-Type": kind})
            answer = connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException):
            self._own.connection = None
            raise
        if answer.status >= 400 and answer.status not in (404, 409, 422):
            raise ValueError(f"{answer.status} {content[:300]!r}")
        return json.loads(content)

    def _connect(self, timeout_s: float) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(*self._address, context=self._tls, timeout=timeout_s)


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
    Loop(server, token, Path(authority)).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
