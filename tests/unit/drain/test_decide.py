"""What the drain service wants of a worker, and what it tells of it."""

from typing import Any

import msgspec
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
from lockstep.contracts.facts import Desired, Progress
from lockstep.contracts.hold import AtDeadline, Drain, DrainPolicy, HoldClass
from lockstep.drain.decide import decide, steps
from lockstep.drain.model import Decision
from lockstep.fleet.worker import Worker
from tests.builders import (
    HOST,
    NOW,
    OURS,
    POLICY,
    a_desired,
    a_drained_worker,
    a_hold,
    a_job,
    a_node,
    a_pod,
    a_slurm_node,
    a_view,
    a_worker,
    ago,
    wrote_drain,
    wrote_undrain,
)


def decided(worker: Worker) -> Decision:
    """The decision, which there must be."""
    decision = decide(worker, POLICY, NOW)
    assert decision is not None
    return decision


def wanted(worker: Worker) -> Desired:
    """What is wanted, decided now or before."""
    decision = decide(worker, POLICY, NOW)
    found = decision.desired if decision else worker.desired
    assert found is not None
    return found


def test_a_hold_takes_a_worker_out_of_service() -> None:
    """With its words, a first episode and an event."""
    decision = decided(a_worker(holds=[a_hold()], desired=a_desired()))
    desired = decision.desired
    assert (desired.in_service, desired.words, desired.episode) == (False, OURS, 1)
    assert [type(event) for event in decision.events] == [HoldPlaced, DrainStarted]


def test_nothing_new_is_not_said_again() -> None:
    """The same worker, decided twice, is silent the second time."""
    worker = a_worker(holds=[a_hold()])
    again = msgspec.structs.replace(worker, desired=decided(worker).desired)
    assert decide(again, POLICY, NOW) is None


@pytest.mark.parametrize("differs", [{"kube_as_of": None}, {"slurm_as_of": None}])
def test_nothing_is_wanted_before_both_systems_were_read(differs: dict[str, Any]) -> None:
    """A first decision on half of the facts would lift what the other half holds."""
    assert decide(a_worker(**differs), POLICY, NOW) is None


def test_the_first_of_two_holds_to_end_frees_nobody() -> None:
    """The other stands, in the same stretch without service."""
    worker = a_drained_worker(holds=[a_hold("two")], desired=a_desired(a_view(), a_view("two")))
    decision = decided(worker)
    assert [hold.id for hold in decision.desired.holds] == ["hold/slurm/two"]
    assert (decision.desired.in_service, decision.desired.episode) == (False, 1)
    released = [event for event in decision.events if isinstance(event, HoldReleased)]
    assert released[0].standing == ["hold/slurm/two"]


def test_a_hold_that_expired_says_so() -> None:
    """Its end is told apart from a release by hand."""
    hold = a_hold(expires_at=ago(1))
    view = a_view(until=ago(1))
    events = decided(a_worker(holds=[hold], desired=a_desired(view))).events
    assert [type(event) for event in events] == [HoldExpired]


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (Progress.NONE, Progress.WAITING, [DrainStarted]),
        (Progress.NONE, Progress.DRAINED, [DrainStarted, DrainDone]),
        (Progress.NONE, Progress.OVERDUE, [DrainStarted, DrainOverdue]),
        (Progress.WAITING, Progress.DRAINING, [DrainWaiting]),
        (Progress.DRAINING, Progress.DRAINED, [DrainDone]),
        (Progress.DRAINING, Progress.OVERDUE, [DrainOverdue]),
        (Progress.OVERDUE, Progress.DRAINED, [DrainDone]),
        (Progress.DRAINED, Progress.DRAINING, [DrainWaiting]),
        (Progress.DRAINING, Progress.NONE, [DrainCancelled]),
        (Progress.OVERDUE, Progress.NONE, [DrainCancelled]),
        (Progress.DRAINED, Progress.NONE, [DrainEnded]),
    ],
)
def test_each_step_of_a_drain_has_an_event_of_its_own(
    before: Progress, after: Progress, told: list[type[Event]]
) -> None:
    """Automation subscribes to `drain.drained` and gets that alone."""
    assert steps(before, after) == told


