import ast
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.slurm import states
from lockstep.slurm.states import NodePhase

ELSEWHERE = {
    "libs/lockstep/cli/get.py": "the head of a column",
    "libs/lockstep/kube/conditions.py": "the pod conditions that other software reads are named after Slurm's words",
}
ROOT = Path(__file__).parents[3]

ORACLE = [
    # words, base, phase, schedulable
    (["IDLE"], "IDLE", "idle", True),
    (["IDLE", "DYNAMIC_NORM"], "IDLE", "idle", True),
    (["IDLE", "CLOUD"], "IDLE", "idle", True),
    (["IDLE", "RESERVED"], "IDLE", "idle", True),
    (["IDLE", "PLANNED"], "IDLE", "idle", True),
    ("idle-", "IDLE", "idle", True),
    (["IDLE", "EXTERNAL"], "IDLE", "idle", True),
    (["IDLE", "BLOCKED"], "IDLE", "idle", False),
    (["IDLE", "MAINTENANCE"], "IDLE", "idle", False),
    ("idle$", "IDLE", "idle", False),
    (["IDLE", "NOT_RESPONDING"], "IDLE", "unknown", False),
    ("idle*", "IDLE", "unknown", False),
    (["ALLOCATED"], "ALLOCATED", "busy", True),
    (["MIXED"], "MIXED", "busy", True),
    ("mixed-", "MIXED", "busy", True),
    (["MIXED", "NOT_RESPONDING"], "MIXED", "busy", False),
    (["IDLE", "COMPLETING"], "IDLE", "busy", False),
    (["IDLE", "DRAIN"], "IDLE", "drained", False),
    ("IDLE+DRAIN", "IDLE", "drained", False),
    ("IDLE+DRAIN+DYNAMIC_NORM", "IDLE", "drained", False),
    (["IDLE", "DRAIN", "NOT_RESPONDING"], "IDLE", "drained", False),
    (["ALLOCATED", "DRAIN"], "ALLOCATED", "draining", False),
    (["MIXED", "DRAIN"], "MIXED", "draining", False),
    (["IDLE", "DRAIN", "COMPLETING"], "IDLE", "draining", False),
    (["IDLE", "DRAIN", "UNDRAIN"], "IDLE", "idle", False),
    (["MIXED", "DRAIN", "RESUME"], "MIXED", "busy", False),
    (["IDLE", "DRAIN", "INVALID_REG"], "IDLE", "drained", False),
    (["IDLE", "INVALID_REG"], "IDLE", "down", False),
    (["IDLE", "FAIL"], "IDLE", "down", False),
    (["MIXED", "FAIL"], "MIXED", "draining", False),
    (["DOWN"], "DOWN", "down", False),
    ("down*", "DOWN", "down", False),
    (["DOWN", "DRAIN"], "DOWN", "down", False),
    (["ERROR"], "ERROR", "down", False),
    (["IDLE", "CLOUD", "POWERED_DOWN", "NOT_RESPONDING"], "IDLE", "power", False),
    ("idle~", "IDLE", "power", False),
    ("idle#", "IDLE", "power", False),
    ("idle%", "IDLE", "power", False),
    (["MIXED", "POWER_DOWN"], "MIXED", "busy", False),
    ("mixed!", "MIXED", "busy", False),
    (["MIXED", "DRAIN", "POWER_DRAIN"], "MIXED", "draining", False),
    (["IDLE", "DRAIN", "POWER_DOWN_ASAP"], "IDLE", "power", False),
    (["DOWN", "REBOOT_ISSUED"], "DOWN", "power", False),
    ("down^", "DOWN", "power", False),
    (["ALLOCATED", "REBOOT_REQUESTED"], "ALLOCATED", "busy", False),
    ("alloc@", "ALLOC", "unknown", False),
    (["IDLE", "REBOOT_REQUESTED"], "IDLE", "power", False),
    (["FUTURE"], "FUTURE", "unknown", False),
    (["UNKNOWN", "NOT_RESPONDING"], "UNKNOWN", "unknown", False),
    (["INVALID"], "INVALID", "unknown", False),
    ([], "UNKNOWN", "unknown", False),
    (["FUTURE_THING"], "FUTURE_THING", "unknown", False),
    (["IDLE", "ZAP"], "IDLE", "unknown", False),
    (["IDLE", "DRAIN", "ZAP"], "IDLE", "draining", False),
]


