"""When a worker's pod may be evicted, by each policy."""

from typing import Any

import pytest

from lockstep.contracts.policy import Policy
from lockstep.contracts.policy import Protect as When
from lockstep.fleet.worker import Worker
from lockstep.reconciler.decide import decide
from lockstep.reconciler.model import Protect, Unprotect
from tests.builders import (
    NOW,
    OURS,
    a_desired,
    a_drained_worker,
    a_hold,
    a_job,
    a_pod,
    a_slurm_node,
    a_view,
    a_worker,
    ago,
    wrote_drain,
    wrote_undrain,
)


def protected(worker: Worker, when: When, *, before: bool) -> bool:
    """Whether the pod is protected after the decision, when it was (or not) before."""
    pod = a_pod(protected=before) if worker.pod is None else worker.pod
    assert pod.protected == before
    for action in decide(worker, Policy(protect=when, conditions=False), NOW):
        if isinstance(action, Protect | Unprotect):
            assert (action.uid, isinstance(action, Protect)) == (pod.uid, not before)
            return isinstance(action, Protect)
    return before


CASES: dict[str, tuple[dict[str, Any], bool, bool]] = {
    "in service and idle": ({}, True, False),
    "in service and busy": ({"state": "MIXED"}, True, True),
    "in service, a job completes": ({"state": "IDLE+COMPLETING"}, True, True),
    "idle, and memory of a suspended job is allocated": ({"slurm": a_slurm_node(alloc_memory_mib=1)}, True, True),
    "idle, with a flag that nobody knows": ({"state": "IDLE+ZAP"}, True, True),
    "idle, Slurm silent": ({"slurm_as_of": ago(16)}, True, True),
    "DOWN": ({"state": "DOWN"}, True, True),
    "nothing is decided yet": ({"desired": None}, True, False),
}
DRAINED: dict[str, tuple[dict[str, Any], bool, bool]] = {
    "proven drained": ({}, False, False),
    "draining": ({"state": "MIXED+DRAIN"}, True, True),
    "a suspended job holds it": ({"jobs": [a_job(states=["SUSPENDED"])]}, True, True),
    "held, and Slurm does not show DRAIN": ({"state": "IDLE"}, True, False),
    "Slurm silent": ({"slurm_as_of": ago(16)}, True, True),
    "our UNDRAIN is not read yet": ({"wrote": wrote_undrain(undrained_at=ago(0.5), episode=1)}, True, False),
    "the DRAIN is that of earlier holds": ({"wrote": wrote_drain(episode=0)}, True, False),
    "drained, and nothing in Kubernetes wants it": (
        {"state": "IDLE+DRAIN", "reason": "bad", "desired": a_desired(a_view(id="slurm/gpu-7")), "holds": []},
        True,
        False,
    ),
    "drained by an administrator, and held": ({"state": "IDLE+DRAIN", "reason": "bad", "wrote": None}, False, False),
}


@pytest.mark.parametrize("before", [True, False], ids=["was protected", "was not"])
@pytest.mark.parametrize(
    ("build", "differs", "undrained", "busy"),
    [
        *[pytest.param(a_worker, *case, id=name) for name, case in CASES.items()],
        *[pytest.param(a_drained_worker, *case, id=name) for name, case in DRAINED.items()],
    ],
)
def test_protection_follows_the_policy(
    build: Any, differs: dict[str, Any], undrained: bool, busy: bool, before: bool
) -> None:
    """`undrained`: until proven drained. `busy`: while work may be there. `off`: the label is left alone."""
    known = {"desired": a_desired()} if build is a_worker else {}
    worker = build(**(known | differs | {"pod": a_pod(protected=before)}))
    assert protected(worker, When.UNDRAINED, before=before) == undrained
    assert protected(worker, When.OFF, before=before) == before
    if worker.desired is not None or not before:
        assert protected(worker, When.BUSY, before=before) == busy


def test_a_second_reading_is_needed_to_let_go_but_not_to_stay_so() -> None:
    """What was proven is not doubted because a comment or the words changed."""
    once = a_slurm_node("IDLE+DRAIN", reason=OURS, read_at=ago(1))
    assert protected(a_drained_worker(slurm=once), When.UNDRAINED, before=True)
    assert not protected(a_drained_worker(slurm=once, pod=a_pod(protected=False)), When.UNDRAINED, before=False)


def test_every_living_pod_that_claims_the_worker_is_protected() -> None:
    """It is not known which of two runs the slurmd; one that goes or has ended is left alone."""
    others = [
        a_pod(name="two", uid="2", protected=False),
        a_pod(name="going", uid="3", protected=False, deleting_since=ago(1)),
        a_pod(name="ended", uid="4", protected=False, phase="Failed"),
    ]
    worker = a_worker(pod=a_pod(protected=False), other_pods=others, desired=a_desired())
    found = decide(worker, Policy(conditions=False), NOW)
    assert [a.uid for a in found if isinstance(a, Protect)] == ["pod-1", "2"]


def test_a_pod_whose_slurmd_was_never_seen_is_not_protected_yet() -> None:
    """Protection begins with the first registration; what is protected stays so."""
    worker = a_worker(slurm=None, pod=a_pod(protected=False), desired=a_desired())
    assert not protected(worker, When.UNDRAINED, before=False)
    assert protected(a_worker(slurm=None, desired=a_desired(a_view()), holds=[a_hold()]), When.UNDRAINED, before=True)
