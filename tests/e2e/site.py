"""What tests do and ask on the lab, in the words of the people who use both systems."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from tests.lab.build import KUBERNETES
from tests.lab.installed import Installed
from tests.lab.lab import Lab
from tests.lab.lockstep import Lockstep
from tests.lab.rest import ApiError

T = TypeVar("T")
PROTECT = "nodeset.slinky.slurm.net/pod-protect"
POD_CORDON = "nodeset.slinky.slurm.net/pod-cordon"
REASON = "nodeset.slinky.slurm.net/node-cordon-reason"
HOLDS = "/apis/lockstep.sh/v1alpha1/namespaces/slurm/holds"
WORKERS = ("gpu-1", "gpu-2", "gpu-3")
LATER_S = 0.3


def eventually(what: str, ask: Callable[[], T], timeout_s: float = 20, pause_s: float = 0.05) -> T:
    """The first true answer; fails with the last one and with `what` was waited for.

    Asks often at first, later a few times a second, and never for more than half of the time: most questions start a
    command, which takes from what is waited for.
    """
    began = asked = time.monotonic()
    while not (answer := ask()):
        now = time.monotonic()
        assert now - began < timeout_s, f"{what}: still {answer!r} after {timeout_s:g} s"
        time.sleep(max(pause_s, now - asked, min((now - began) / 10, LATER_S)))
        asked = time.monotonic()
    return answer


def always(what: str, ask: Callable[[], object], for_s: float) -> None:
    """Fails as soon as the answer is not true."""
    deadline = time.monotonic() + for_s
    while time.monotonic() < deadline:
        assert ask(), what
        time.sleep(0.1)


@dataclass(frozen=True)
class SlurmView:
    """A Slurm node as `scontrol` shows it."""

    states: frozenset[str]
    reason: str

    @property
    def drained(self) -> bool:
        """DRAIN stands."""
        return "DRAIN" in self.states


class Site:
    """The lab and the Lockstep that runs on it."""

    def __init__(self, lab: Lab, lockstep: Lockstep | Installed) -> None:
        self.lab = lab
        self.lockstep = lockstep
        self._jobs: list[int] = []

    # ---- Slurm

    def slurm(self, worker: str) -> SlurmView:
        """The worker as slurmctld shows it."""
        node = self.lab.slurm.node(worker)
        return SlurmView(frozenset(node["state"]), node["reason"])

    def scontrol(self, worker: str, **settings: str) -> None:
        """`scontrol update nodename=…`, as an administrator."""
        self.lab.slurm.scontrol("update", f"nodename={worker}", *(f"{key}={value}" for key, value in settings.items()))

    def job(self, worker: str, seconds: int = 600, *, gpus: int = 8, requeue: bool = True) -> int:
        """A job on that worker that asks for its GPUs; returns when it runs."""
        flags = ["--requeue" if requeue else "--no-requeue", f"--gres=gpu:{gpus}", f"--nodelist={worker}", "--time=60"]
        job = self.lab.slurm.sbatch(f"#!/bin/sh\nexec sleep {seconds}\n", *flags)
        self._jobs.append(job)
        eventually(f"job {job} runs", lambda: self.job_state(job) == "RUNNING", 30)
        return job

    def submit(self, worker: str, seconds: int = 600) -> int:
        """A job for that worker, submitted and not waited for."""
        job = self.lab.slurm.sbatch(f"#!/bin/sh\nexec sleep {seconds}\n", "--gres=gpu:8", f"--nodelist={worker}")
        self._jobs.append(job)
        return job

    def job_state(self, job: int) -> str:
        """The job's state as squeue or scontrol shows it; empty when it is forgotten."""
        text = self.lab.slurm.squeue("--noheader", "--states=all", f"--jobs={job}", "--format=%T")
        return text.strip()

    def cancel(self, job: int) -> None:
        """`scancel`."""
        self.lab.slurm.scancel(str(job))

    # ---- Kubernetes

    def host(self, worker: str) -> str:
        """The Kubernetes node that the worker's pod is on."""
        return str(self.pod(worker)["spec"].get("nodeName", ""))

    def kubectl(self, *arguments: str, check: bool = True) -> str:
        """`kubectl` as administrator."""
        return self.lab.kube.kubectl(*arguments, check=check)

    def cordon(self, worker: str) -> str:
        """`kubectl cordon` of the worker's node; its name."""
        host = self.host(worker)
        self.kubectl("cordon", host)
        return host

    def pod(self, worker: str) -> dict[str, Any]:
        """The worker's pod; empty parts while there is none."""
        try:
            return dict(self.lab.kube.request("GET", f"/api/v1/namespaces/slurm/pods/{worker}"))
        except ApiError as error:
            if error.status != 404:
                raise
            return {"metadata": {}, "spec": {}, "status": {}}

    def node(self, host: str) -> dict[str, Any]:
        """A Kubernetes node."""
        return dict(self.lab.kube.request("GET", f"/api/v1/nodes/{host}"))

    def uid(self, worker: str) -> str:
        """Which pod the worker has now; empty while it has none."""
        return str(self.pod(worker)["metadata"].get("uid", ""))

    def protected(self, worker: str) -> bool:
        """Whether the pod carries the label that its PodDisruptionBudget selects."""
        return self.pod(worker)["metadata"].get("labels", {}).get(PROTECT) == "true"

    def conditions(self, worker: str) -> dict[str, str]:
        """The pod's `SlurmNodeState*` conditions and their messages."""
        found = self.pod(worker)["status"].get("conditions", [])
        return {
            c["type"].removeprefix("SlurmNodeState"): c.get("message", "")
            for c in found
            if c["type"].startswith("SlurmNodeState")
        }

    def in_service(self, host: str) -> tuple[str, str, str]:
        """Status, reason and message of the node's `lockstep.sh/InService`."""
        for c in self.node(host)["status"].get("conditions", []):
            if c["type"] == "lockstep.sh/InService":
                return (c["status"], c.get("reason", ""), c.get("message", ""))
        return ("", "", "")

    def evict(self, worker: str) -> int:
        """Asks the eviction API once; the HTTP status: 201 gone, 429 refused by the budget, 404 not there."""
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": worker, "namespace": "slurm"}}
        try:
            self.lab.kube.request("POST", f"/api/v1/namespaces/slurm/pods/{worker}/eviction", body)
        except ApiError as error:
            return error.status
        return 201

    def unschedulable(self, host: str, *, value: bool) -> None:
        """What `kubectl cordon` and `uncordon` do, without starting kubectl."""
        self.patch(f"/api/v1/nodes/{host}", {"spec": {"unschedulable": value or None}})

    def patch(self, path: str, change: dict[str, Any]) -> None:
        """A change of an object as kubectl makes it, without starting kubectl."""
        kind = "application/merge-patch+json"
        self.lab.kube.request("PATCH", f"{path}?fieldManager=kubectl", change, kind=kind)

    @contextmanager
    def draining(self, host: str) -> Iterator["subprocess.Popen[str]"]:
        """`kubectl drain` of a node, running in the background; ended at the latest with the block."""
        process = subprocess.Popen(
            [
                KUBERNETES.path("kubectl"), f"--kubeconfig={self.lab.kube.kubeconfig}", "drain", host,
                "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=120s",
            ],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    # ---- Holds

    def hold(self, name: str, workers: dict[str, Any], reason: str = "test", **spec: Any) -> None:
        """Creates a Hold resource."""
        self.lab.kube.kubectl(
            "create", "-f", "-",
            input=json.dumps(
                {
                    "apiVersion": "lockstep.sh/v1alpha1", "kind": "Hold",
                    "metadata": {"name": name, "namespace": "slurm"},
                    "spec": {"workers": workers, "reason": reason, **spec},
                }
            ),
        )  # fmt: skip

    def hold_status(self, name: str) -> dict[str, Any]:
        """The status of a Hold."""
        return dict(self.lab.kube.request("GET", f"{HOLDS}/{name}").get("status", {}))

    def release(self, name: str) -> None:
        """Deletes a Hold."""
        self.kubectl("delete", "hold", name, "-n", "slurm", "--wait=true")

    # ---- Lockstep

    def why(self, worker: str) -> dict[str, Any]:
        """`lockstep why -o json`."""
        return dict(json.loads(self.lockstep.cli("why", worker, "-o", "json")))

    def events(self, since: str = "2m", **filters: str) -> list[dict[str, Any]]:
        """`lockstep events -o json`."""
        flags = [part for key, value in filters.items() for part in (f"--{key}", value)]
        text = self.lockstep.cli("events", "--since", since, "-o", "json", *flags)
        return [json.loads(line) for line in text.splitlines() if line.strip()]

    # ---- order

    def quiet(self) -> bool:
        """Every worker idle in Slurm without DRAIN, and its pod protected."""
        return all(self.in_order(worker) for worker in WORKERS)

    def in_order(self, worker: str) -> bool:
        """The worker is idle in Slurm without any other flag, and its pod is protected."""
        return self.slurm(worker).states <= {"IDLE", "DYNAMIC_NORM"} and self.protected(worker)

    def settle(self, timeout_s: float = 60) -> None:
        """Waits until both systems are quiet and in step."""
        self.lab.workers.wait(list(WORKERS), timeout_s)
        eventually("all workers idle and protected", self.quiet, timeout_s, 0.2)

    def reset(self) -> None:
        """Ends whatever a test left standing, on both sides."""
        self.lab.slurm.proxy.clear()
        self.lab.kube.request("DELETE", HOLDS)
        if self._jobs:
            self.lab.slurm.scancel(*self._jobs)
        for node in self.lab.kube.request("GET", "/api/v1/nodes")["items"]:
            change = {"metadata": {"annotations": {REASON: None}}, "spec": {"unschedulable": None}}
            self.patch(f"/api/v1/nodes/{node['metadata']['name']}", change)
        for worker in WORKERS:
            with suppress(ApiError):  # there may be no pod just now, and the next will have no annotation
                self.patch(f"/api/v1/namespaces/slurm/pods/{worker}", {"metadata": {"annotations": {POD_CORDON: None}}})
            view = self.slurm(worker)
            if not view.reason.startswith("lockstep: ") and (view.drained or view.states & {"DOWN", "FAIL"}):
                self.scontrol(worker, state="resume")
