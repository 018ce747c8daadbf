"""No worker's pod is evicted before Slurm has acknowledged the drain and its jobs have ended."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tests.e2e.site import PROTECT, WORKERS, Site, always, eventually


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
    """102 times, on three workers at once: whoever is evicted had no job, and no job is lost."""
    with ThreadPoolExecutor(len(WORKERS)) as pool:
        outcomes = [pool.submit(races, site, worker, 34) for worker in WORKERS]
    evicted, ran = (sum(counts) for counts in zip(*(outcome.result() for outcome in outcomes), strict=True))
    print(f"evicted {evicted} times; {ran} jobs ran on")
    assert ran, "no job was ever there first: that proves nothing"
    assert evicted, "no eviction ever went through: that proves nothing"


LEADS_S = (-1.4, -1.2, -1.1, -1.0, -0.9, -0.7, -0.3, 0.0, 0.05)
"""How long after the cordon the job is submitted; negative: before it. Slurm takes about a second to start it."""
EVICT_EVERY_S = 0.02


def races(site: Site, worker: str, times: int) -> tuple[int, int]:
    """How often the pod was evicted, and how often a job ran on."""
    evicted = ran = 0
    for attempt in range(times):
        host, uid = site.host(worker), site.uid(worker)
        gone, job = one_race(site, worker, host, LEADS_S[attempt % len(LEADS_S)])
        evicted += gone
        ran += site.job_state(job) == "RUNNING"
        site.cancel(job)
        site.unschedulable(host, value=False)
        if gone:
            eventually("another pod", lambda before=uid: site.uid(worker) not in {"", before}, 60, 0.2)
        eventually(f"{worker} in service", lambda: site.in_order(worker), 90, 0.2)
    return evicted, ran


def one_race(site: Site, worker: str, host: str, lead_s: float) -> tuple[bool, int]:
    """A cordon, a job and evictions for a second; whether the pod was evicted, and the job.

    Who was evicted from under a job has it still running, as nobody has noticed yet, or has restarted it.
    """
    jobs: list[int] = []
    race(lambda: site.unschedulable(host, value=True), lambda: jobs.append(site.submit(worker)), lead_s)
    deadline = time.monotonic() + 1.2
    while time.monotonic() < deadline:
        if site.evict(worker) == 201:
            job = site.lab.slurm.squeue("--noheader", f"--jobs={jobs[0]}", "--Format=State:20,RestartCnt:20").split()
            assert job == ["PENDING", "0"], f"evicted under job {jobs[0]}, which is {job}"
            return True, jobs[0]
        time.sleep(EVICT_EVERY_S)
    return False, jobs[0]


def race(first: Callable[[], object], second: Callable[[], object], lead_s: float) -> None:
    """Both at once; the second `lead_s` after the first, or before it if negative."""

    def later(delay_s: float, do: Callable[[], object]) -> None:
        time.sleep(max(delay_s, 0))
        do()

    with ThreadPoolExecutor(2) as pool:
        for future in [pool.submit(later, -lead_s, first), pool.submit(later, lead_s, second)]:
            future.result()


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
    selecting = [b["metadata"]["name"] for b in budgets if PROTECT in b["spec"]["selector"]["matchLabels"]]
    assert selecting == ["slurm-workers-pdb-main"]
