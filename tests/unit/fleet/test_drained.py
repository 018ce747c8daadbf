"""Drained fails closed: only what is proven empty, behind a drain that was answered for today's holds."""

from itertools import combinations
from typing import Any

import pytest

from lockstep.contracts.policy import Policy
from lockstep.fleet.drained import gres_in_use, why_not_closed, why_not_drained
from lockstep.slurm import states
from tests.builders import (
    NOW,
    OURS,
    POLICY,
    a_desired,
    a_drained_worker,
    a_job,
    a_slurm_node,
    a_view,
    ago,
    wrote_drain,
    wrote_undrain,
)

HARMLESS = {
    "NOT_RESPONDING", "FAIL", "INVALID_REG", "MAINTENANCE", "RESERVED", "PLANNED", "BLOCKED", "EXTERNAL", "CLOUD",
    "DYNAMIC_NORM", "DYNAMIC_FUTURE", "POWERED_DOWN",
}  # fmt: skip
"""Flags that say nothing of work on the node, written down by hand."""


def every_state() -> list[tuple[str, tuple[str, ...]]]:
    """Every base state with every one and every two flags, known or not."""
    flags = [*states.FLAGS, "ZAP"]
    sets = [(), *((f,) for f in flags), *combinations(flags, 2)]
    return [(base, found) for base in [*states.BASES, "NOVEL"] for found in sets]


@pytest.mark.parametrize("down", [False, True], ids=["down counts not", "down counts"])
def test_only_an_idle_drained_node_without_unsafe_flags_is_drained(down: bool) -> None:
    """Over every base and every pair of flags, drained is exactly IDLE+DRAIN with harmless flags (DOWN by policy)."""
    policy = Policy(down_is_drained=down)
    safe = {"IDLE", *(("DOWN", "ERROR") if down else ())}
    for base, flags in every_state():
        worker = a_drained_worker(slurm=a_slurm_node(reason=OURS, base=base, flags=sorted({*flags, "DRAIN"})))
        expected = base in safe and set(flags) <= HARMLESS | {"DRAIN"}
        assert (not why_not_drained(worker, policy, NOW)) == expected, (base, flags)


def test_a_node_without_drain_is_never_drained() -> None:
    """Whatever else it shows."""
    for base, flags in every_state():
        if "DRAIN" not in flags:
            worker = a_drained_worker(slurm=a_slurm_node(reason=OURS, base=base, flags=list(flags)))
            assert why_not_drained(worker, Policy(down_is_drained=True), NOW), (base, flags)


@pytest.mark.parametrize(
    ("differs", "why_not"),
    [
        pytest.param({}, "", id="proven"),
        pytest.param({"slurm": None}, "does not know", id="Slurm does not know the node"),
        pytest.param({"slurm_as_of": None}, "cannot be read", id="nodes never read"),
        pytest.param({"slurm_as_of": ago(16)}, "cannot be read", id="nodes stale"),
        pytest.param({"jobs_as_of": None}, "cannot be read", id="jobs never read"),
        pytest.param({"jobs_as_of": ago(16)}, "cannot be read", id="jobs stale"),
        pytest.param({"jobs_as_of": ago(11)}, "jobs were not read since", id="jobs read before the node"),
        pytest.param({"slurm_as_of": ago(10)}, "only once", id="node read once"),
        pytest.param({"jobs": [a_job()]}, "job 42", id="running job"),
        pytest.param({"jobs": [a_job(states=["SUSPENDED"])]}, "job 42", id="suspended job on an idle node"),
        pytest.param({"slurm": a_slurm_node("IDLE+DRAIN", reason=OURS, alloc_cpus=1)}, "allocated", id="cpus"),
        pytest.param({"slurm": a_slurm_node("IDLE+DRAIN", reason=OURS, alloc_memory_mib=1)}, "allocated", id="memory"),
        pytest.param(
            {"slurm": a_slurm_node("IDLE+DRAIN", reason=OURS, gres_used="gpu:h100:2(IDX:0-1)")}, "allocated", id="gres"
        ),
        pytest.param({"slurm": a_slurm_node("IDLE+DRAIN", reason=OURS, read_at=None)}, "only once", id="no time"),
        pytest.param({"wrote": wrote_drain(drained_at=ago(1))}, "only once", id="not read since our answer"),
        pytest.param({"wrote": wrote_drain(drained_at=ago(2)), "jobs_as_of": ago(3)}, "jobs were", id="jobs before it"),
        pytest.param({"wrote": None}, "not answered", id="our DRAIN was never answered"),
        pytest.param({"wrote": wrote_drain(episode=0)}, "not answered", id="our DRAIN was for earlier holds"),
        pytest.param({"wrote": wrote_undrain(episode=1)}, "not answered", id="we lifted it"),
        pytest.param({"desired": a_desired()}, "not answered", id="no hold wants it: it is being lifted"),
        pytest.param({"desired": None}, "not answered", id="nothing is decided"),
    ],
)
def test_each_gap_in_the_proof_says_what_is_missing(differs: dict[str, Any], why_not: str) -> None:
    """A worker is drained with the whole proof, and names the first thing that lacks."""
    found = why_not_drained(a_drained_worker(**differs), POLICY, NOW)
    assert why_not in found
    assert bool(found) == bool(why_not)


def test_an_administrators_drain_needs_no_answer_of_ours() -> None:
    """A foreign DRAIN that two reads show is a drain."""
    worker = a_drained_worker(state="IDLE+DRAIN", reason="bad DIMM", wrote=None, desired=a_desired(a_view()))
    assert why_not_drained(worker, POLICY, NOW) == ""


def test_a_drain_seen_before_our_undrain_proves_nothing() -> None:
    """A hold that begins while our UNDRAIN of the last one is not yet read finds no drained worker."""
    worker = a_drained_worker(wrote=wrote_undrain(undrained_at=ago(0.5)), desired=a_desired(a_view(), episode=2))
    assert why_not_drained(worker, POLICY, NOW)


def test_other_words_do_not_undo_what_was_proven() -> None:
    """A content read once keeps a proven drain; it does not prove one."""
    worker = a_drained_worker(slurm=a_slurm_node("IDLE+DRAIN", reason=OURS, comment="new", read_at=ago(1)))
    assert why_not_closed(worker, POLICY, NOW) == ""
    assert why_not_drained(worker, POLICY, NOW)


def test_a_flag_that_the_settings_allow_holds_nothing_up() -> None:
    """An unknown flag blocks, and passes once it is listed."""
    worker = a_drained_worker(slurm=a_slurm_node("IDLE+DRAIN+ZAP", reason=OURS))
    assert "ZAP" in why_not_drained(worker, POLICY, NOW)
    assert why_not_drained(worker, Policy(allowed_flags=["ZAP"]), NOW) == ""


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ("(null)", 0),
        ("gpu:h100:0(IDX:N/A)", 0),
        ("gpu:h100:2(IDX:0-1),nic:1", 3),
        ("gpu:8", 8),
        ("shard:h100:4(2/8,2/8)", 4),
        ("bandwidth:2K", 2),
    ],
)
def test_generic_resources_in_use_are_counted(text: str, count: int) -> None:
    """Typed, indexed, shared and suffixed counts."""
    assert gres_in_use(text) == count
