"""The rules that must hold of every worker, each broken once; nothing is said of what cannot be read."""

import pytest

from lockstep.fleet.invariants import broken
from lockstep.fleet.worker import Worker
from tests.builders import NOW, OURS, POLICY, a_desired, a_drained_worker, a_pod, a_slurm_node, a_view, a_worker, ago


def rules(worker: Worker) -> list[str]:
    """The rules that the worker breaks."""
    return [rule for rule, _ in broken(worker, POLICY, NOW)]


def test_a_worker_in_order_breaks_no_rule() -> None:
    """Idle in service, and drained and held, are both in order."""
    assert rules(a_worker(desired=a_desired())) == []
    assert rules(a_drained_worker(pod=a_pod(protected=False))) == []


def test_a_pod_without_protection_is_found() -> None:
    """Unless the worker is proven drained."""
    assert rules(a_worker(desired=a_desired(), pod=a_pod(protected=False))) == ["protected-until-drained"]


def test_a_held_worker_that_slurm_offers_is_found() -> None:
    """The hold stands and the door is open."""
    assert "held-is-drained" in rules(a_worker(desired=a_desired(a_view())))


def test_a_drain_of_ours_that_nobody_wants_is_found() -> None:
    """No hold stands and the door is shut."""
    drained = a_slurm_node("IDLE+DRAIN", reason=OURS)
    assert rules(a_worker(desired=a_desired(), slurm=drained)) == ["drain-has-a-hold"]


@pytest.mark.parametrize(
    ("state", "stuck"),
    [
        pytest.param("IDLE+CLOUD+POWERED_DOWN+NOT_RESPONDING", True, id="switched off and does not answer"),
        pytest.param("DOWN+NOT_RESPONDING", True, id="down by slurmctld"),
        pytest.param("UNKNOWN", True, id="never heard of"),
        pytest.param("IDLE+POWERING_UP", True, id="a transition that takes too long"),
        pytest.param("IDLE+ZAP", True, id="a flag that nobody knows"),
        pytest.param("IDLE+CLOUD+POWERED_DOWN", False, id="switched off in good order"),
        pytest.param("MIXED", False, id="works"),
        pytest.param("IDLE", False, id="may be given work"),
    ],
)
def test_a_worker_in_limbo_is_told_after_a_while(state: str, stuck: bool) -> None:
    """Neither at work, nor to be given work, nor held by anybody: capacity that leaks away unseen."""
    reason = "Not responding" if "DOWN" in state else ""
    old, new = (
        a_worker(desired=a_desired(), slurm=a_slurm_node(state, reason=reason, read_at=ago(age))) for age in (601, 60)
    )
    assert ("not-in-limbo" in rules(old)) is stuck
    assert "not-in-limbo" not in rules(new)


def test_nothing_is_said_of_what_cannot_be_read() -> None:
    """A silent source is told of by its own event."""
    assert rules(a_worker(desired=a_desired(), pod=a_pod(protected=False), slurm_as_of=ago(60))) == []
