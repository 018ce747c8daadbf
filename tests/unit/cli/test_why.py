"""`lockstep why`: the holds, the drain, the way back."""

import msgspec
import pytest

from lockstep.cli.view import Fleet
from lockstep.cli.why import ending, explain, story
from lockstep.contracts.facts import Progress
from lockstep.contracts.hold import AtDeadline, Drain
from tests.builders import OURS, a_desired, a_hold, a_job, a_view, ago
from tests.unit.cli.seen import a_fleet, parts


def told(fleet: Fleet) -> str:
    """What `why gpu-7` prints."""
    worker = next(w for w in fleet.workers(["main"]) if w.name == "gpu-7")
    return "\n".join(story(explain(worker, fleet), fleet))


def test_a_held_worker_is_explained_from_hold_to_way_back() -> None:
    """Owner, reason, policy, how to end it, the jobs and the deadline are all there."""
    drain = Drain(deadline="2h", at_deadline=AtDeadline.CANCEL)
    until = a_view(deadline=ago(-7140), at_deadline=AtDeadline.CANCEL)
    desired = a_desired(until, progress=Progress.DRAINING, why_not="jobs run or complete")
    fleet = a_fleet(*parts(7, "MIXED+DRAIN", reason=OURS), a_hold(drain=drain), desired, a_job())

    assert told(fleet) == (
        "#draining main/gpu-7: out of service, draining, 1 hold\n"
        "  Slurm:      MIXED+DRAIN, lockstep: ops@example.com: DIMM B2\n"
        "  Kubernetes: pod slurm/gpu-7 ready, node host-7, protected from eviction\n"
        "Holds:\n"
        "  hold/slurm/dimm: manual by ops@example.com, for 60s\n"
        "    DIMM B2\n"
        "    jobs: Wait, deadline in 119m, then Cancel\n"
        "    ends by: lockstep release dimm\n"
        "Drain:\n"
        "  draining: jobs run or complete\n"
        "  deadline: 2026-12-01T13:59:00+00:00 (in 119m)\n"
        "  waits for job 42: RUNNING of u1017 in gpu, ends in 10m\n"
        "Way back:\n"
        "  when no hold stands\n"
        "Read: kube 1s ago, slurm.node 1s ago, slurm.job 1s ago"
    )


def test_a_worker_in_service_says_so() -> None:
    """Nothing is kept from nobody."""
    text = told(a_fleet(*parts(7)))

    assert text.startswith("#idle main/gpu-7: in service\n")
    assert "Holds:" not in text


def test_a_released_worker_that_is_not_back_says_what_it_waits_for() -> None:
    """No hold stands, our DRAIN does: the way up is explained."""
    slurm, pod, node = parts(7, "IDLE+DRAIN", reason=OURS)
    text = told(a_fleet(slurm, msgspec.structs.replace(pod, ready=False), node))

    assert "no hold stands, its drain is being lifted" in text
    assert "waits: its pod is not ready" in text


def test_facts_that_were_never_read_are_not_taken_for_good_news() -> None:
    """Through Kubernetes alone nobody knows how old Slurm's state is, and it says so."""
    text = told(a_fleet(*parts(7), source="kubernetes"))

    assert "Slurm only as the pod's conditions show it" in text


@pytest.mark.parametrize(
    ("ident", "way"),
    [
        ("hold/slurm/dimm", "lockstep release dimm"),
        ("cordon/host-3", "kubectl uncordon host-3"),
        (
            "pod-cordon/slurm/gpu-3",
            "kubectl annotate pod -n slurm gpu-3 nodeset.slinky.slurm.net/pod-cordon-",
        ),
        ("pod/slurm/gpu-3", "its pod being replaced"),
        (
            "condition/host-3/DiskPressure",
            "the condition DiskPressure clearing, or lockstep release condition/host-3/DiskPressure --override",
        ),
        ("taint/host-3/example.com/repair", "kubectl taint node host-3 example.com/repair-"),
        ("label/host-3/state", "kubectl label node host-3 state-"),
        ("node/host-3", "its Kubernetes node being made anew"),
        ("slurm/gpu-3", "scontrol update nodename=gpu-3 state=resume"),
        ("reservation/maint", "the reservation's end, or scontrol delete reservationname=maint"),
    ],
)
def test_each_hold_is_ended_where_it_lives(ident: str, way: str) -> None:
    """Every kind of hold comes with the command that ends it."""
    assert ending(a_view(id=ident)) == way


def test_a_hold_that_was_asked_for_over_nats_is_ended_there() -> None:
    """By the same user; a person on Kubernetes would have to override it."""
    assert ending(a_view(owner="nats:ops")) == "lockstep release dimm --through nats --nats-user ops"


def test_a_name_from_outside_never_becomes_a_second_command() -> None:
    """What is to be pasted into a shell is quoted."""
    assert ending(a_view(owner="nats:a;b")) == "lockstep release dimm --through nats --nats-user 'a;b'"
    assert ending(a_view(id="slurm/gpu-3; rm -rf x")) == "scontrol update nodename='gpu-3; rm -rf x' state=resume"


def test_the_newest_trace_is_named_where_the_settings_say_how_traces_are_seen() -> None:
    """One click from the question to everything that happened."""
    fleet = a_fleet(*parts(7))
    worker = next(iter(fleet.workers(["main"])))
    answer = msgspec.structs.replace(explain(worker, fleet), trace="http://jaeger:16686/trace/5b8a")

    assert "\nTrace: http://jaeger:16686/trace/5b8a\n" in "\n".join(story(answer, fleet))
    assert "Trace:" not in told(fleet)