@pytest.mark.parametrize(("words", "base", "phase", "schedulable"), ORACLE, ids=str)
def test_each_combination_has_its_row(words: str | list[str], base: str, phase: str, *, schedulable: bool) -> None:
    """Base, phase and whether Slurm places work there, for every combination that was met or is documented."""
    seen, flags = states.split(words)
    assert seen == base
    assert states.phase_of(seen, flags) == phase
    assert states.is_schedulable(seen, flags) is schedulable


@pytest.mark.parametrize("shape", [["IDLE", "DRAIN"], ["DRAIN", "IDLE"], "IDLE+DRAIN", "idle+drain", ["IDLE+DRAIN"]])
def test_all_shapes_of_one_state_are_one(shape: str | list[str]) -> None:
    """Order, case and form of the words do not matter."""
    assert states.split(shape) == ("IDLE", ["DRAIN"])


def test_an_unknown_flag_is_unsafe_until_it_is_allowed() -> None:
    """IDLE+DRAIN+ZAP is not drained and not safe; with ZAP allowed by the settings it is both."""
    base, flags = states.split(["IDLE", "DRAIN", "ZAP"])
    assert states.unknown_flags(flags) == ["ZAP"]
    assert states.unsafe_flags(flags) == ["ZAP"]
    assert states.phase_of(base, flags) is not NodePhase.DRAINED
    assert states.unknown_flags(flags, allow=["ZAP"]) == []
    assert states.unsafe_flags(flags, allow=["ZAP"]) == []
    assert states.phase_of(base, flags, allow=["ZAP"]) is NodePhase.DRAINED


def test_an_unknown_base_is_never_drained() -> None:
    """A base state that nobody here knows says nothing about work."""
    assert states.phase_of("HIBERNATING", ["DRAIN"]) is NodePhase.UNKNOWN


@pytest.mark.parametrize("flag", ["COMPLETING", "POWERING_DOWN", "POWER_DRAIN", "REBOOT_ISSUED", "REBOOT_CANCELED"])
def test_work_power_and_reboot_are_unsafe(flag: str) -> None:
    """While one of these stands nothing is done to the machine."""
    assert states.unsafe_flags([flag, "DRAIN", "DYNAMIC_NORM"]) == [flag]


def test_what_only_describes_a_node_is_safe() -> None:
    """Where a node comes from and which reservation it is in are no danger."""
    assert states.unsafe_flags(["DRAIN", "CLOUD", "DYNAMIC_NORM", "RESERVED", "MAINTENANCE", "NOT_RESPONDING"]) == []


def test_undrain_wins_over_drain() -> None:
    """A drain that is being lifted is none."""
    assert states.is_drain("IDLE", ["DRAIN"])
    assert not states.is_drain("IDLE", ["DRAIN", "UNDRAIN"])
    assert not states.is_drain("IDLE", ["DRAIN", "RESUME"])