def test_a_foreign_drain_is_respected_and_told_once() -> None:
    """It counts as a hold of its own, and needs no episode of ours."""
    worker = a_worker(state="IDLE+DRAIN", reason="bad DIMM", desired=a_desired())
    decision = decided(worker)
    assert (decision.desired.words, decision.desired.episode) == ("bad DIMM", 0)
    assert [type(event) for event in decision.events] == [ForeignDrainRespected, DrainStarted, DrainDone]
    assert decide(msgspec.structs.replace(worker, desired=decision.desired), POLICY, NOW) is None


@pytest.mark.parametrize(
    ("differs", "kept"),
    [
        pytest.param({"kube_as_of": ago(16)}, ["hold/slurm/dimm"], id="Kubernetes silent"),
        pytest.param({"slurm_as_of": ago(16)}, ["slurm/gpu-7"], id="Slurm silent"),
        pytest.param({"kube_as_of": ago(16), "slurm_as_of": ago(16)}, ["slurm/gpu-7", "hold/slurm/dimm"], id="both"),
        pytest.param({}, [], id="both alive"),
    ],
)
def test_silence_ends_no_hold(differs: dict[str, Any], kept: list[str]) -> None:
    """What a source said last stands while it cannot be read."""
    before = a_desired(a_view(id="slurm/gpu-7", hold_class=HoldClass.SLURM), a_view())
    assert [hold.id for hold in wanted(a_worker(desired=before, **differs)).holds] == kept


def test_episodes_are_counted_by_the_holds_that_need_our_drain() -> None:
    """A hold after none begins one; a second one does not; nor does Slurm's own."""
    none, one = a_desired(episode=4), a_desired(a_view(), episode=4)
    assert wanted(a_worker(holds=[a_hold()], desired=none)).episode == 5
    assert wanted(a_worker(holds=[a_hold(), a_hold("two")], desired=one)).episode == 4
    assert wanted(a_worker(desired=one)).episode == 4
    assert wanted(a_worker(state="IDLE+DRAIN", reason="bad", desired=none)).episode == 4


def test_an_episode_is_never_counted_twice_even_if_the_desired_state_was_lost() -> None:
    """What the reconciler wrote remembers the number."""
    assert wanted(a_worker(holds=[a_hold()], wrote=wrote_drain(episode=7))).episode == 8


@pytest.mark.parametrize(
    ("differs", "progress"),
    [
        pytest.param({}, Progress.DRAINED, id="proven"),
        pytest.param({"state": "MIXED+DRAIN"}, Progress.DRAINING, id="jobs run"),
        pytest.param({"state": "IDLE"}, Progress.WAITING, id="Slurm does not show DRAIN"),
        pytest.param({"slurm": None}, Progress.WAITING, id="Slurm does not know it"),
        pytest.param({"slurm_as_of": ago(16)}, Progress.DRAINING, id="Slurm is silent: not known to be drained"),
        pytest.param({"wrote": None}, Progress.DRAINING, id="our DRAIN is not answered"),
        pytest.param({"wrote": wrote_undrain(undrained_at=ago(0.5))}, Progress.DRAINING, id="UNDRAIN is on its way"),
    ],
)
def test_progress_is_what_is_proven(differs: dict[str, Any], progress: Progress) -> None:
    """Drained needs the whole proof; everything else says what lacks."""
    before = a_desired(a_view(), progress=Progress.DRAINED)
    desired = wanted(a_drained_worker(**({"desired": before} | differs)))
    assert desired.progress is progress
    assert bool(desired.why_not) == (progress is not Progress.DRAINED)


def test_a_new_hold_right_after_the_last_ended_is_not_drained_yet() -> None:
    """The DRAIN that Slurm still shows is that of the last one."""
    worker = a_drained_worker(desired=a_desired(episode=1), wrote=wrote_drain(episode=1))
    desired = wanted(worker)
    assert desired.episode == 2
    assert desired.progress is Progress.DRAINING


