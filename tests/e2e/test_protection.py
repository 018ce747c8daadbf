"""No worker's pod is evicted before Slurm has acknowledged the drain and its jobs have ended."""

import time

from tests.e2e.site import Site, always, eventually


def test_an_idle_worker_in_service_cannot_be_evicted(site: Site) -> None:
    """Protected from its first registration, not only while it is busy."""
    assert site.evict("gpu-1") == 429


def test_kubectl_drain_waits_for_the_job_and_then_goes_through(site: Site) -> None:
    """It blocks while 8 GPUs are in use; within 3 s of the job's end the pod may go, and the worker comes back."""
    job = site.job("gpu-1")
    host = site.host("gpu-1")
    before = site.pod("gpu-1")["metadata"]["uid"]
    with site.draining(host) as drain:
        eventually("DRAIN", lambda: site.slurm("gpu-1").drained)
        always("the job runs", lambda: site.job_state(job) == "RUNNING" and drain.poll() is None, 6)
        assert site.evict("gpu-1") == 429

        site.cancel(job)
        eventually("idle", lambda: not site.slurm("gpu-1").states & {"MIXED", "ALLOCATED", "COMPLETING"})
        ended = time.monotonic()
        eventually("evicted or evictable", lambda: not site_has(site, before) or not site.protected("gpu-1"), 10)
        took = time.monotonic() - ended
        assert drain.wait(30) == 0
        print(f"evictable {took:.2f} s after the end of the job")

    assert site.slurm("gpu-1").drained, "the worker stays drained while its node is cordoned"
    site.kubectl("uncordon", host)
    site.settle(90)
    assert site.pod("gpu-1")["metadata"]["uid"] != before


def site_has(site: Site, uid: str) -> bool:
    """Whether the pod with this uid is still there and not terminating."""
    pods = site.lab.kube.get_json("pods", "-n", "slurm")["items"]
    return any(p["metadata"]["uid"] == uid and "deletionTimestamp" not in p["metadata"] for p in pods)


def test_a_job_submitted_in_the_instant_of_the_cordon_is_never_killed(site: Site) -> None:
    """100 times: cordon, eviction and a job race; the job ends well, or it never started here."""
    for attempt in range(100):
        worker = f"gpu-{attempt % 3 + 1}"
        host = site.host(worker)
        if attempt % 2:
            job = site.submit(worker)
            site.kubectl("cordon", host)
        else:
            site.kubectl("cordon", host)
            job = site.submit(worker)
        deadline = time.monotonic() + 0.6
        while time.monotonic() < deadline:
            running = site.job_state(job) in {"RUNNING", "COMPLETING"}
            status = site.evict(worker)
            assert not (running and status == 201 and site.job_state(job) == "RUNNING"), (
                f"attempt {attempt}: evicted a busy worker"
            )
            if status == 201:
                break
        site.cancel(job)
        site.kubectl("uncordon", host)
        site.settle(90)


def test_protection_survives_the_loss_of_lockstep_slurm_and_nats(site: Site) -> None:
    """What cannot be read is not acted upon; the label and the budget stay."""
    site.lockstep.kill()
    try:
        site.lab.slurm.proxy.set("refuse")
        site.lab.nats.kill()
        assert site.evict("gpu-1") == 429
    finally:
        site.lab.nats.start()
        site.lab.slurm.proxy.clear()
        site.lockstep.up()
    assert site.evict("gpu-1") == 429


def test_a_neighbours_budget_over_the_same_pods_is_used_and_not_doubled(site: Site) -> None:
    """Two budgets over one pod would make the eviction API answer 500: there is exactly one."""
    budgets = site.lab.kube.get_json("pdb", "-n", "slurm")["items"]
    selecting = [
        b["metadata"]["name"] for b in budgets if PROTECTED.items() <= b["spec"]["selector"]["matchLabels"].items()
    ]
    assert selecting == ["slurm-workers-pdb-main"]


PROTECTED = {"nodeset.slinky.slurm.net/pod-protect": "true"}
