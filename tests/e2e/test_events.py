"""What happens to a worker is told step by step, each step once, with before, after and what it came from."""

import json
from collections.abc import Callable
from datetime import UTC, datetime

from tests.chains import Chains, Event, check_cordon_and_uncordon, kind_of, named, only, turns
from tests.e2e.site import Site, eventually


class Stream:
    """The events about one worker and the node under it, from a moment on."""

    def __init__(self, site: Site, worker: str) -> None:
        self._site, self._worker, self._host = site, worker, site.host(worker)
        self._since = datetime.now(UTC).isoformat()  # noqa: TID251  a test speaks to a real clock
        self.chains = Chains([])

    def events(self) -> list[Event]:
        """All of them, in the stream's order."""
        self.chains = Chains(self._site.events(since=self._since))
        return self.chains.about(self._worker, self._host)

    def wait(self, kind: str, is_it: Callable[[Event], object] = lambda _: True, timeout_s: float = 30) -> Event:
        """The first event of a kind of which this is true; fails with what was told instead."""
        try:
            found = eventually(kind, lambda: [e for e in named(self.events(), kind) if is_it(e)], timeout_s, 0.3)
        except AssertionError as error:
            error.add_note(", ".join(f"{event['at']} {kind_of(event)}" for event in self.events()))
            raise
        return found[0]


def test_a_cordon_under_a_job_is_told_from_the_cordon_to_the_way_back(site: Site) -> None:
    """One cordon, one job that ends, one uncordon: each step once, in the order of causes, and back to a person."""
    job = site.job("gpu-1")
    eventually("Lockstep has seen it", lambda: set(site.conditions("gpu-1")) & {"Mixed", "Allocated"})
    stream = Stream(site, "gpu-1")
    host = site.cordon("gpu-1")
    stream.wait("drain.waiting", lambda e: e.get("waiting_for"))
    site.cancel(job)
    stream.wait("worker.unprotected")
    site.kubectl("uncordon", host)
    stream.wait("slurm-node.phase-changed", lambda e: e["after"] == "idle")

    events = stream.events()
    check_cordon_and_uncordon(stream.chains, events, job)
    assert [worker["name"] for worker in named(events, "node.cordoned")[0]["workers"]] == ["gpu-1"]


def test_an_administrators_drain_is_told_and_is_its_own_cause(site: Site) -> None:
    """Slurm's change is what the hold came from, and its end what ended it; we write nothing."""
    stream = Stream(site, "gpu-2")
    site.scontrol("gpu-2", state="drain", reason="bad DIMM")
    drained = stream.wait("drain.drained")
    site.scontrol("gpu-2", state="resume")
    ended = stream.wait("drain.ended")
    stream.wait("slurm-node.phase-changed", lambda e: e["after"] == "idle")

    steps = ["hold.respected", "drain.started", "drain.drained", "hold.released", "drain.ended"]
    assert only(stream.events(), steps) == steps
    assert turns(named(stream.events(), "slurm-node.reason-changed")) == ["", "bad DIMM", ""]
    assert named(stream.events(), "worker") == named(stream.events(), "hold.placed") == []
    assert stream.chains.causes(drained)[-1] == stream.chains.causes(ended)[-1] == "slurm-node.state-changed"
    assert stream.chains.causes(ended) == ["drain.ended", "hold.released", "slurm-node.state-changed"]


def test_a_pod_that_is_deleted_is_told_to_its_end_and_its_successor_to_its_service(site: Site) -> None:
    """The hold came from the pod's end, which its kubelet leaves time for: else it may be over before anybody acts."""
    before = site.uid("gpu-3")
    stream = Stream(site, "gpu-3")
    with site.lab.fail.frozen(site.host("gpu-3").replace("node", "kubelet")):
        site.kubectl("delete", "pod", "gpu-3", "-n", "slurm", "--wait=false")
        stream.wait("worker.drain-set")
    stream.wait("pod.ready", lambda e: e["uid"] != before, 90)
    stream.wait("drain.ended", timeout_s=60)
    stream.wait("worker.drain-lifted", timeout_s=60)

    first = [kind_of(e) for e in named(stream.events(), "pod") if e["uid"] == before]
    assert (first[0], first[-1]) == ("pod.terminating", "pod.gone")
    placed = stream.wait("hold.placed")
    assert placed["hold"]["id"] == "pod/slurm/gpu-3"
    assert stream.chains.causes(placed) == ["hold.placed", "pod.terminating"]
    assert stream.chains.causes(stream.wait("worker.drain-set")) == [
        "worker.drain-set",
        "drain.started",
        "hold.placed",
        "pod.terminating",
    ]


def test_a_condition_and_a_reservation_are_told(site: Site) -> None:
    """What the kubelet says of its node, and the reservation under which Slurm shows it."""
    stream = Stream(site, "gpu-1")
    said = {"type": "Ready", "status": "False", "reason": "Asked", "message": "for a test"}
    patch = json.dumps({"status": {"conditions": [said]}})
    site.kubectl("patch", "node", site.host("gpu-1"), "--subresource=status", "--type=strategic", "-p", patch)
    site.lab.slurm.scontrol(
        "create", "reservation=told", "starttime=now", "duration=60", "users=root", "nodes=gpu-1", "flags=ignore_jobs"
    )
    entered = stream.wait("slurm-node.reservation-entered")
    site.lab.slurm.scontrol("delete", "reservation=told")
    left = stream.wait("slurm-node.reservation-left")
    stream.wait("node.condition-changed", lambda e: e["after"] == "True", 60)

    assert entered["reservation"] == left["reservation"] == "told"
    changed = named(stream.events(), "node.condition-changed")
    assert [(e["condition"], e["before"], e["after"]) for e in changed] == [
        ("Ready", "True", "False"),
        ("Ready", "False", "True"),
    ]
    assert (changed[0]["reason"], [w["name"] for w in changed[0]["workers"]]) == ("Asked", ["gpu-1"])