def test_a_worker_proven_drained_stays_so_when_a_second_hold_changes_the_words() -> None:
    """The words are written anew and read once; nothing was let in."""
    before = a_desired(a_view(), a_view("two"), progress=Progress.DRAINED)
    worker = a_drained_worker(
        slurm=a_slurm_node("IDLE+DRAIN", reason=before.words, read_at=ago(1)),
        holds=[a_hold(), a_hold("two")],
        desired=before,
        wrote=wrote_drain(words=before.words, drained_at=ago(2)),
    )
    assert wanted(worker).progress is Progress.DRAINED


def late(**fields: Any) -> dict[str, Any]:
    """A worker that drains behind a Hold whose deadline has passed."""
    hold = a_hold(created_at=ago(60), drain=Drain(deadline="30s", **fields))
    return {"state": "MIXED+DRAIN", "holds": [hold], "jobs": [a_job(), a_job(43, can_requeue=False)]}


def test_a_deadline_that_passed_is_said() -> None:
    """The drain is overdue, and says which jobs it waits for."""
    desired = wanted(a_drained_worker(**late()))
    assert desired.progress is Progress.OVERDUE
    assert [job.id for job in desired.waiting_for] == [42, 43]
    assert desired.job_acts == []


@pytest.mark.parametrize(
    ("drain", "acts"),
    [
        (Drain(policy=DrainPolicy.CANCEL), [42, 43]),
        (Drain(policy=DrainPolicy.REQUEUE), [42]),
        (Drain(), []),
        (Drain(deadline="30s", at_deadline=AtDeadline.CANCEL), [42, 43]),
        (Drain(deadline="30s", at_deadline=AtDeadline.REQUEUE), [42]),
        (Drain(deadline="90s", at_deadline=AtDeadline.CANCEL), []),
    ],
)
def test_jobs_are_ended_by_policy_and_deadline(drain: Drain, acts: list[int]) -> None:
    """A job that may not be requeued is not, and nothing is done before its time."""
    worker = a_drained_worker(**(late() | {"holds": [a_hold(created_at=ago(60), drain=drain)]}))
    assert [act.job_id for act in wanted(worker).job_acts] == acts


@pytest.mark.parametrize(
    "differs",
    [
        pytest.param({"state": "MIXED"}, id="the door is open"),
        pytest.param({"slurm_as_of": ago(16)}, id="Slurm is silent"),
        pytest.param({"jobs": [a_job(states=["COMPLETING"])]}, id="the job is ending"),
    ],
)
def test_no_job_is_ended_before_the_door_is_closed(differs: dict[str, Any]) -> None:
    """A requeued job would start on the same worker again."""
    worker = a_drained_worker(**(late(at_deadline=AtDeadline.CANCEL) | differs))
    assert wanted(worker).job_acts == []


def test_where_a_worker_ran_is_remembered() -> None:
    """Its cordon stands while its pod is away, and it is known to need a pod."""
    cordoned = a_node(unschedulable=True, cordoned_by="kubectl")
    first = wanted(a_drained_worker(holds=[], node=cordoned))
    assert (first.kube_node, first.had_pod) == (HOST, True)
    away = a_drained_worker(holds=[], pod=None, node=cordoned, desired=first)
    assert [hold.id for hold in wanted(away).holds] == [f"cordon/{HOST}"]
    assert wanted(away).had_pod


def test_a_worker_that_neither_system_has_is_forgotten_unless_a_hold_is_about_it() -> None:
    """A Hold, or a cordon where it ran last, keeps it in mind; and nobody is made up because a Hold names him."""
    gone = a_worker(slurm=None, pod=None, desired=a_desired())
    assert wanted(gone).gone
    assert not wanted(msgspec.structs.replace(gone, holds=[a_hold()])).gone
    assert decide(msgspec.structs.replace(gone, holds=[a_hold()], desired=None), POLICY, NOW) is None
    assert decide(msgspec.structs.replace(gone, slurm_as_of=ago(16)), POLICY, NOW) is None


def test_a_pod_that_terminates_closes_the_door() -> None:
    """Slurm must not offer what Kubernetes is taking."""
    desired = wanted(a_worker(pod=a_pod(deleting_since=ago(1)), desired=a_desired()))
    assert not desired.in_service
    assert desired.words == "lockstep: kubernetes: pod is terminating"
