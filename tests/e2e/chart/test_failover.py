"""Two pods of each service: one acts, the other takes over, whatever becomes of the first."""

import json
import re
import signal
import time
from collections.abc import Iterator

import pytest

from lockstep.kube.keys import SLURM_READ
from tests.e2e.guard import Guard, in_step
from tests.e2e.site import Site, always, eventually
from tests.lab.helm import NAMESPACE
from tests.lab.installed import Installed
from tests.lab.lockstep import SERVICES

TAKEOVER_S = 15
"""At the settings that the chart has when nobody says otherwise."""

DEPLOYMENT = "lockstep-slurm-poller"
KEY_FILE = "/slurm/main/key"


@pytest.fixture(name="installed")
def _installed(site: Site) -> Iterator[Installed]:
    lockstep = site.lockstep
    assert isinstance(lockstep, Installed), "run with --installed"
    lockstep.up()
    yield lockstep
    lockstep.up(120)


@pytest.fixture(name="guard")
def _guard(site: Site) -> Iterator[Guard]:
    with Guard(site).watching() as guard:
        yield guard


def test_leaders_that_are_killed_are_followed_by_others(site: Site, guard: Guard, installed: Installed) -> None:
    """SIGKILL in the middle of a drain; kubelets start the same containers again, and nobody waits for that."""
    job = site.job("gpu-1")
    for service in SERVICES:
        installed.signal(installed.leader(service), signal.SIGKILL)
    began = time.monotonic()
    host = site.cordon("gpu-1")
    eventually("DRAIN", lambda: site.slurm("gpu-1").drained, TAKEOVER_S + 5)
    took = time.monotonic() - began
    print(f"drained {took:.1f} s after the leaders were killed")
    assert took <= TAKEOVER_S

    guard.stays("gpu-1")
    site.cancel(job)
    eventually("let go", lambda: not in_step(site)["gpu-1"].protected)
    guard.may_return("gpu-1")
    site.unschedulable(host, value=False)
    in_step(site)


def test_frozen_leaders_are_replaced_and_write_nothing_when_they_wake(
    site: Site, guard: Guard, installed: Installed
) -> None:
    """They wake with a cordon before their eyes that is no longer so."""
    leaders = [installed.leader(service) for service in SERVICES]
    for pod in leaders:
        installed.signal(pod, signal.SIGSTOP)
    try:
        began = time.monotonic()
        host = site.cordon("gpu-1")
        eventually("the others drain", lambda: site.slurm("gpu-1").drained, TAKEOVER_S + 5)
        assert time.monotonic() - began <= TAKEOVER_S
        site.unschedulable(host, value=False)
        in_step(site)
        site.lab.slurm.proxy.forget()
    finally:
        for pod in leaders:
            installed.signal(pod, signal.SIGCONT)
    always("in service", lambda: not site.slurm("gpu-1").drained, 3)
    assert not [what for what in site.lab.slurm.proxy.requests() if what.startswith("POST ")]
    assert {installed.leader(service) for service in SERVICES}.isdisjoint(leaders)
    in_step(site)


def test_a_node_under_our_own_pods_is_drained(site: Site, guard: Guard, installed: Installed) -> None:
    """Budgets let one pod of a service go at a time; the drain goes through, and Lockstep works on meanwhile.

    The node of the leader that writes; its worker is left alone, as a node pool's drain by selector does.
    """
    writer = installed.leader("reconciler")
    host = next(p["spec"]["nodeName"] for p in installed.pods("reconciler") if p["metadata"]["name"] == writer)
    worker = next(name for name in ("gpu-1", "gpu-2", "gpu-3") if site.host(name) == host)
    selector = "app.kubernetes.io/part-of=lockstep,app.kubernetes.io/name=lockstep"
    site.kubectl("drain", host, f"--pod-selector={selector}", "--timeout=90s")
    assert in_step(site)[worker].ours
    assert installed.leader("reconciler") != writer
    site.kubectl("uncordon", host)
    in_step(site)


def test_a_missing_slurm_restarts_nothing(site: Site, installed: Installed) -> None:
    """Pods stay as they are; what cannot be read is said, and work goes on afterwards."""
    before = restarts(site)
    site.lab.slurm.proxy.set("refuse")
    try:
        host = site.cordon("gpu-2")
        eventually("Slurm is said to be lost", lambda: "slurm.node" in lost(site), 30, 0.5)
        always("all live", lambda: restarts(site) == before, 20)
    finally:
        site.lab.slurm.proxy.clear()
    assert in_step(site)["gpu-2"].ours
    site.unschedulable(host, value=False)
    in_step(site)


def test_without_its_key_a_service_lives_and_says_what_is_missing(site: Site, installed: Installed) -> None:
    """No crash loop: the sources are lost for a reason that names the file, which the Deployment's condition shows too.

    The key's return is enough.
    """
    kube, before = site.lab.kube, restarts(site)
    path = f"/api/v1/namespaces/{NAMESPACE}/secrets/slurm-auth"
    secret = kube.request("GET", path)
    eventually("Slurm is shown as read", lambda: slurm_read(site)["status"] == "True", 20, 0.5)
    for noise in ("resourceVersion", "uid", "creationTimestamp", "managedFields"):
        secret["metadata"].pop(noise, None)
    kube.request("DELETE", path)
    try:
        installed.kill("slurm-poller")
        eventually("the reason names the file", lambda: KEY_FILE in json.dumps(lost(site)), 60, 0.5)
        eventually("the condition says so", lambda: slurm_read(site)["status"] == "False", 20, 0.5)
        path_of_message = f'jsonpath={{.status.conditions[?(@.type=="{SLURM_READ}")].message}}'
        assert KEY_FILE in site.kubectl("-n", NAMESPACE, "get", "deploy", DEPLOYMENT, "-o", path_of_message)
        described = site.kubectl("-n", NAMESPACE, "describe", "deployment", DEPLOYMENT)
        assert re.search(rf"{SLURM_READ}\s+False\s+SlurmLost", described)
        eventually("doctor says so", lambda: KEY_FILE in site.lockstep.run("doctor").stdout, 20, 1)
        assert {name: count for name, count in restarts(site).items() if name in before and count > before[name]} == {}
    finally:
        kube.apply(secret)
    eventually("read again", lambda: not lost(site), 150, 1)
    site.kubectl("-n", NAMESPACE, "wait", f"--for=condition={SLURM_READ}", f"deploy/{DEPLOYMENT}", "--timeout=20s")
    assert {"Available", "Progressing"} <= {c["type"] for c in conditions(site)}, "the controller's are there, too"
    installed.up(120)


def conditions(site: Site) -> list[dict[str, str]]:
    """Those of the Slurm poller's Deployment."""
    path = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{DEPLOYMENT}"
    return list(site.lab.kube.request("GET", path)["status"]["conditions"])


def slurm_read(site: Site) -> dict[str, str]:
    """The condition that says whether Slurm can be read."""
    return next((c for c in conditions(site) if c["type"] == SLURM_READ), {"status": "Unknown"})


def restarts(site: Site) -> dict[str, int]:
    """How often each container of ours was started again."""
    items = site.lab.kube.request("GET", f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
    return {
        p["metadata"]["name"]: sum(c["restartCount"] for c in p["status"].get("containerStatuses", ())) for p in items
    }


def lost(site: Site) -> dict[str, str]:
    """The sources that cannot be read just now, and why."""
    found: dict[str, str] = {}
    for event in site.events(since="5m", kind="source"):
        if event["type"] == "source.lost.v1":
            found[event["source"]] = event["error"]
        else:
            found.pop(event["source"], None)
    return found
