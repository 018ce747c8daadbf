"""Both systems at one moment, read without any help of Lockstep, and a watchman who looks all the time."""

import http.client
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec

from tests.e2e.site import HOLDS, PROTECT, WORKERS, Site
from tests.lab.rest import ApiError
from tests.lab.slurm_commands import SlurmError

BUSY = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})
DATA = {"26.05": "v0.0.45", "24.11": "v0.0.42"}
"""slurmrestd's data version for each Slurm of the lab."""
OURS = "lockstep: "
UNREADABLE = (OSError, http.client.HTTPException, ApiError, SlurmError, msgspec.DecodeError)
EVERY_S = 0.1
BOTH_EVERY_S = 0.2
"""Between two looks of a guard at both systems: what it must find there lasts for longer than a second."""


@dataclass(frozen=True)
class Shown:
    """One worker as Slurm and Kubernetes show it."""

    worker: str
    states: frozenset[str]
    reason: str
    uid: str
    """Of its pod; empty while there is none that lives."""
    revision: str
    protected: bool
    conditions: dict[str, str]
    """The pod's `SlurmNodeState*` and their messages."""
    service: tuple[str, str]
    """Status and message of the Kubernetes node's `lockstep.sh/InService`."""
    holds: frozenset[str]
    """What on Kubernetes' side keeps it out: the cordon, the pod's cordon, Hold resources that name it."""

    @property
    def drained(self) -> bool:
        """DRAIN stands in Slurm."""
        return "DRAIN" in self.states

    @property
    def ours(self) -> bool:
        """The DRAIN is Lockstep's."""
        return self.drained and self.reason.startswith(OURS)

    @property
    def worded(self) -> str:
        """The words that Kubernetes must show. Of a DOWN that stands with Lockstep's words, nobody's are known."""
        return "no reason given" if self.ours and "DOWN" in self.states and not self.holds else self.reason

    @property
    def busy(self) -> bool:
        """Jobs run or complete."""
        return bool(self.states & BUSY)

    def faults(self) -> list[str]:
        """Where the two systems are not in step; after a change that may be so for a moment."""
        found = []
        out = self.states & {"DRAIN", "DOWN", "FAIL"}
        if self.holds and not out:
            found.append(f"{sorted(self.holds)} stand and Slurm offers it")
        if self.ours and not self.holds and "DOWN" not in self.states:
            found.append(f"no hold stands and Slurm shows {self.reason!r}")
        if self.uid and not self.protected and (not self.drained or self.busy or not self.holds):
            found.append("its pod is not protected")
        if self.uid and self.protected and self.ours and self.holds and not self.busy and "IDLE" in self.states:
            found.append("it is drained and its pod is still protected")
        if self.uid and self.drained != ("Drain" in self.conditions):
            found.append(f"Slurm shows {sorted(self.states)}, the pod {sorted(self.conditions)}")
        if self.uid and self.drained and self.conditions.get("Drain") != self.reason:
            found.append(f"Slurm says {self.reason!r}, the pod {self.conditions.get('Drain')!r}")
        if self.service[0] != ("False" if out or self.holds else "True"):
            found.append(f"{sorted(out | self.holds)}, and InService is {self.service}")
        if (self.ours or (out and not self.holds)) and self.service[1] != self.worded:
            found.append(f"the Kubernetes node should say {self.worded!r}, and says {self.service[1]!r}")
        return [f"{self.worker}: {fault}" for fault in found]


class Sight:
    """Reads both systems directly: the API server, and slurmrestd without the proxy."""

    def __init__(self, site: Site) -> None:
        self._lab = site.lab
        self._token = ""

    def look(self) -> dict[str, Shown]:
        """All workers, Kubernetes first. Raises one of `UNREADABLE`."""
        return self.join(self.kube(), self.slurm())

    def slurm(self) -> dict[str, dict[str, Any]]:
        """All Slurm nodes by name."""
        version = DATA[self._lab.slurm.version]
        self._token = self._token or self._lab.slurm.token()
        request = urllib.request.Request(
            f"{self._lab.slurm.direct_url}/slurm/{version}/nodes/", headers={"X-SLURM-USER-TOKEN": self._token}
        )
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                nodes: list[dict[str, Any]] = msgspec.json.decode(answer.read())["nodes"]
        except UNREADABLE:
            self._token = ""
            raise
        return {node["name"]: node for node in nodes}

    def kube(self) -> tuple[list[Any], list[Any], list[Any]]:
        """Pods, nodes and Holds."""
        ask = self._lab.kube.request
        holds = ask("GET", HOLDS)
        nodes = ask("GET", "/api/v1/nodes")
        return ask("GET", "/api/v1/namespaces/slurm/pods")["items"], nodes["items"], holds["items"]

    @staticmethod
    def join(kube: tuple[list[Any], list[Any], list[Any]], slurm: dict[str, dict[str, Any]]) -> dict[str, Shown]:
        """The workers, each as both show it."""
        hosts = {node["metadata"]["name"]: node for node in kube[1]}
        pods = {p["metadata"]["name"]: p for p in kube[0] if "deletionTimestamp" not in p["metadata"]}
        return {w: _shown(w, pods.get(w, {}), hosts, kube[2], slurm[w]) for w in WORKERS if w in slurm}