@pytest.mark.parametrize(
    ("predicate", "yes", "no"),
    [
        (states.is_busy, ("IDLE", ["COMPLETING"]), ("IDLE", ["DRAIN"])),
        (states.is_down, ("DOWN", []), ("IDLE", ["FAIL"])),
        (states.is_idle, ("IDLE", ["DRAIN"]), ("IDLE", ["COMPLETING"])),
        (states.is_fail, ("IDLE", ["FAIL"]), ("DOWN", [])),
        (states.has_reason, ("IDLE", ["FAIL"]), ("IDLE", ["MAINTENANCE"])),
        (states.is_responding, ("IDLE", []), ("IDLE", ["NOT_RESPONDING"])),
        (states.is_registered, ("IDLE", []), ("IDLE", ["INVALID_REG"])),
        (states.is_registered, ("DOWN", []), ("FUTURE", [])),
        (states.is_power_transitional, ("IDLE", ["POWERING_UP"]), ("IDLE", ["POWERED_DOWN"])),
        (states.is_reboot_transitional, ("IDLE", ["REBOOT_CANCELED"]), ("IDLE", ["DRAIN"])),
    ],
)
def test_each_predicate_tells_yes_from_no(
    predicate: Callable[[str, list[str]], bool], yes: tuple[str, list[str]], no: tuple[str, list[str]]
) -> None:
    """One case of each."""
    assert predicate(*yes)
    assert not predicate(*no)


@given(st.sampled_from([*states.BASES, "NEW"]), st.sets(st.sampled_from([*states.FLAGS, "ZAP"])))
def test_every_state_has_one_phase_and_none_is_wrongly_safe(base: str, flags: set[str]) -> None:
    """Drained is IDLE+DRAIN without work or unknown words; idle is neither busy nor drained nor silent."""
    phase = states.phase_of(base, flags)
    if phase is NodePhase.DRAINED:
        assert base == "IDLE"
        assert states.is_drain(base, flags)
        assert not {"COMPLETING", "ZAP", "REBOOT_ISSUED", "POWERING_DOWN", "POWERING_UP"} & flags
    if phase is NodePhase.IDLE:
        assert base == "IDLE"
        assert not states.is_drain(base, flags)
        assert not {"NOT_RESPONDING", "COMPLETING", "ZAP", "FAIL", "INVALID_REG"} & flags
    if states.is_schedulable(base, flags):
        assert phase in {NodePhase.IDLE, NodePhase.BUSY}


@pytest.mark.parametrize(
    "job",
    [
        ["RUNNING"],
        ["SUSPENDED"],
        ["RUNNING", "CONFIGURING"],
        ["CANCELLED", "COMPLETING"],
        ["PENDING", "COMPLETING"],
        ["PREEMPTED", "COMPLETING"],
        ["COMPLETED", "STAGE_OUT"],
        ["RUNNING", "STOPPED"],
        ["RUNNING", "SIGNALING"],
        ["RUNNING", "RESIZING"],
        ["PENDING", "POWER_UP_NODE"],
        ["SOMETHING_NEW"],
    ],
    ids="+".join,
)
def test_a_job_that_may_hold_nodes_does(job: list[str]) -> None:
    """Running, being configured, being cleaned up, or in a state that nobody here knows."""
    assert states.job_holds_nodes(job)


@pytest.mark.parametrize(
    "job", [["PENDING"], ["COMPLETED"], ["FAILED"], ["TIMEOUT"], ["PENDING", "REQUEUED"], ["NODE_FAIL"]], ids="+".join
)
def test_a_job_that_waits_or_has_ended_holds_nothing(job: list[str]) -> None:
    """Its node list, if Slurm still shows one, is history."""
    assert not states.job_holds_nodes(job)


def test_the_table_for_the_docs_has_a_row_for_every_word() -> None:
    """Each word with its meaning and what an idle node with it is."""
    assert {word.removeprefix("IDLE+") for word, _, _ in states.table()} == {*states.BASES, *states.FLAGS}


def test_no_other_file_compares_slurms_words() -> None:
    """Slurm's state words stand in no other file of the product."""
    words = {"DRAIN", "UNDRAIN", "ALLOCATED", "MIXED", "COMPLETING", "NOT_RESPONDING", "INVALID_REG", "POWERED_DOWN"}
    offenders = []
    for folder in ("libs", "services"):
        for path in (ROOT / folder).rglob("*.py"):
            if path.match("slurm/states.py") or str(path.relative_to(ROOT)) in ELSEWHERE:
                continue
            found = {node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)}
            offenders += [f"{path.relative_to(ROOT)}: {word}" for word in sorted(words & found)]
    assert offenders == []
