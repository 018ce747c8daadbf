"""A drain says what it waits for and until when, and its deadline is kept."""

from typing import Any

from tests.e2e.site import Site, eventually


def test_status_why_and_events_name_the_jobs_that_a_drain_waits_for(site: Site) -> None:
    """Id, user, partition and end of each job, in the Hold, in `lockstep why` and in the event stream."""
    job = site.job("gpu-1")
    site.hold("slow", {"names": ["gpu-1"]}, "slow", drain={"policy": "Wait", "deadline": "1h"})

    waiting = eventually("waitingFor", lambda: site.hold_status("slow").get("waitingFor"))
    assert waiting[0]["worker"] == "gpu-1"
    assert waiting[0]["jobs"][0]["id"] == job
    assert {"user", "partition", "ends"} <= waiting[0]["jobs"][0].keys()
    assert site.hold_status("slow")["phase"] == "Draining"
    assert job in [j["id"] for j in site.why("gpu-1")["worker"]["waiting_for"]]
    eventually("the event", lambda: any(job in waits_for(event) for event in site.events()))

    site.cancel(job)
    eventually("Drained", lambda: site.hold_status("slow").get("phase") == "Drained")


def waits_for(event: dict[str, Any]) -> list[int]:
    """The jobs that a drain's event names."""
    return [job["id"] for job in event.get("waiting_for", [])] if event["type"].startswith("drain.") else []


def test_a_deadline_that_keeps_waiting_says_that_it_is_overdue(site: Site) -> None:
    """`Keep` ends no job, and is not silent."""
    job = site.job("gpu-2")
    site.hold("late", {"names": ["gpu-2"]}, drain={"policy": "Wait", "deadline": "3s", "atDeadline": "Keep"})

    eventually("Overdue", lambda: site.hold_status("late").get("phase") == "Overdue")
    assert site.job_state(job) == "RUNNING"


def test_a_deadline_that_cancels_ends_the_job(site: Site) -> None:
    """`Cancel` at the deadline: the job runs until then and is cancelled, and the worker is drained."""
    job = site.job("gpu-3")
    site.hold("firm", {"names": ["gpu-3"]}, drain={"policy": "Wait", "deadline": "4s", "atDeadline": "Cancel"})
    eventually("DRAIN", lambda: site.slurm("gpu-3").drained)
    assert site.job_state(job) == "RUNNING"

    eventually("cancelled", lambda: site.job_state(job) == "CANCELLED")
    eventually("Drained", lambda: site.hold_status("firm").get("phase") == "Drained")


def test_a_requeueing_hold_sends_the_job_back_and_spares_one_that_cannot(site: Site) -> None:
    """`Requeue` puts a job back in the queue; one that may not be requeued is waited for."""
    job = site.job("gpu-1")
    fixed = site.job("gpu-2", requeue=False)
    site.hold("again", {"names": ["gpu-1", "gpu-2"]}, drain={"policy": "Requeue"})

    eventually("requeued", lambda: site.job_state(job) == "PENDING")
    eventually("DRAIN", lambda: site.slurm("gpu-2").drained)
    assert site.job_state(fixed) == "RUNNING"
    eventually("it says so", lambda: site.hold_status("again").get("workers", {}).get("draining", 0) >= 1)
