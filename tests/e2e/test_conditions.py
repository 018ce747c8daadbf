"""Kubernetes shows what Slurm says, in slurm-operator's names and in Slurm's words."""

from tests.e2e.site import Site, eventually


def test_an_idle_worker_shows_idle_and_in_service(site: Site) -> None:
    """The base state is one condition; a worker in service says so on its node."""
    eventually("Idle", lambda: set(site.conditions("gpu-1")) == {"Idle"})
    eventually("InService", lambda: site.in_service(site.host("gpu-1"))[:2] == ("True", "InService"))


def test_a_drained_worker_shows_drain_with_the_reason(site: Site) -> None:
    """The message is the Slurm reason, the same on pod, node and in sinfo -R."""
    site.scontrol("gpu-2", state="drain", reason="fan noise")
    eventually("Drain", lambda: site.conditions("gpu-2") == {"Drain": "fan noise", "Idle": "fan noise"})
    assert "fan noise" in site.lab.slurm.sinfo("-R")
    eventually("node", lambda: site.in_service(site.host("gpu-2"))[2] == "fan noise")

    site.scontrol("gpu-2", state="undrain")
    eventually("Idle", lambda: site.conditions("gpu-2") == {"Idle": ""})


def test_a_busy_worker_shows_its_base_state(site: Site) -> None:
    """A job on some of the CPUs is Mixed; when it is cancelled the worker is Idle again."""
    job = site.job("gpu-3")
    eventually("busy", lambda: set(site.conditions("gpu-3")) & {"Mixed", "Allocated"})
    site.cancel(job)
    eventually("Idle", lambda: set(site.conditions("gpu-3")) == {"Idle"})


def test_down_fail_and_maintenance_are_shown(site: Site) -> None:
    """Each state of Slurm's has its own condition."""
    site.scontrol("gpu-1", state="down", reason="smoke")
    eventually("Down", lambda: "Down" in site.conditions("gpu-1"))
    site.scontrol("gpu-1", state="resume")
    eventually("Idle", lambda: set(site.conditions("gpu-1")) == {"Idle"}, 30)
    site.scontrol("gpu-1", state="fail", reason="soon")
    eventually("Fail", lambda: site.conditions("gpu-1").get("Fail") == "soon")
