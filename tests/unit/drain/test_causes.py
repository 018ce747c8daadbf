"""Because of which event each thing came about that the drain service tells."""

from typing import Any

import pytest

from lockstep.contracts.events import (
    DrainCancelled,
    DrainDone,
    DrainEnded,
    DrainOverdue,
    DrainStarted,
    DrainWaiting,
    Event,
    ForeignDrainRespected,
    HoldExpired,
    HoldPlaced,
    HoldReleased,
)
from lockstep.contracts.facts import Desired, KubeHold, KubeNode, KubePod, Progress, SlurmNode
from lockstep.contracts.hold import Drain
from lockstep.drain.causes import explained
from lockstep.drain.decide import decide
from lockstep.fleet.facts import FactKey
from lockstep.fleet.worker import Worker
from tests.builders import (
    CLUSTER,
    HOST,
    NAME,
    NOW,
    OURS,
    POLICY,
    a_desired,
    a_drained_worker,
    a_hold,
    a_job,
    a_node,
    a_pod,
    a_reservation,
    a_slurm_node,
    a_view,
    a_worker,
    ago,
)

NAMES: dict[type[Any], str] = {
    KubeNode: "node",
    KubePod: "pod",
    KubeHold: "request",
    SlurmNode: "slurm",
    Desired: "step",
}
CORDONED = a_node(unschedulable=True, cordoned_by="kubectl-cordon")
CORDON = a_view(id=f"cordon/{HOST}")


def cause_of(*keys: FactKey) -> str:
    """Everything has a cause, which says what it is the cause of."""
    ((kind, scope, identity),) = keys
    return f"{NAMES[kind]} {scope}/{identity}"


def told(worker: Worker) -> list[Event]:
    """What happened, with causes."""
    decision = decide(worker, POLICY, NOW)
    assert decision is not None
    return explained(decision, worker, cause_of).events


def chain(events: list[Event]) -> list[tuple[type[Event], str]]:
    """Each kind with its cause; the cause's kind, where it is one of these."""
    kinds = {event.id: type(event).__name__ for event in events}
    return [(type(event), kinds.get(event.cause_id, event.cause_id)) for event in events]


def test_a_drain_begins_because_of_a_hold_and_the_hold_because_of_the_cordon() -> None:
    """Back to what a person did."""
    assert chain(told(a_worker(node=CORDONED, desired=a_desired()))) == [
        (HoldPlaced, f"node _site/{HOST}"),
        (DrainStarted, "HoldPlaced"),
    ]


@pytest.mark.parametrize(
    ("seen", "kind", "cause"),
    [
        pytest.param({"holds": [a_hold()]}, HoldPlaced, "request main/slurm/dimm", id="a Hold"),
        pytest.param({"pod": a_pod(deleting_since=ago(1))}, HoldPlaced, "pod main/slurm/gpu-7", id="a pod's end"),
        pytest.param({"pod": a_pod(pod_cordon=True)}, HoldPlaced, "pod main/slurm/gpu-7", id="a pod's cordon"),
        pytest.param({"node": a_node(deleting_since=ago(1))}, HoldPlaced, f"node _site/{HOST}", id="a node's end"),
        pytest.param({"reservations": [a_reservation()]}, HoldPlaced, "", id="a reservation"),
        pytest.param(
            {"slurm": a_slurm_node("IDLE+DRAIN", reason="bad DIMM")},
            ForeignDrainRespected,
            "slurm main/gpu-7",
            id="foreign",
        ),
    ],
)
def test_a_hold_stands_because_of_what_it_is_read_from(seen: Any, kind: type[Event], cause: str) -> None:
    """Wherever it lives."""
    assert chain(told(a_worker(desired=a_desired(), **seen)))[0] == (kind, cause)


def test_the_last_release_ends_the_drain() -> None:
    """And it came about because of what the hold was read from, which may be gone."""
    worker = a_worker(state="IDLE+DRAIN", desired=a_desired(CORDON, progress=Progress.DRAINED))
    assert chain(told(worker)) == [(HoldReleased, f"node _site/{HOST}"), (DrainEnded, "HoldReleased")]
    worker = a_worker(state="MIXED+DRAIN", desired=a_desired(CORDON, progress=Progress.DRAINING))
    assert chain(told(worker)) == [(HoldReleased, f"node _site/{HOST}"), (DrainCancelled, "HoldReleased")]


def test_why_a_hold_resource_was_deleted_nobody_says() -> None:
    """What made it is not what ended it."""
    worker = a_worker(state="IDLE+DRAIN", desired=a_desired(a_view(), progress=Progress.DRAINED))
    assert chain(told(worker)) == [(HoldReleased, ""), (DrainEnded, "HoldReleased")]


def test_time_has_no_cause() -> None:
    """A hold expires by itself."""
    expired = a_view(until=ago(1))
    worker = a_worker(state="IDLE+DRAIN", holds=[a_hold(expires_at=ago(1))], desired=a_desired(expired))
    assert chain(told(worker))[0] == (HoldExpired, "")


def test_a_drain_goes_on_because_of_what_slurm_shows() -> None:
    """It waits for jobs, and is done."""
    waiting = a_worker(
        state="MIXED+DRAIN", node=CORDONED, jobs=[a_job()], desired=a_desired(CORDON, progress=Progress.WAITING)
    )
    assert chain(told(waiting)) == [(DrainWaiting, "slurm main/gpu-7")]
    done = a_drained_worker(desired=a_desired(a_view(), progress=Progress.DRAINING, words=OURS))
    assert chain(told(done)) == [(DrainDone, "slurm main/gpu-7")]


def test_where_slurm_has_said_nothing_a_drain_goes_on_because_of_its_last_step() -> None:
    """A deadline that passes, of a drain that began before anybody looked at Slurm."""
    hold = a_hold(created_at=ago(7200), drain=Drain(deadline="1h"))
    worker = a_worker(state="MIXED+DRAIN", holds=[hold], jobs=[a_job()], desired=a_desired(progress=Progress.DRAINING))
    decision = decide(worker, POLICY, NOW)
    assert decision is not None
    events = explained(decision, worker, lambda *keys: "" if keys[0][0] is SlurmNode else cause_of(*keys)).events
    assert (DrainOverdue, f"step {CLUSTER}/{NAME}") in chain(events)


def test_what_is_not_known_stays_open() -> None:
    """After the stream was lost nobody knows why things are as they are."""
    worker = a_worker(node=CORDONED, desired=a_desired())
    decision = decide(worker, POLICY, NOW)
    assert decision is not None
    placed, started = explained(decision, worker, lambda *_: "").events
    assert (placed.cause_id, started.cause_id) == ("", placed.id)
