"""Holds projected on Slurm's one bit: each row of the table, and the order of the writes."""

from typing import Any

import pytest

from lockstep.contracts.facts import JobAct
from lockstep.contracts.hold import Drain, DrainPolicy
from lockstep.contracts.policy import Policy
from lockstep.fleet.worker import Worker
from lockstep.reconciler.decide import decide
from lockstep.reconciler.model import DrainNode, EndJob, Protect, ShowState, UndrainNode, Unprotect, WorkerAction
from lockstep.slurm import reasons
from tests.builders import (
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
    wrote_drain,
    wrote_undrain,
)

QUIET = Policy(conditions=False)
KEPT = f"{OURS} [was: Not responding]"


def in_slurm(worker: Worker, policy: Policy = QUIET) -> list[WorkerAction]:
    """What is written to Slurm's node."""
    return [a for a in decide(worker, policy, NOW) if isinstance(a, DrainNode | UndrainNode)]


def a_held_worker(state: str, reason: str = "", **fields: Any) -> Worker:
    """A worker with a Hold, which nothing was written for yet."""
    known: dict[str, Any] = {"holds": [a_hold()], "desired": a_desired(a_view()), "state": state, "reason": reason}
    return a_worker(**(known | fields))


@pytest.mark.parametrize(
    ("state", "reason", "written"),
    [
        pytest.param("IDLE", "", OURS, id="no DRAIN"),
        pytest.param("MIXED", "", OURS, id="no DRAIN, busy"),
        pytest.param("IDLE+ZAP", "", OURS, id="no DRAIN, unknown flag"),
        pytest.param("IDLE+DRAIN+UNDRAIN", OURS, OURS, id="DRAIN that is being lifted"),
        pytest.param("IDLE+DRAIN", "lockstep: x: y", OURS, id="our DRAIN, other words"),
        pytest.param("DOWN+DRAIN", "lockstep: x: y", OURS, id="our DRAIN, other words, DOWN"),
        pytest.param("DOWN", "Not responding", KEPT, id="DOWN by slurmctld"),
        pytest.param(
            "DOWN", "Node unexpectedly rebooted", f"{OURS} [was: Node unexpectedly rebooted]", id="DOWN after a reboot"
        ),
        pytest.param("IDLE+DRAIN", "bad DIMM", None, id="foreign DRAIN"),
        pytest.param("IDLE+DRAIN", "", None, id="DRAIN without a reason"),
        pytest.param("MIXED+DRAIN+ZAP", "bad DIMM", None, id="foreign DRAIN, unknown flag"),
        pytest.param("DOWN", "bad DIMM", None, id="DOWN by a person"),
        pytest.param("DOWN", "", None, id="DOWN without a reason"),
        pytest.param("IDLE+FAIL", "smoke", None, id="FAIL by a person"),
        pytest.param("IDLE+FAIL", OURS, None, id="FAIL over our DRAIN"),
    ],
)
def test_with_a_hold_the_drain_is_ours_unless_somebody_elses_stands(
    state: str, reason: str, written: str | None
) -> None:
    """One DRAIN with our words, or nothing at all."""
    assert in_slurm(a_held_worker(state, reason)) == (
        [] if written is None else [DrainNode(words=written, because="hold/slurm/dimm")]
    )


@pytest.mark.parametrize("reason", [OURS, KEPT])
def test_a_drain_with_our_words_is_left_alone(reason: str) -> None:
    """Also with slurmctld's own words kept behind them."""
    assert in_slurm(a_drained_worker(state="IDLE+DRAIN", reason=reason, wrote=wrote_drain(words=reason))) == []


@pytest.mark.parametrize("wrote", [None, wrote_drain(episode=0), wrote_undrain()])
def test_a_drain_that_was_not_answered_for_these_holds_is_asked_for_again(wrote: Any) -> None:
    """The same words: an UNDRAIN of the last holds may be on its way, and only an answer tells that it is not."""
    worker = a_drained_worker(state="IDLE+DRAIN", reason=KEPT, wrote=wrote)
    assert in_slurm(worker) == [DrainNode(words=KEPT, because="hold/slurm/dimm")]


@pytest.mark.parametrize(
    ("state", "reason", "undrained"),
    [
        pytest.param("IDLE+DRAIN", OURS, True, id="our DRAIN"),
        pytest.param("MIXED+DRAIN", OURS, True, id="our DRAIN, jobs still run"),
        pytest.param("IDLE+DRAIN", KEPT, True, id="our DRAIN with slurmctld's words behind"),
        pytest.param("DOWN+DRAIN", OURS, False, id="our DRAIN, DOWN"),
        pytest.param("IDLE+DRAIN", "bad DIMM", False, id="foreign DRAIN"),
        pytest.param("IDLE+DRAIN", "slurm-operator: cordoned", False, id="a neighbour's DRAIN"),
        pytest.param("IDLE+DRAIN", "Lockstep: nearly", False, id="nearly our words"),
        pytest.param("IDLE+DRAIN", "", False, id="DRAIN without a reason"),
        pytest.param("IDLE", "", False, id="no DRAIN"),
        pytest.param("IDLE", OURS, False, id="no DRAIN, our words left over"),
        pytest.param("IDLE+DRAIN+UNDRAIN", OURS, False, id="UNDRAIN on its way"),
        pytest.param("IDLE+FAIL", OURS, False, id="FAIL"),
        pytest.param("DOWN", "Not responding", False, id="DOWN"),
    ],
)
def test_without_a_hold_only_our_own_drain_is_lifted(state: str, reason: str, undrained: bool) -> None:
    """A foreign DRAIN stays until its owner lifts it, and UNDRAIN is never sent to a node without DRAIN."""
    found = in_slurm(a_worker(state=state, reason=reason, desired=a_desired()))
    assert found == ([UndrainNode(because="no hold stands")] if undrained else [])


