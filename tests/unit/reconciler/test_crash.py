"""A crash after every write: from any mixture of the two systems, single steps lead to a state that needs no more."""

from datetime import datetime
from functools import cache
from itertools import islice

import msgspec
import pytest

from lockstep.contracts.policy import MirrorCordon as Mirror
from lockstep.contracts.policy import Policy, Protect
from lockstep.fleet.holds import projected, standing
from lockstep.fleet.invariants import broken
from lockstep.fleet.ready import why_not_ready
from lockstep.fleet.worker import Worker
from lockstep.reconciler.decide import decide
from lockstep.reconciler.model import DrainNode, LiftMirror, MirrorCordon, UndrainNode, Unprotect
from lockstep.slurm import reasons, states
from tests.unit.reconciler.imagine import SLURM, Taken, every_view, next_step, path_of, read

POLICIES = [Policy(mirror=mirror, protect=protect) for mirror in Mirror for protect in Protect]
STRICT = Policy(mirror=Mirror.CORDON)


@cache
def paths(slurm: str) -> list[tuple[str, Worker, list[Taken], Worker, datetime]]:
    """Where each view leads under the strictest policy."""
    return [(name, view, *path_of(view, STRICT)) for name, view in every_view(slurm)]


def in_the_way(worker: Worker) -> list[str]:
    """Why the worker may not come back into service, as one sees it without Lockstep."""
    slurm, pod, node = worker.slurm, worker.pod, worker.node
    reasons_why = {
        "a Hold stands": bool(worker.holds),
        "no pod": pod is None,
        "pod not ready": pod is not None and not pod.ready,
        "pod terminating": pod is not None and pod.deleting_since is not None,
        "no node": node is None,
        "node cordoned": node is not None and node.unschedulable and node.cordoned_by != "lockstep",
        "slurmd silent": slurm is None or "NOT_RESPONDING" in slurm.flags or slurm.base == "DOWN",
    }
    return [why for why, so in reasons_why.items() if so]


def check(taken: Taken, policy: Policy) -> None:
    """What no step may ever do."""
    slurm, node, pod, step = taken.before.slurm, taken.before.node, taken.before.pod, taken.step
    match step:
        case UndrainNode():
            assert slurm is not None
            assert pod is not None
            assert "DRAIN" in slurm.flags
            assert slurm.reason.startswith("lockstep: ")
            assert in_the_way(taken.before) == []
            assert pod.protected or policy.protect is not Protect.UNDRAINED
        case DrainNode():
            assert slurm is not None
            theirs = {"DRAIN", "FAIL"} & {*slurm.flags} or slurm.base == "DOWN"
            assert not theirs or slurm.reason.startswith(("lockstep: ", "Not responding"))
            assert "FAIL" not in slurm.flags
        case Unprotect():
            assert slurm is not None
            assert slurm.base == "IDLE"
            assert policy.protect is Protect.BUSY or "DRAIN" in slurm.flags
            assert policy.protect is Protect.BUSY or taken.before.desired is not None
        case LiftMirror(cordoned=True):
            assert node is not None
            assert node.cordoned_by == "lockstep"
        case MirrorCordon():
            assert node is not None
            assert policy.mirror is Mirror.CORDON
            assert not node.mirror_mark


def check_end(worker: Worker, policy: Policy, now: datetime) -> None:
    """What must be so when nothing is left to do."""
    assert broken(worker, policy, now) == []
    slurm, desired = worker.slurm, worker.desired
    assert desired is not None or (slurm is None and worker.pod is None)
    if slurm is None or desired is None:
        return
    ours = states.is_drain(slurm.base, slurm.flags) and reasons.is_ours(slurm.reason)
    if projected(standing(worker, policy, now)):
        assert not states.is_schedulable(slurm.base, slurm.flags)
        assert not ours or reasons.same(slurm.reason, desired.words)
        assert ours or reasons.is_ours(slurm.reason) or slurm.reason in {"smoke", "bad DIMM", ""}
    elif ours:
        assert why_not_ready(worker, policy, now)
    if worker.node is not None and worker.node.in_service is not None:
        assert worker.node.in_service.message == desired.words


def check_all(taken: list[Taken], end: Worker, now: datetime, policy: Policy, name: str) -> None:
    """Every step, and the end."""
    try:
        for each in taken:
            check(each, policy)
        check_end(end, policy, now)
    except AssertionError as error:
        raise AssertionError(f"{name}: {[type(each.step).__name__ for each in taken]}") from error


@pytest.mark.parametrize("slurm", SLURM)
def test_settles_wherever_it_was_interrupted(slurm: str) -> None:
    """Every view ends in few steps, none of them forbidden, and all rules hold at the end."""
    for name, _, taken, end, now in paths(slurm):
        check_all(taken, end, now, STRICT, name)


@pytest.mark.parametrize("slurm", SLURM)
def test_settles_although_the_drain_service_is_late(slurm: str) -> None:
    """The reconciler goes on with what was wanted before, until nothing is left to do for it."""
    for name, view in islice(every_view(slurm), 0, None, 5):
        check_all(*path_of(view, STRICT, drain_lags=True), STRICT, name)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: f"protect {p.protect}, mirror {p.mirror}")
def test_settles_under_every_policy(policy: Policy) -> None:
    """The same, for fewer views."""
    for slurm in SLURM:
        for name, view in islice(every_view(slurm), 0, None, 11):
            check_all(*path_of(view, policy), policy, name)


@pytest.mark.parametrize("slurm", SLURM)
def test_a_write_that_is_answered_and_not_read_yet_is_not_undone_or_repeated(slurm: str) -> None:
    """The old facts and the memory of the write ask for no other write to Slurm."""
    for name, _, path, _, _ in paths(slurm):
        for each in path:
            if isinstance(each.step, DrainNode | UndrainNode):
                unread = msgspec.structs.replace(each.before, wrote=each.after.wrote)
                again = [
                    a for a in decide(unread, STRICT, each.at) if isinstance(a, DrainNode | UndrainNode | Unprotect)
                ]
                assert again == [], (name, each.step)


@pytest.mark.parametrize("what", ["wrote", "desired"])
@pytest.mark.parametrize("slurm", SLURM)
def test_what_was_lost_after_any_write_is_made_good(slurm: str, what: str) -> None:
    """From each point between, without the memory of our writes or without the desired state."""
    for name, _, path, _, _ in paths(slurm)[::13]:
        for taken in path:
            if isinstance(taken.step, DrainNode | UndrainNode | Unprotect):
                bare = msgspec.structs.replace(taken.after, **{what: None})
                check_all(*path_of(bare, STRICT), STRICT, f"{name}, after {type(taken.step).__name__}")


@pytest.mark.parametrize("silent", ["kube_as_of", "slurm_as_of"])
@pytest.mark.parametrize("slurm", SLURM)
def test_while_a_source_is_silent_nothing_is_opened(slurm: str, silent: str) -> None:
    """No UNDRAIN, no cordon lifted; and without Slurm no pod is let go and no job ended."""
    for name, _, path, _, _ in paths(slurm):
        for each in path:
            stale = msgspec.structs.replace(read(each.before, each.at), **{silent: None})
            step = next_step(stale, STRICT, each.at)
            assert not isinstance(step, UndrainNode), name
            if silent == "kube_as_of":
                assert not isinstance(step, LiftMirror | MirrorCordon), name
            else:
                assert not isinstance(step, Unprotect | DrainNode), name
