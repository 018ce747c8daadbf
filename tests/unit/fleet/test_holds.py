"""Which holds stand, in which order, in whose words."""

from typing import Any

import pytest

from lockstep.base.text import one_line
from lockstep.contracts.facts import HoldView, NodeCondition, Taint
from lockstep.contracts.hold import AtDeadline, Drain, DrainPolicy, HoldClass, LabelSelector, WorkerSelector
from lockstep.contracts.policy import Policy
from lockstep.fleet.holds import ends_jobs, faults, is_foreign, projected, selects, standing, view_of, words
from lockstep.fleet.pairing import Site, pair
from lockstep.fleet.worker import Worker
from lockstep.kube import keys
from tests.builders import (
    KEY,
    NAME,
    NOW,
    OURS,
    POLICY,
    a_hold,
    a_node,
    a_pod,
    a_reservation,
    a_slurm_node,
    a_table,
    a_view,
    a_worker,
    ago,
)

WATCHED = Policy(
    node_conditions=["DiskPressure", "Ready=False", "taint:example.com/repair", "label:state=bad", "DiskPressure=True"]
)


def ids(worker: Worker, policy: Policy = POLICY) -> list[str]:
    """The ids of the holds that stand."""
    return [hold.id for hold in standing(worker, policy, NOW)]


def sick(**fields: Any) -> NodeCondition:
    """The condition DiskPressure, as it is True."""
    return NodeCondition(**({"type": "DiskPressure", "status": "True", "since": ago(60)} | fields))


@pytest.mark.parametrize(
    ("differs", "found"),
    [
        pytest.param({}, [], id="nothing"),
        pytest.param({"holds": [a_hold()]}, ["hold/slurm/dimm"], id="a Hold"),
        pytest.param({"holds": [a_hold(deleting_since=ago(1))]}, [], id="a Hold being deleted is released"),
        pytest.param({"holds": [a_hold(expires_at=NOW)]}, [], id="a Hold expires at its time"),
        pytest.param({"holds": [a_hold(expires_at=ago(-1))]}, ["hold/slurm/dimm"], id="and not before"),
        pytest.param({"node": a_node(unschedulable=True, cordoned_by="kubectl")}, ["cordon/host-7"], id="cordon"),
        pytest.param({"node": a_node(unschedulable=True)}, ["cordon/host-7"], id="a cordon of nobody known"),
        pytest.param(
            {"node": a_node(unschedulable=True, cordoned_by="kubectl", mirror_mark=True)},
            ["cordon/host-7"],
            id="a user's cordon after our mirror was lifted by hand",
        ),
        pytest.param(
            {"node": a_node(unschedulable=True, cordoned_by="lockstep", mirror_mark=True)}, [], id="our own mirror"
        ),
        pytest.param({"node": a_node(deleting_since=ago(1))}, ["node/host-7"], id="Node being deleted"),
        pytest.param({"node": a_node(conditions=[sick()])}, ["condition/host-7/DiskPressure"], id="condition, once"),
        pytest.param({"node": a_node(conditions=[sick(status="False")])}, [], id="condition that is not so"),
        pytest.param(
            {"node": a_node(taints=[Taint(key="example.com/repair", effect="NoSchedule")])},
            ["taint/host-7/example.com/repair"],
            id="taint",
        ),
        pytest.param({"node": a_node(labels={"state": "bad"})}, ["label/host-7/state"], id="label"),
        pytest.param({"node": a_node(labels={"state": "good"})}, [], id="label of another value"),
        pytest.param({"pod": a_pod(pod_cordon=True)}, ["pod-cordon/slurm/gpu-7"], id="pod-cordon"),
        pytest.param({"pod": a_pod(deleting_since=ago(1))}, ["pod/slurm/gpu-7"], id="terminating pod"),
        pytest.param({"state": "IDLE+DRAIN", "reason": "bad DIMM"}, ["slurm/gpu-7"], id="administrator's DRAIN"),
        pytest.param({"state": "IDLE+DRAIN", "reason": ""}, ["slurm/gpu-7"], id="DRAIN without a reason"),
        pytest.param({"state": "IDLE+DRAIN"}, [], id="our own DRAIN"),
        pytest.param({"state": "IDLE+FAIL", "reason": "smoke"}, ["slurm/gpu-7"], id="FAIL"),
        pytest.param({"state": "IDLE+FAIL", "reason": OURS}, ["slurm/gpu-7"], id="FAIL over our DRAIN keeps our words"),
        pytest.param({"state": "DOWN", "reason": "smoke"}, ["slurm/gpu-7"], id="DOWN by a person"),
        pytest.param({"state": "DOWN", "reason": "Not responding"}, [], id="DOWN by slurmctld itself"),
        pytest.param({"state": "DOWN+DRAIN", "reason": OURS}, ["slurm/gpu-7"], id="DOWN by a person, with our words"),
        pytest.param(
            {"state": "DOWN+DRAIN+NOT_RESPONDING", "reason": OURS}, [], id="DOWN by slurmctld under our DRAIN"
        ),
        pytest.param({"state": "DOWN+DRAIN+POWERING_DOWN", "reason": OURS}, [], id="going off under our DRAIN"),
        pytest.param({"reservations": [a_reservation()]}, ["reservation/maint"], id="maintenance reservation"),
        pytest.param({"reservations": [a_reservation(maintenance=False)]}, [], id="another reservation"),
        pytest.param({"reservations": [a_reservation(start=ago(-1))]}, [], id="reservation to come"),
        pytest.param({"reservations": [a_reservation(end=NOW)]}, [], id="reservation that ended"),
    ],
)
def test_every_kind_of_hold_stands_where_it_lives(differs: dict[str, Any], found: list[str]) -> None:
    """Each is read from its own place and ends there."""
    assert ids(a_worker(**differs), WATCHED) == found