def _shown(worker: str, pod: dict[str, Any], hosts: dict[str, Any], holds: list[Any], slurm: dict[str, Any]) -> Shown:
    meta = pod.get("metadata", {})
    host = hosts.get(pod.get("spec", {}).get("nodeName", ""), {})
    service = _conditions(host, "lockstep.sh/").get("InService", ("", ""))
    stand = {h["metadata"]["name"] for h in holds if worker in h["spec"]["workers"].get("names", ())}
    if host.get("spec", {}).get("unschedulable"):
        stand.add("cordon")
    if meta.get("annotations", {}).get("nodeset.slinky.slurm.net/pod-cordon") == "true":
        stand.add("pod-cordon")
    return Shown(
        worker=worker,
        states=frozenset(slurm["state"]),
        reason=slurm["reason"],
        uid=meta.get("uid", "") if pod.get("status", {}).get("phase") == "Running" else "",
        revision=meta.get("resourceVersion", ""),
        protected=meta.get("labels", {}).get(PROTECT) == "true",
        conditions={k: m for k, (s, m) in _conditions(pod, "SlurmNodeState").items() if s == "True"},
        service=service,
        holds=frozenset(stand),
    )


def _conditions(thing: dict[str, Any], prefix: str) -> dict[str, tuple[str, str]]:
    found = thing.get("status", {}).get("conditions", ())
    return {
        c["type"].removeprefix(prefix): (c["status"], c.get("message", ""))
        for c in found
        if c["type"].startswith(prefix)
    }


def in_step(site: Site, what: str = "both systems in step", timeout_s: float = 20) -> dict[str, Shown]:
    """Waits until no worker shows a fault; fails with those that are left."""
    sight, deadline = Sight(site), time.monotonic() + timeout_s
    while True:
        try:
            shown = sight.look()
            faults = [fault for each in shown.values() for fault in each.faults()]
            faults += [f"{worker}: Slurm does not know it" for worker in WORKERS if worker not in shown]
        except UNREADABLE as error:
            faults = [f"cannot be read: {error}"]
        if not faults:
            return shown
        if time.monotonic() > deadline:
            print(site.lockstep.run("get", "workers", "-o", "yaml").stdout)
            raise AssertionError(f"{what}, not after {timeout_s:g} s: {'; '.join(faults)}")
        time.sleep(EVERY_S)


class Guard:
    """Looks at both systems all the time, and remembers what must never be seen.

    - A pod is without protection only while Slurm shows DRAIN and no work, but for `tolerated_s`: somebody may resume
      a worker in Slurm, of which nobody is told before the next poll.
    - No pod is evicted.
    - A worker that `stays` is drained in Slurm in every single reading.
    """

    def __init__(self, site: Site, *, tolerated_s: float = 1.0) -> None:
        self._site = site
        self.tolerated_s = tolerated_s
        self.readings = {"slurm": 0, "both": 0}
        self.findings: list[str] = []
        self._stays: frozenset[str] = frozenset()
        self._had_to_stay = False
        self._bare_since: dict[str, float] = {}
        self._uids: dict[str, str] = {}
        self._ended = threading.Event()
        self._born = time.monotonic()

    @contextmanager
    def watching(self) -> Iterator["Guard"]:
        """Looks until the end of the block; then fails with what was found."""
        self._uids = {worker: shown.uid for worker, shown in Sight(self._site).look().items()}
        looks = ((self._look_at_slurm, EVERY_S), (self._look_at_both, BOTH_EVERY_S))
        threads = [threading.Thread(target=self._repeat, args=(*look, Sight(self._site))) for look in looks]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._ended.set()
            for thread in threads:
                thread.join()
        assert not self.findings, "; ".join(self.findings)
        assert self.readings["both"] > 0
        assert self.readings["slurm"] > 0 or not self._had_to_stay

    def stays(self, *workers: str) -> None:
        """From now on these are drained in Slurm, until `may_return`."""
        self._stays |= frozenset(workers)
        self._had_to_stay = True

    def may_return(self, *workers: str) -> None:
        """These need no longer be drained."""
        self._stays -= frozenset(workers)

    def _repeat(self, look: Callable[[Sight], None], every_s: float, sight: Sight) -> None:
        while not self._ended.wait(every_s):
            try:
                look(sight)
            except UNREADABLE:
                continue

    def _look_at_slurm(self, sight: Sight) -> None:
        before = self._stays
        if not before:
            return
        nodes = sight.slurm()
        self.readings["slurm"] += 1
        for worker in before & self._stays:
            if "DRAIN" not in nodes.get(worker, {}).get("state", ()):
                self._find(f"{worker} must stay drained, and Slurm shows {nodes.get(worker, {}).get('state')}")

    def _look_at_both(self, sight: Sight) -> None:
        shown = sight.look()
        self.readings["both"] += 1
        for worker, each in shown.items():
            if each.uid and self._uids.setdefault(worker, each.uid) != each.uid:
                self._find(f"{worker}: its pod was evicted")
            if not each.uid or each.protected or (each.drained and not each.busy):
                self._bare_since.pop(worker, None)
                continue
            since = self._bare_since.setdefault(worker, time.monotonic())
            if time.monotonic() - since > self.tolerated_s:
                self._find(f"{worker}: without protection, and Slurm shows {sorted(each.states)}")

    def _find(self, text: str) -> None:
        found = f"{time.monotonic() - self._born:.1f} s: {text}"
        if not any(f.partition(": ")[2] == text for f in self.findings):
            self.findings.append(found)