@pytest.mark.parametrize(
    "differs",
    [
        pytest.param({"holds": [a_hold()]}, id="a Hold"),
        pytest.param({"node": a_node(unschedulable=True, cordoned_by="kubectl")}, id="a cordon"),
        pytest.param({"pod": a_pod(pod_cordon=True)}, id="pod-cordon"),
        pytest.param({"pod": a_pod(ready=False)}, id="a pod that is not ready"),
        pytest.param({"pod": None}, id="no pod: the machine may be gone"),
        pytest.param({"node": None}, id="no Kubernetes node"),
        pytest.param({"kube_as_of": ago(16)}, id="Kubernetes silent"),
        pytest.param({"slurm_as_of": ago(16)}, id="Slurm silent"),
        pytest.param({"desired": None}, id="nothing decided"),
        pytest.param({"wrote": wrote_undrain(undrained_at=ago(0.5))}, id="lifted already, not read yet"),
    ],
)
def test_a_drain_is_not_lifted_against_what_is_seen_here(differs: dict[str, Any]) -> None:
    """What is wanted may be older than what is known: a hold that just began, or a machine that went, keeps it."""
    assert in_slurm(a_worker(**({"state": "IDLE+DRAIN", "desired": a_desired()} | differs))) == []


def test_our_drain_is_lifted_under_a_reservation_or_when_only_slurms_own_holds_stand() -> None:
    """They keep the worker out without us."""
    reserved = a_desired(a_view(id="reservation/maint"))
    worker = a_worker(state="IDLE+DRAIN", desired=reserved, reservations=[a_reservation()])
    assert in_slurm(worker) == [UndrainNode(because="the last hold of ours ended")]


@pytest.mark.parametrize(
    ("reasserted_at", "written"),
    [
        pytest.param(None, True, id="the first time at once"),
        pytest.param(ago(29), False, id="not within the interval"),
        pytest.param(ago(30), True, id="and again after it"),
    ],
)
def test_what_somebody_resumed_against_a_hold_is_drained_again_at_a_bounded_rate(
    reasserted_at: Any, written: bool
) -> None:
    """Two parties that both insist do not fight at full speed."""
    worker = a_held_worker("IDLE", wrote=wrote_drain(reasserted_at=reasserted_at))
    again = DrainNode(words=OURS, reassert=True, because="hold/slurm/dimm")
    assert in_slurm(worker) == ([again] if written else [])


def test_the_way_down_closes_the_door_first() -> None:
    """Protect, then DRAIN, then what is shown; nothing is unprotected."""
    worker = a_held_worker("IDLE", pod=a_pod(protected=False))
    assert [type(action) for action in decide(worker, POLICY, NOW)] == [Protect, DrainNode, ShowState]


def test_the_way_up_opens_the_door_last() -> None:
    """Protect, then what is shown, then UNDRAIN."""
    worker = a_worker(state="IDLE+DRAIN", desired=a_desired(), pod=a_pod(protected=False))
    assert [type(action) for action in decide(worker, POLICY, NOW)] == [Protect, ShowState, UndrainNode]


def test_a_pod_is_let_go_only_after_everything_else() -> None:
    """At the end of the way down, when the worker is proven drained."""
    assert [type(action) for action in decide(a_drained_worker(), POLICY, NOW)] == [ShowState, Unprotect]


@pytest.mark.parametrize(
    ("differs", "ended"),
    [
        pytest.param({}, True, id="the hold that ends jobs stands"),
        pytest.param({"holds": []}, False, id="it was released a moment ago"),
        pytest.param({"holds": [a_hold("waits")]}, False, id="only one that waits is left"),
        pytest.param({"jobs": [a_job(start=ago(5))]}, False, id="the job runs for another time"),
        pytest.param({"jobs": []}, False, id="the job has ended"),
        pytest.param({"slurm_as_of": ago(16)}, False, id="Slurm is silent"),
        pytest.param({"state": "MIXED"}, False, id="somebody resumed the node"),
    ],
)
def test_a_job_is_ended_only_while_a_hold_says_so(differs: dict[str, Any], ended: bool) -> None:
    """What cannot be undone is looked at once more with what is known here."""
    cancels = a_hold(drain=Drain(policy=DrainPolicy.CANCEL))
    act = JobAct(job_id=42, act=DrainPolicy.CANCEL, start=ago(600))
    known: dict[str, Any] = {"state": "MIXED+DRAIN", "holds": [cancels], "jobs": [a_job()]}
    known |= {"desired": a_desired(a_view(policy=DrainPolicy.CANCEL), job_acts=[act])}
    actions = decide(a_drained_worker(**(known | differs)), QUIET, NOW)
    assert [a.job_id for a in actions if isinstance(a, EndJob)] == ([42] if ended else [])


def test_the_words_we_write_are_known_again_as_ours() -> None:
    """Whatever was kept behind them, and whatever the reason holds."""
    for reason in ("ECC=3 gpu=1", 'a=b=c [x] "y"', "x" * 500):
        words = reasons.ours("ops", reason)
        kept = reasons.keep_behind(words, "Not responding")
        for said in (words, kept):
            worker = a_drained_worker(
                slurm=a_slurm_node("IDLE+DRAIN", reason=said),
                desired=a_desired(a_view(), words=words),
                wrote=wrote_drain(words=said),
            )
            assert in_slurm(worker) == []