def test_a_cordoned_pod_is_slurm_operators_where_the_policy_says_so() -> None:
    """It marks pods as it likes, and drains them itself."""
    assert ids(a_worker(pod=a_pod(pod_cordon=True)), Policy(pod_cordon=False)) == []


@pytest.mark.parametrize(
    ("annotation", "counts"),
    [
        ("", True),
        ("MemoryPressure", True),
        ("DiskPressure", False),
        ("condition:DiskPressure", False),
        ("DiskPressure=True", False),
        ("MemoryPressure, DiskPressure=2026-12-01T11:59:00Z", False),
        ("DiskPressure=2026-12-01T11:58:00Z", True),
        ("DiskPressure=yesterday", True),
    ],
)
def test_an_ignored_condition_counts_again_when_it_changes(annotation: str, counts: bool) -> None:
    """The annotation names the condition, or the condition and the transition that is meant."""
    node = a_node(conditions=[sick()], annotations={keys.IGNORE_CONDITIONS: annotation})
    assert bool(ids(a_worker(node=node), WATCHED)) == counts


def test_holds_are_named_by_class_then_id() -> None:
    """Slurm's own first, then what people want, then what machines want; the same every time."""
    worker = a_worker(
        state="IDLE+DRAIN",
        reason="bad DIMM",
        node=a_node(unschedulable=True, cordoned_by="kubectl", conditions=[sick()]),
        holds=[a_hold("z"), a_hold("a"), a_hold("u", hold_class=HoldClass.UPDATE)],
    )
    assert ids(worker, WATCHED) == [
        "slurm/gpu-7",
        "hold/slurm/a",
        "hold/slurm/z",
        "cordon/host-7",
        "condition/host-7/DiskPressure",
        "hold/slurm/u",
    ]


@pytest.mark.parametrize(
    ("holds", "slurm_reason", "said"),
    [
        pytest.param([], "", "", id="none"),
        pytest.param([], OURS, "", id="none, and our drain still stands"),
        pytest.param([a_view()], "", OURS, id="one"),
        pytest.param([a_view(), a_view("two")], "", f"{OURS} (+1 more)", id="two"),
        pytest.param([a_view(id="slurm/gpu-7", reason="bad"), a_view()], "bad", OURS, id="ours and foreign"),
        pytest.param([a_view(id="slurm/gpu-7", reason="bad")], "bad\n\x1b[31m", "bad [31m", id="only foreign"),
        pytest.param([a_view(id="reservation/m", reason="maintenance m")], "", "maintenance m", id="a reservation"),
        pytest.param([a_view(id="reservation/m", reason="maintenance m")], OURS, "maintenance m", id="ours on its way"),
    ],
)
def test_the_words_are_of_the_first_hold_of_ours(holds: list[HoldView], slurm_reason: str, said: str) -> None:
    """What stands in Slurm is what is shown, clean and in one line."""
    assert words(holds, slurm_reason) == said
    assert one_line(said, limit=256) == said


def test_slurms_own_holds_need_no_drain_of_ours() -> None:
    """An administrator's drain and a reservation keep the worker out by themselves."""
    worker = a_worker(state="IDLE+DRAIN", reason="bad", reservations=[a_reservation()], holds=[a_hold()])
    assert [hold.id for hold in projected(standing(worker, POLICY, NOW))] == ["hold/slurm/dimm"]


def test_text_from_outside_is_cleaned_and_bounded() -> None:
    """Owners, reasons and cordon reasons carry no control characters and have an end."""
    nasty = "a\nb\x1b[31m\u202e" + "x" * 10_000
    worker = a_worker(
        node=a_node(unschedulable=True, cordoned_by=nasty, cordon_reason=nasty, conditions=[sick(message=nasty)]),
        holds=[a_hold(owner=nasty, reason=nasty)],
        slurm=a_slurm_node("IDLE+DRAIN", reason=nasty, reason_by=nasty),
    )
    found = standing(worker, WATCHED, NOW)
    assert len(found) == 4
    for hold in found:
        assert hold.owner == one_line(hold.owner, limit=64)
        assert hold.reason == one_line(hold.reason, limit=200)
    assert words(found) == one_line(words(found), limit=256)


