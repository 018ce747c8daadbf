"""Beside slurm-operator, which goes on writing conditions, labels and drains of its own: nobody undoes the other."""

import time
from collections.abc import Iterator

import pytest

from lockstep.kube.keys import POD_CORDON
from tests.e2e.operator import PREFIX, Operator
from tests.e2e.site import WORKERS, Site, always, eventually
from tests.lab.lockstep import Lockstep

OURS = "lockstep: "
REST_S = 2.0


@pytest.fixture(name="operator")
def _operator(site: Site) -> Iterator[Operator]:
    """slurm-operator's loop, and a Lockstep that leaves to it what it writes, instead of the usual one."""
    site.lockstep.stop()
    policy = {"conditions": False, "protect": "off", "pod_cordon": False}
    beside = Lockstep(site.lab, embedded_nats=True, settings={"policy": policy})
    beside.up()
    try:
        with Operator(site).running() as operator:
            rest(site, operator)
            yield operator
            site.reset()
            eventually("nobody is drained", lambda: not any(site.slurm(worker).drained for worker in WORKERS), 40)
    finally:
        beside.stop()
        site.lockstep.up()


def shown(site: Site) -> list[object]:
    """Everything that either of them writes."""
    pods = [site.pod(worker) for worker in WORKERS]
    hosts = [site.host(worker) for worker in WORKERS]
    return [
        [site.slurm(worker) for worker in WORKERS],
        [pod["metadata"].get("resourceVersion") for pod in pods],
        [(site.in_service(host), site.node(host)["spec"].get("unschedulable")) for host in hosts],
    ]


def rest(site: Site, operator: Operator, timeout_s: float = 30) -> None:
    """Waits until neither of them has written anything for a while; a flap would never end."""
    end = time.monotonic() + timeout_s
    while True:
        before, writes = shown(site), operator.writes.total()
        time.sleep(REST_S)
        if shown(site) == before and operator.writes.total() == writes:
            return
        assert time.monotonic() < end, f"no rest: {before}, {operator.writes}"


def test_a_cordon_is_drained_by_one_of_them_and_lifted_by_the_same(site: Site, operator: Operator) -> None:
    """Whoever is first; the other leaves it alone. After the uncordon it is back, in few writes."""
    for _ in range(2):
        drains = operator.writes["drain"]
        host = site.cordon("gpu-1")
        eventually("DRAIN", lambda: site.slurm("gpu-1").drained)
        rest(site, operator)
        assert site.slurm("gpu-1").reason.startswith((OURS, PREFIX))
        assert operator.writes["drain"] <= drains + 1
        site.kubectl("uncordon", host)
        eventually("no DRAIN", lambda: not site.slurm("gpu-1").drained, 30)
        rest(site, operator)
        assert not site.node(host)["spec"].get("unschedulable")


def test_a_hold_outlives_what_slurm_operator_lifts(site: Site, operator: Operator) -> None:
    """A Hold alone is left alone by it; a Hold behind its drain takes over as soon as it lifts that."""
    site.hold("alone", {"names": ["gpu-2"]}, reason="fan swap")
    eventually("ours", lambda: site.slurm("gpu-2").reason.endswith("fan swap"))
    rest(site, operator)
    always("it stands", lambda: site.slurm("gpu-2").drained, 2)

    host = site.cordon("gpu-3")
    eventually("DRAIN", lambda: site.slurm("gpu-3").drained)
    rest(site, operator)
    site.hold("behind", {"names": ["gpu-3"]}, reason="cable")
    rest(site, operator)
    site.kubectl("uncordon", host)
    eventually("ours", lambda: site.slurm("gpu-3").reason.endswith("cable"), 30)
    rest(site, operator)
    assert site.slurm("gpu-3").drained

    for name, worker in (("alone", "gpu-2"), ("behind", "gpu-3")):
        site.release(name)
        eventually("no DRAIN", lambda worker=worker: not site.slurm(worker).drained, 30)
    rest(site, operator)


def test_a_cordoned_pod_that_slurm_operator_did_not_drain_comes_back(site: Site, operator: Operator) -> None:
    """It marks the pod, finds a drain of ours and leaves it; when ours is lifted it takes its mark away."""
    site.hold("first", {"names": ["gpu-2"]}, reason="fan swap")
    eventually("ours", lambda: site.slurm("gpu-2").reason.endswith("fan swap"))
    site.kubectl("-n", "slurm", "annotate", "pod", "gpu-2", f"{POD_CORDON}=true")
    rest(site, operator)
    assert site.slurm("gpu-2").reason.endswith("fan swap")
    site.release("first")
    eventually("no DRAIN", lambda: not site.slurm("gpu-2").drained, 30)
    rest(site, operator)
    assert not site.slurm("gpu-2").drained
    assert POD_CORDON not in site.pod("gpu-2")["metadata"].get("annotations", {})


def test_an_administrators_drain_is_left_alone_by_both(site: Site, operator: Operator) -> None:
    """Through a cordon and an uncordon; and Lockstep shows it on the node."""
    site.scontrol("gpu-1", state="drain", reason="bad DIMM")
    host = site.cordon("gpu-1")
    rest(site, operator)
    assert site.slurm("gpu-1").reason == "bad DIMM"
    assert site.in_service(host)[0] == "False"
    site.kubectl("uncordon", host)
    rest(site, operator)
    assert (site.slurm("gpu-1").reason, site.slurm("gpu-1").drained) == ("bad DIMM", True)


def test_lockstep_writes_nothing_that_slurm_operator_writes(site: Site, operator: Operator) -> None:
    """Conditions and label are the operator's alone, also while a job runs and a drain waits for it."""
    before = ours(site)
    job = site.job("gpu-2")
    eventually("protected", lambda: site.protected("gpu-2"))
    site.hold("waits", {"names": ["gpu-2"]})
    eventually("ours", lambda: site.slurm("gpu-2").reason.startswith(OURS))
    rest(site, operator)
    assert site.protected("gpu-2")
    assert "Drain" in site.conditions("gpu-2")
    assert ours(site) <= before
    site.cancel(job)
    eventually("unprotected", lambda: not site.protected("gpu-2"))
    rest(site, operator)


def ours(site: Site) -> set[tuple[str, str, str]]:
    """Which fields of pods Lockstep was the last to write, and when."""
    found = set()
    for worker in WORKERS:
        for field in site.pod(worker)["metadata"].get("managedFields", []):
            if field["manager"] == "lockstep":
                found.add((worker, str(field.get("subresource", "")), field["time"]))
    return found
