"""slurm-operator's loop, as far as Lockstep could get into its way: conditions, pod-protect, cordon and drain."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from lockstep.kube.conditions import SILENT_FLAGS, camel
from lockstep.kube.keys import POD_CORDON, POD_PROTECT, SLURM_STATE_PREFIX
from tests.e2e.site import WORKERS, Site
from tests.lab.rest import ApiError
from tests.lab.slurm_commands import SlurmError

PREFIX = "slurm-operator: "
BUSY = {"ALLOCATED", "MIXED", "COMPLETING"}
EVERY_S = 0.3
Pod = dict[str, Any]


class Operator:
    """One pass after the other over all pods; `writes` counts what it had to write, by kind."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._end = threading.Event()
        self.writes: Counter[str] = Counter()

    @contextmanager
    def running(self) -> Iterator["Operator"]:
        """It runs inside the context."""
        thread = threading.Thread(target=self._run, name="operator")
        thread.start()
        try:
            yield self
        finally:
            self._end.set()
            thread.join()

    def _run(self) -> None:
        while not self._end.wait(EVERY_S):
            for worker in WORKERS:
                with suppress(ApiError, SlurmError, OSError):
                    self._pass(worker)

    def _pass(self, worker: str) -> None:
        pod, view = self._site.pod(worker), self._site.slurm(worker)
        if not pod["spec"].get("nodeName"):
            return
        self._conditions(worker, pod, view.states, view.reason)
        self._protect(worker, pod, view.states)
        self._cordon(worker, pod, view.states, view.reason)

    def _conditions(self, worker: str, pod: Pod, states: frozenset[str], reason: str) -> None:
        """Exactly those of the node's states, with its reason."""
        there = {c["type"]: c.get("message", "") for c in pod["status"].get("conditions", [])}
        shown = {name: text for name, text in there.items() if name.startswith(SLURM_STATE_PREFIX)}
        wanted = {SLURM_STATE_PREFIX + camel(word): reason for word in states - SILENT_FLAGS}
        if shown == wanted:
            return
        patch: list[dict[str, str]] = [{"type": n, "status": "True", "message": text} for n, text in wanted.items()]
        patch += [{"$patch": "delete", "type": name} for name in shown if name not in wanted]
        self._patch(worker, "/status", {"status": {"conditions": patch}}, "conditions")

    def _protect(self, worker: str, pod: Pod, states: frozenset[str]) -> None:
        """While jobs run."""
        label = "true" if states & BUSY else None
        if pod["metadata"].get("labels", {}).get(POD_PROTECT) != label:
            self._patch(worker, "", {"metadata": {"labels": {POD_PROTECT: label}}}, "protect")

    def _cordon(self, worker: str, pod: Pod, states: frozenset[str], reason: str) -> None:
        """In this order: leave others' reasons alone; cordoned node; cordoned pod; else undrain."""
        if reason and not reason.startswith(PREFIX):
            return
        host, annotations = pod["spec"]["nodeName"], pod["metadata"].get("annotations", {})
        name = f"slurm/{worker}"
        if self._site.node(host)["spec"].get("unschedulable"):
            if annotations.get(POD_CORDON) != "true":
                self._patch(worker, "", {"metadata": {"annotations": {POD_CORDON: "true"}}}, "pod-cordon")
            self._drain(worker, states, reason, f"Node ({host}) was cordoned, Pod ({name}) must be cordoned")
        elif annotations.get(POD_CORDON) == "true":
            self._patch(worker, "", {"metadata": {"annotations": {POD_CORDON: None}}}, "pod-cordon")
            self._undrain(worker, states, f"Pod ({name}) was uncordoned")
        else:
            self._undrain(worker, states, f"Pod ({name}) was uncordoned")

    def _drain(self, worker: str, states: frozenset[str], reason: str, why: str) -> None:
        text = reason or PREFIX + why
        if "DRAIN" not in states or reason != text:
            self.writes["drain"] += 1
            self._site.scontrol(worker, state="drain", reason=text)

    def _undrain(self, worker: str, states: frozenset[str], why: str) -> None:
        if "DRAIN" in states and "UNDRAIN" not in states:
            self.writes["undrain"] += 1
            self._site.scontrol(worker, state="undrain", reason=PREFIX + why)

    def _patch(self, worker: str, subresource: str, change: dict[str, Any], kind: str) -> None:
        self.writes[kind] += 1
        path = f"/api/v1/namespaces/slurm/pods/{worker}{subresource}?fieldManager=slurm-operator"
        self._site.lab.kube.request("PATCH", path, change, kind="application/strategic-merge-patch+json")