@pytest.mark.parametrize("by", ["", "root", "slurm", "ops", "4294967294"])
def test_who_set_a_drain_is_told_by_its_words_alone(by: str) -> None:
    """All who use one token look alike to Slurm, so its author field decides nothing."""
    assert is_foreign(a_slurm_node("IDLE+DRAIN", reason="bad DIMM", reason_by=by))
    assert not is_foreign(a_slurm_node("IDLE+DRAIN", reason=OURS, reason_by=by))


@pytest.mark.parametrize("state", ["IDLE+FAIL", "DOWN+DRAIN"])
def test_a_state_of_somebodys_with_our_words_is_not_told_as_ours(state: str) -> None:
    """Author, time and words are of our own last write, and she is none of them."""
    worker = a_worker(slurm=a_slurm_node(state, reason=OURS, reason_by="lockstep", reason_at=ago(5)))
    (hold,) = standing(worker, POLICY, NOW)
    assert (hold.owner, hold.reason, hold.since) == ("slurm", "no reason given", None)
    assert words([hold], OURS) == "no reason given"


@pytest.mark.parametrize(
    ("selector", "selected"),
    [
        (WorkerSelector(names=[NAME, "gpu-8"]), True),
        (WorkerSelector(names=["gpu-77"]), False),
        (WorkerSelector(hostlist="gpu-[1-9]"), True),
        (WorkerSelector(hostlist="gpu-[1"), False),
        (WorkerSelector(nodes=["host-7"]), True),
        (WorkerSelector(nodes=["host-8"]), False),
        (WorkerSelector(partitions=["cpu", "gpu"]), True),
        (WorkerSelector(partitions=["cpu"]), False),
        (WorkerSelector(selector=LabelSelector(match_labels={"a": "b"})), True),
        (WorkerSelector(selector=LabelSelector(match_labels={"a": "c"})), False),
        (WorkerSelector(selector=LabelSelector()), False),
        (WorkerSelector(), False),
    ],
)
def test_a_hold_is_meant_for_whom_it_selects(selector: WorkerSelector, selected: bool) -> None:
    """Exactly those; what cannot be read selects nobody."""
    assert selects(selector, a_worker(pod=a_pod(labels={"a": "b"}))) == selected


def test_a_hold_that_cannot_be_read_stops_nobody_else() -> None:
    """One malformed host list among the Holds of a cluster leaves the others in force."""
    bad = a_hold("bad", workers=WorkerSelector(hostlist="gpu-[1"))
    worker = pair(a_table(a_slurm_node(), a_pod(), a_node(), bad, a_hold()), KEY, Site())
    assert ids(worker) == ["hold/slurm/dimm"]
    assert "hostlist" in faults(bad)[0]


@pytest.mark.parametrize("deadline", ["9999999999999h", "0h9999999999999m"])
def test_a_deadline_beyond_reason_is_refused(deadline: str) -> None:
    """It would be beyond every calendar; the Hold says so and counts for nobody."""
    hold = a_hold(drain=Drain(deadline=deadline))
    assert "spec.drain.deadline" in faults(hold)[0]
    assert ids(a_worker(holds=[hold])) == []


def test_a_deadline_runs_from_the_holds_creation() -> None:
    """Not from when somebody first saw it."""
    view = view_of(a_hold(created_at=ago(100), drain=Drain(deadline="1m40s")))
    assert view is not None
    assert view.deadline == NOW


@pytest.mark.parametrize(
    ("fields", "act"),
    [
        ({"policy": DrainPolicy.WAIT}, DrainPolicy.WAIT),
        ({"policy": DrainPolicy.REQUEUE}, DrainPolicy.REQUEUE),
        ({"policy": DrainPolicy.CANCEL}, DrainPolicy.CANCEL),
        ({"deadline": ago(-1), "at_deadline": AtDeadline.CANCEL}, DrainPolicy.WAIT),
        ({"deadline": NOW, "at_deadline": AtDeadline.KEEP}, DrainPolicy.WAIT),
        ({"deadline": NOW, "at_deadline": AtDeadline.REQUEUE}, DrainPolicy.REQUEUE),
        ({"deadline": NOW, "at_deadline": AtDeadline.CANCEL}, DrainPolicy.CANCEL),
    ],
)
def test_a_hold_ends_jobs_by_its_policy_or_at_its_deadline(fields: dict[str, Any], act: DrainPolicy) -> None:
    """Waiting ends when the deadline has come, in the way the Hold says."""
    assert ends_jobs(a_view(**fields), NOW) is act
