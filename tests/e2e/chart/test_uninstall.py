"""The release goes: what people decided stays, and what is ours goes if they say so."""

from tests.e2e.guard import in_step
from tests.e2e.site import PROTECT, Site, eventually
from tests.lab.installed import Installed
from tests.lab.lab import Lab

CLEAN = {"cleanup": {"onUninstall": True}}


def test_holds_and_their_kind_stay_and_the_next_release_goes_on_with_them(lab: Lab) -> None:
    """Nobody is freed because Lockstep is not there for a while."""
    installed = Installed(lab)
    installed.install()
    site = Site(lab, installed)
    site.settle()
    site.hold("firmware", {"names": ["gpu-2"]}, "firmware 1.4")
    in_step(site)
    installed.uninstall()
    assert site.slurm("gpu-2").drained
    assert site.kubectl("get", "hold", "firmware", "-n", "slurm", "-o", "name").strip() == "hold.lockstep.sh/firmware"
    assert site.evict("gpu-1") == 429

    installed.install()
    assert in_step(site)["gpu-2"].ours
    site.release("firmware")
    in_step(site)


def test_what_is_ours_is_taken_away_if_somebody_says_so(lab: Lab) -> None:
    """Labels, budgets, conditions and mirrored cordons; a person's cordon and an administrator's drain are theirs."""
    installed = Installed(lab)
    installed.install({**CLEAN, "policy": {"mirror": "cordon"}})
    site = Site(lab, installed)
    site.settle()
    theirs = site.cordon("gpu-1")
    site.hold("firmware", {"names": ["gpu-2"]}, "firmware 1.4")
    mirrored = site.host("gpu-2")
    site.scontrol("gpu-3", state="drain", reason="fan noise")
    eventually("mirrored", lambda: site.node(mirrored)["spec"].get("unschedulable"))

    installed.uninstall()

    for worker in ("gpu-1", "gpu-2", "gpu-3"):
        assert PROTECT not in site.pod(worker)["metadata"].get("labels", {})
        assert site.conditions(worker) == {}
        assert site.in_service(site.host(worker)) == ("", "", "")
    assert site.node(theirs)["spec"].get("unschedulable")
    assert not site.node(mirrored)["spec"].get("unschedulable")
    assert lab.kube.get_json("pdb", "-n", "slurm")["items"] == []
    assert [site.slurm(worker).drained for worker in ("gpu-1", "gpu-2", "gpu-3")] == [True, True, True]
    assert site.slurm("gpu-3").reason == "fan noise"
    assert site.kubectl("get", "hold", "firmware", "-n", "slurm", "-o", "name")
    site.reset()
