"""What an administrator does in Slurm stays as she left it, shows in Kubernetes, and is never fought."""

import pytest

from tests.e2e.site import Site, always, eventually


@pytest.mark.parametrize("state", ["DRAIN", "DOWN", "FAIL"])
def test_an_administrators_state_is_respected_and_shown(site: Site, state: str) -> None:
    """A foreign reason is never overwritten or lifted; Kubernetes shows it in the same words."""
    host = site.host("gpu-1")
    site.scontrol("gpu-1", state=state, reason="bad DIMM, do not touch")

    eventually("InService", lambda: site.in_service(host)[0] == "False")
    assert site.in_service(host)[2] == "bad DIMM, do not touch"
    eventually("conditions", lambda: "bad DIMM, do not touch" in site.conditions("gpu-1").values())

    site.kubectl("cordon", host)
    always("the reason stays", lambda: site.slurm("gpu-1").reason == "bad DIMM, do not touch", 3)
    site.kubectl("uncordon", host)
    always("the state stays", lambda: state in site.slurm("gpu-1").states, 2)
    assert site.slurm("gpu-1").reason == "bad DIMM, do not touch"


def test_ours_comes_at_once_when_the_administrator_lifts_hers(site: Site) -> None:
    """A cordon that stands behind a foreign drain drains as soon as the foreign drain is lifted."""
    site.scontrol("gpu-2", state="drain", reason="mine")
    host = site.cordon("gpu-2")
    always("hers", lambda: site.slurm("gpu-2").reason == "mine", 1.5)

    site.scontrol("gpu-2", state="undrain")
    eventually("ours", lambda: site.slurm("gpu-2").reason.startswith("lockstep: "), 5)
    site.kubectl("uncordon", host)
    eventually("no DRAIN", lambda: not site.slurm("gpu-2").drained)


def test_a_drain_over_ours_becomes_hers(site: Site) -> None:
    """An administrator who drains what we drained takes it over: the uncordon frees nothing."""
    host = site.cordon("gpu-3")
    eventually("ours", lambda: site.slurm("gpu-3").reason.startswith("lockstep: "))
    site.scontrol("gpu-3", state="drain", reason="now mine")
    always("hers", lambda: site.slurm("gpu-3").reason == "now mine", 2)

    site.kubectl("uncordon", host)
    always("still hers", lambda: site.slurm("gpu-3").drained and site.slurm("gpu-3").reason == "now mine", 3)


def test_an_empty_reason_is_nobodys_and_stays(site: Site) -> None:
    """A DRAIN without a reason is foreign too."""
    site.lab.slurm.scontrol("update", "nodename=gpu-1", "state=drain", "reason=x")
    host = site.cordon("gpu-1")
    site.kubectl("uncordon", host)
    always("drained", lambda: site.slurm("gpu-1").drained, 2)


def test_what_is_resumed_against_a_hold_is_drained_again_and_says_why(site: Site) -> None:
    """Lifting works only from the owning side; an event names the hold."""
    site.cordon("gpu-1")
    eventually("DRAIN", lambda: site.slurm("gpu-1").drained)
    site.scontrol("gpu-1", state="resume")

    eventually("DRAIN again", lambda: site.slurm("gpu-1").drained, 10)
    told = eventually("the event", lambda: [e for e in site.events() if e["type"] == "hold.reasserted.v1"])
    assert any(h.startswith("cordon/") for h in told[-1]["holds"])
    kube = site.lab.kube.get_json("events", "-n", "slurm")["items"]
    assert any(e["reason"] == "HoldReasserted" for e in kube)


def test_release_with_override_ends_the_hold_where_it_lives(site: Site) -> None:
    """`lockstep release --override` uncordons the node, frees the worker, and is recorded."""
    host = site.cordon("gpu-2")
    eventually("DRAIN", lambda: site.slurm("gpu-2").drained)

    refused = site.lockstep.run("release", "gpu-2")
    assert refused.returncode != 0

    site.lockstep.cli("release", "gpu-2", "--override", "--why", "the part has come")
    eventually("no DRAIN", lambda: not site.slurm("gpu-2").drained)
    assert not site.node(host)["spec"].get("unschedulable")
    assert [e for e in site.events() if e["type"] == "hold.overridden.v1"]
