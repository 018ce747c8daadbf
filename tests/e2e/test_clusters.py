"""One installation serves two Slurm clusters: 26.05 with workers in pods, 24.11 with slurmds on the host."""

from collections.abc import Iterator

import pytest

from tests.e2e.site import Site, always, eventually
from tests.lab.lockstep import Lockstep
from tests.lab.slurm import Slurm

NODENAME = "slinky.slurm.net/slurm-nodename"
NAMESPACE = "slurm-old"


@pytest.fixture(name="old")
def _old(site: Site) -> Iterator[Slurm]:
    """A second cluster with two workers without pods, and the Lockstep that serves both instead of the usual one."""
    lab = site.lab
    old = Slurm(lab.processes, version="24.11", cluster="old", address=lab.host)
    old.up()
    old.add_slurmds(["old-1", "old-2"])
    lab.kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    site.lockstep.stop()
    second = {"name": "old", "namespace": NAMESPACE, "url": old.url, "key_file": str(old.key_file)}
    both = Lockstep(
        lab, embedded_nats=True, clusters=[site.lockstep.cluster("main"), {**second, "workers": {"hybrid": True}}]
    )
    both.up()
    try:
        yield old
    finally:
        lab.kube.kubectl("delete", "holds", "--all", "-n", NAMESPACE, check=False)
        for node in lab.kube.get_json("nodes")["items"]:
            lab.kube.kubectl("label", "node", node["metadata"]["name"], f"{NODENAME}-", check=False)
        both.stop()
        old.down()
        site.lockstep.up()


def reason(slurm: Slurm, name: str) -> str:
    """The reason of a drained node; empty when it is not drained."""
    node = slurm.node(name)
    return str(node["reason"]) if "DRAIN" in node["state"] else ""


def test_each_cluster_has_its_own_holds_and_drains(site: Site, old: Slurm) -> None:
    """A Hold is for the cluster of its namespace; a foreign drain is respected on 24.11 too."""
    hold = {"workers": {"names": ["old-1"]}, "reason": "fan swap"}
    meta = {"name": "fan", "namespace": NAMESPACE}
    site.lab.kube.apply({"apiVersion": "lockstep.sh/v1alpha1", "kind": "Hold", "metadata": meta, "spec": hold})
    eventually("DRAIN", lambda: reason(old, "old-1").endswith(": fan swap"))
    assert not any(site.slurm(worker).drained for worker in ("gpu-1", "gpu-2", "gpu-3"))

    old.scontrol("update", "nodename=old-2", "state=drain", "reason=mine")
    site.kubectl("delete", "hold", "fan", "-n", NAMESPACE)
    eventually("no DRAIN", lambda: not reason(old, "old-1"))
    always("hers stays", lambda: reason(old, "old-2") == "mine", 2)


def test_a_worker_without_a_pod_follows_the_node_that_bears_its_name(site: Site, old: Slurm) -> None:
    """The label `slurm-nodename` says which Kubernetes node a slurmd on the host runs on; its cordon drains both."""
    host = site.host("gpu-1")
    site.kubectl("label", "node", host, f"{NODENAME}=old-2")
    site.kubectl("cordon", host)
    eventually("both drained", lambda: reason(old, "old-2") and site.slurm("gpu-1").drained)
    assert not reason(old, "old-1")

    site.kubectl("uncordon", host)
    eventually("both back", lambda: not reason(old, "old-2") and not site.slurm("gpu-1").drained, 30)
