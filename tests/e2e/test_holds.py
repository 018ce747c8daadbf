"""The Hold resource: create it and the worker is out of service, delete it and the worker is back."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.e2e.site import WORKERS, Site, eventually
from tests.lab.kube import KubeError


def test_a_hold_drains_and_its_deletion_undrains(site: Site) -> None:
    """Its status says Drained, who owns it, and how many workers it holds."""
    site.hold("dimm", {"names": ["gpu-1"]}, "DIMM B2 swap")

    eventually("Drained", lambda: site.hold_status("dimm").get("phase") == "Drained")
    status = site.hold_status("dimm")
    assert status["workers"] == {"selected": 1, "draining": 0, "drained": 1}
    assert status["owner"]
    assert site.slurm("gpu-1").reason == f"lockstep: {status['owner']}: DIMM B2 swap"

    site.release("dimm")
    eventually("no DRAIN", lambda: not site.slurm("gpu-1").drained)


def test_two_holders_the_first_release_frees_nothing(site: Site) -> None:
    """The worker is out of service while at least one hold stands."""
    site.hold("first", {"names": ["gpu-1"]}, "first")
    site.hold("second", {"names": ["gpu-1"]}, "second")
    eventually("both", lambda: site.slurm("gpu-1").reason.endswith("(+1 more)"))

    site.release("first")
    eventually("one left", lambda: site.slurm("gpu-1").reason.endswith("second"))
    assert site.slurm("gpu-1").drained

    site.release("second")
    eventually("no DRAIN", lambda: not site.slurm("gpu-1").drained)


def test_a_hold_expires(site: Site) -> None:
    """At `expiresAt` the hold ends by itself, and says so."""
    soon = datetime.now(UTC) + timedelta(seconds=8)  # noqa: TID251  a test speaks to a real clock
    site.hold("short", {"names": ["gpu-2"]}, expiresAt=soon.strftime("%Y-%m-%dT%H:%M:%SZ"))
    eventually("DRAIN", lambda: site.slurm("gpu-2").drained)

    eventually("no DRAIN", lambda: not site.slurm("gpu-2").drained, 20)
    eventually("Expired", lambda: site.hold_status("short").get("phase") == "Expired")


@pytest.mark.parametrize(
    ("selector", "held"),
    [
        pytest.param({"hostlist": "gpu-[1-2]"}, {"gpu-1", "gpu-2"}, id="host list"),
        pytest.param({"names": ["gpu-3", "gpu-1"]}, {"gpu-1", "gpu-3"}, id="names"),
        pytest.param({"nodes": ["HOST"]}, {"gpu-2"}, id="Kubernetes node"),
        pytest.param(
            {"selector": {"matchLabels": {"statefulset.kubernetes.io/pod-name": "gpu-3"}}}, {"gpu-3"}, id="label"
        ),
        pytest.param({"partitions": ["PARTITION"]}, set(WORKERS), id="partition"),
    ],
)
def test_one_hold_for_many_workers(site: Site, selector: dict[str, object], held: set[str]) -> None:
    """Every way to say which workers are meant; the others stay in service."""
    if "nodes" in selector:
        selector = {"nodes": [site.host("gpu-2")]}
    if "partitions" in selector:
        selector = {"partitions": [site.lab.slurm.sinfo("--noheader", "--format=%R").split()[0]]}
    site.hold("many", selector)

    eventually("all held", lambda: {w for w in WORKERS if site.slurm(w).drained} == held)
    eventually("Drained", lambda: site.hold_status("many").get("phase") == "Drained")
    assert site.hold_status("many")["workers"]["selected"] == len(held)

    site.release("many")
    eventually("all back", lambda: not any(site.slurm(w).drained for w in WORKERS))


def test_kubectl_get_holds_reads_well(site: Site) -> None:
    """A person sees owner, class, phase, how many, and why."""
    site.hold("readable", {"names": ["gpu-1"]}, "DIMM B2 swap", **{"class": "maintenance"})
    eventually("Drained", lambda: site.hold_status("readable").get("phase") == "Drained")

    header, row = site.kubectl("get", "holds", "-n", "slurm").splitlines()[:2]
    assert [w for w in ("NAME", "OWNER", "CLASS", "PHASE", "REASON", "AGE") if w not in header] == []
    assert [w for w in ("readable", "maintenance", "Drained", "DIMM B2 swap") if w not in row] == []


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        pytest.param({"workers": {}, "reason": "x"}, "workers", id="no selector"),
        pytest.param({"workers": {"names": ["a"], "hostlist": "b"}, "reason": "x"}, "workers", id="two selectors"),
        pytest.param({"workers": {"names": []}, "reason": "x"}, "names", id="no names"),
        pytest.param({"workers": {"selector": {"matchLabels": {}}}, "reason": "x"}, "selector", id="selects all"),
        pytest.param({"workers": {"names": ["gpu-1"]}, "reason": "x" * 10_000}, "reason", id="reason of 10 kB"),
        pytest.param({"workers": {"names": ["gpu-1"]}, "reason": "a\x07b\nc"}, "reason", id="control characters"),
        pytest.param({"workers": {"names": ["gpu-1"]}, "reason": ""}, "reason", id="no reason"),
        pytest.param({"workers": {"names": ["gpu-1"]}, "reason": "x", "class": "slurm"}, "class", id="class"),
        pytest.param(
            {"workers": {"names": ["gpu-1"]}, "reason": "x", "drain": {"deadline": "soon"}}, "deadline", id="deadline"
        ),
    ],
)
def test_a_bad_hold_is_refused_and_names_the_field(site: Site, spec: dict[str, object], named: str) -> None:
    """Nothing is half done: the API server refuses it, and no worker is touched."""
    workers = spec.pop("workers")
    reason = spec.pop("reason")
    with pytest.raises(KubeError, match=named):
        site.hold("bad", workers, reason, **spec)  # type: ignore[arg-type]
    assert not any(site.slurm(w).drained for w in WORKERS)


@pytest.mark.parametrize(
    ("workers", "more", "says"),
    [
        pytest.param({"names": ["nope-1"]}, {}, "nope-1", id="a name that is no worker"),
        pytest.param({"names": ["gpu-1"]}, {"cluster": "elsewhere"}, "elsewhere", id="a cluster that does not exist"),
        pytest.param({"hostlist": "gpu-[1-"}, {}, "hostlist", id="a broken host list"),
        pytest.param(
            {"selector": {"matchLabels": {"app.kubernetes.io/name": "slurmd"}}}, {}, "every worker", id="takes all"
        ),
    ],
)
def test_what_the_schema_cannot_see_is_said_in_the_status(
    site: Site, workers: dict[str, object], more: dict[str, object], says: str
) -> None:
    """The Hold says why it is not accepted, and holds nobody."""
    site.hold("odd", workers, **more)

    status = eventually("a status", lambda: site.hold_status("odd"))
    accepted = next(c for c in status["conditions"] if c["type"] == "Accepted")
    assert accepted["status"] == "False"
    assert says in accepted["message"]
    assert not any(site.slurm(w).drained for w in WORKERS)


def test_nobody_can_claim_to_be_another_owner(site: Site) -> None:
    """The API server writes who created a Hold; an owner that the author wrote is replaced, and stays as it is."""
    site.lab.kube.apply(
        {
            "apiVersion": "lockstep.sh/v1alpha1",
            "kind": "Hold",
            "metadata": {"name": "forged", "namespace": "slurm", "annotations": {"lockstep.sh/owner": "somebody else"}},
            "spec": {"workers": {"names": ["gpu-1"]}, "reason": "x"},
        }
    )
    found = site.lab.kube.get_json("hold", "forged", "-n", "slurm")
    assert found["metadata"]["annotations"]["lockstep.sh/owner"] != "somebody else"
    with pytest.raises(KubeError):
        site.kubectl("annotate", "--overwrite", "hold", "forged", "-n", "slurm", "lockstep.sh/owner=somebody else")
