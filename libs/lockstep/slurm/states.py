"""Slurm's words for the states of nodes and jobs. The only file that compares them.

Source: slurm.h (`enum node_states`, `enum job_states`, their flags) and the enums of data parsers v0.0.42 to v0.0.45.
A node has one base state and any number of flags. New flags appear within a release's life, so the set is open:
a flag that is not known here counts as "not safe" until the settings allow it.
"""
# ruff: noqa: ARG001 - every predicate takes (base, flags), whichever of them it looks at

from collections.abc import Collection, Iterable
from enum import StrEnum
from functools import lru_cache

DRAIN = "DRAIN"
"""The state that is written to take a node out of service."""
UNDRAIN = "UNDRAIN"
"""The state that is written to lift DRAIN, and nothing else."""

NOT_RESPONDING = "NOT_RESPONDING"
"""The flag of a slurmd that does not answer; also set for about a second by UNDRAIN."""

BASES: dict[str, str] = {
    "IDLE": "nothing is allocated",
    "ALLOCATED": "all that can be allocated is",
    "MIXED": "some of it is allocated",
    "DOWN": "takes no work; its jobs were ended",
    "ERROR": "Slurm no longer writes it; treated as DOWN",
    "FUTURE": "a record for a node that does not exist yet",
    "UNKNOWN": "slurmctld has not heard from it since its start",
    "INVALID": "the record holds a value that Slurm cannot name",
}
"""Each base state and what it means."""

FLAGS: dict[str, str] = {
    "DRAIN": "takes no new work",
    "UNDRAIN": "the drain is being lifted; wins over DRAIN",
    "COMPLETING": "a job's end (epilog, clean-up) is still running",
    "NOT_RESPONDING": "slurmd did not answer; set for about a second by UNDRAIN and RESUME as well",
    "FAIL": "set by a person: takes no new work, expected to fail",
    "INVALID_REG": "slurmd registered with a specification that slurmctld refused",
    "MAINTENANCE": "in a maintenance reservation",
    "RESERVED": "in a reservation",
    "PLANNED": "the backfill scheduler plans a job on it",
    "BLOCKED": "kept free for a job that has the whole topology block to itself",
    "EXTERNAL": "work is placed on it by somebody other than slurmd",
    "CLOUD": "its record comes and goes with power saving",
    "DYNAMIC_NORM": "registered itself (slurmd -Z)",
    "DYNAMIC_FUTURE": "registered itself on a FUTURE record (slurmd -F)",
    "RESUME": "is being returned to service",
    "REBOOT_REQUESTED": "is rebooted when its work has ended",
    "REBOOT_ISSUED": "the reboot was started",
    "REBOOT_CANCELED": "the reboot was called off",
    "POWERED_DOWN": "is off",
    "POWERING_DOWN": "is being switched off",
    "POWERING_UP": "is being switched on",
    "POWER_DOWN": "is switched off when its work has ended",
    "POWER_UP": "is switched on soon",
    "POWER_DRAIN": "is drained, then switched off",
    "POWER_DOWN_ASAP": "is drained, then switched off",
    "POWER_DOWN_FORCE": "is switched off now, its jobs requeued",
}
"""Each flag of a node and what it means."""

_BUSY_BASES = frozenset({"ALLOCATED", "MIXED"})
_DOWN_BASES = frozenset({"DOWN", "ERROR"})
_ABSENT_BASES = frozenset({"FUTURE", "UNKNOWN", "INVALID"})
_LIFTED = frozenset({"UNDRAIN", "RESUME"})
_POWER = frozenset(flag for flag in FLAGS if flag.startswith("POWER"))
_POWER_TRANSITIONS = _POWER - {"POWERED_DOWN"}
_REBOOT = frozenset(flag for flag in FLAGS if flag.startswith("REBOOT_"))
_GOING_NOW = frozenset({"POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "REBOOT_ISSUED"})
_GOING = _POWER | _REBOOT - {"REBOOT_CANCELED"}
_UNSAFE = _POWER_TRANSITIONS | _REBOOT | _LIFTED | {"COMPLETING"}
_CLOSED = _GOING | {"NOT_RESPONDING", "INVALID_REG", "FAIL", "MAINTENANCE", "BLOCKED", "COMPLETING"}

_SUFFIXES = {
    "*": "NOT_RESPONDING",
    "~": "POWERED_DOWN",
    "#": "POWERING_UP",
    "%": "POWERING_DOWN",
    "!": "POWER_DOWN",
    "$": "MAINTENANCE",
    "@": "REBOOT_REQUESTED",
    "^": "REBOOT_ISSUED",
    "-": "PLANNED",
}

_JOB_ENDED_OR_WAITING = frozenset(
    {"PENDING", "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE"}
    | {"OUT_OF_MEMORY", "LAUNCH_FAILED", "UPDATE_DB", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RECONFIG_FAIL"}
    | {"REVOKED", "REQUEUE_FED", "RESV_DEL_HOLD", "EXPEDITING"}
)
_JOB_BEGINS = frozenset({"CONFIGURING", "POWER_UP_NODE"})
_JOB_WAITS = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"})
_JOB_ENDING = frozenset({"COMPLETING", "SIGNALING", "REQUEUED", "REQUEUE_HOLD"})
_MAINTENANCE_RESERVATION = "MAINT"


class NodePhase(StrEnum):
    """One word for what a node is doing."""

    IDLE = "idle"
    """Nothing runs on it and it is not drained. Whether Slurm would place work on it says `is_schedulable`."""
    BUSY = "busy"
    DRAINING = "draining"
    """DRAIN (or FAIL), and work is still on it, or a flag that nobody here knows."""
    DRAINED = "drained"
    """DRAIN and IDLE as the words go. The proof that it is safe to take needs more (`fleet.drained`)."""
    DOWN = "down"
    """DOWN (drained or not), FAIL without work, or a refused registration."""
    POWER = "power"
    """Off, or on its way up or down, a reboot included. Waiting for its work to end first, it is BUSY or DRAINING."""
    UNKNOWN = "unknown"
    """No known base state, a flag that nobody here knows, or IDLE as last heard of a slurmd that does not answer."""


def split(words: str | Iterable[str]) -> tuple[str, list[str]]:
    """Base state and sorted flags of any form: a list, `IDLE+DRAIN`, `idle*`, or lists of such strings.

    An unknown word is the base only where no known base is given; no word at all reads as UNKNOWN.
    """
    base, flags = _split((words,) if isinstance(words, str) else tuple(words))
    return base, list(flags)


@lru_cache(maxsize=1024)
def _split(words: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    found: list[str] = []
    for part in "+".join(words).upper().split("+"):
        word = part.strip()
        while word and word[-1] in _SUFFIXES:
            found.append(_SUFFIXES[word[-1]])
            word = word[:-1]
        if word:
            found.append(word)
    base = next((w for w in found if w in BASES), None) or next((w for w in found if w not in FLAGS), "UNKNOWN")
    return base, tuple(sorted({w for w in found if w != base}))


def unknown_flags(flags: Collection[str], *, allow: Collection[str] = ()) -> list[str]:
    """The flags that this file does not know and the settings do not allow, sorted."""
    return sorted(flag for flag in flags if flag not in FLAGS and flag not in allow)


def unsafe_flags(flags: Collection[str], *, allow: Collection[str] = ()) -> list[str]:
    """The flags under which nothing may be done to the machine, sorted: work, power, reboot, or unknown."""
    return sorted(flag for flag in flags if (flag in _UNSAFE or flag not in FLAGS) and flag not in allow)


def is_drain(base: str, flags: Collection[str]) -> bool:
    """The node is drained or draining and nobody is lifting it: UNDRAIN and RESUME win over DRAIN."""
    return DRAIN in flags and _LIFTED.isdisjoint(flags)


def is_busy(base: str, flags: Collection[str]) -> bool:
    """Work is on the node, or its end is still running."""
    return base in _BUSY_BASES or "COMPLETING" in flags


def is_down(base: str, flags: Collection[str]) -> bool:
    """The node's base state is DOWN (or the old ERROR)."""
    return base in _DOWN_BASES


def is_idle(base: str, flags: Collection[str]) -> bool:
    """The node's base state is IDLE and no job is completing. Says nothing of the other flags."""
    return base == "IDLE" and "COMPLETING" not in flags


def is_fail(base: str, flags: Collection[str]) -> bool:
    """Somebody set FAIL. Slurm clears it when DRAIN is set, and the reverse."""
    return "FAIL" in flags


def has_reason(base: str, flags: Collection[str]) -> bool:
    """The node is in a state that its reason explains: DRAIN, DOWN or FAIL."""
    return is_drain(base, flags) or is_down(base, flags) or is_fail(base, flags)


def is_responding(base: str, flags: Collection[str]) -> bool:
    """The slurmd answers. False for about a second after UNDRAIN and RESUME, which is no fault."""
    return "NOT_RESPONDING" not in flags


def is_registered(base: str, flags: Collection[str]) -> bool:
    """The controller knows the node and accepted its registration. When it registered, says `slurmd_start`."""
    return base in BASES and base not in _ABSENT_BASES and "INVALID_REG" not in flags


def is_power_transitional(base: str, flags: Collection[str]) -> bool:
    """The node is on its way up or down, or has been asked to be."""
    return not _POWER_TRANSITIONS.isdisjoint(flags)


def is_off(base: str, flags: Collection[str]) -> bool:
    """Power saving has switched the node off in good order: Slurm switches it on when it has work for it."""
    return "POWERED_DOWN" in flags and base == "IDLE" and is_responding(base, flags)


def is_reboot_transitional(base: str, flags: Collection[str]) -> bool:
    """A reboot was requested, issued or called off and Slurm has not forgotten it yet."""
    return not _REBOOT.isdisjoint(flags)


def is_schedulable(base: str, flags: Collection[str], *, allow: Collection[str] = ()) -> bool:
    """Slurm may place ordinary work on it now or when its present work ends."""
    usable = base in _BUSY_BASES or base == "IDLE"
    closed = DRAIN in flags or not _CLOSED.isdisjoint(flags)
    return usable and not closed and not unknown_flags(flags, allow=allow)


def phase_of(base: str, flags: Collection[str], *, allow: Collection[str] = ()) -> NodePhase:
    """The node's phase. Every node has exactly one; what nobody here knows is never idle or drained."""
    unknown = bool(unknown_flags(flags, allow=allow))
    if base not in BASES or base in _ABSENT_BASES:
        return NodePhase.UNKNOWN
    if base in _DOWN_BASES:
        return NodePhase.DOWN if _GOING_NOW.isdisjoint(flags) else NodePhase.POWER
    busy = is_busy(base, flags)
    if not (_GOING_NOW if busy else _GOING).isdisjoint(flags):
        return NodePhase.POWER
    if is_drain(base, flags):
        return NodePhase.DRAINING if busy or unknown else NodePhase.DRAINED
    if is_fail(base, flags):
        return NodePhase.DRAINING if busy else NodePhase.DOWN
    if busy:
        return NodePhase.BUSY
    if "INVALID_REG" in flags:
        return NodePhase.DOWN
    return NodePhase.UNKNOWN if unknown or not is_responding(base, flags) else NodePhase.IDLE


def job_holds_nodes(states: Iterable[str]) -> bool:
    """The job keeps its nodes: one of its words is not known to mean that it waits or has ended.

    So RUNNING, SUSPENDED, and the flags COMPLETING, CONFIGURING, POWER_UP_NODE, RESIZING, SIGNALING, STAGE_OUT and
    STOPPED hold, and so does a word that is new.
    """
    return any(state not in _JOB_ENDED_OR_WAITING for state in states)


def job_begins(states: Iterable[str]) -> bool:
    """The job's nodes are being set up for it: its run has not begun, and its start may still move."""
    return not _JOB_BEGINS.isdisjoint(states)


def job_waits(states: Iterable[str]) -> bool:
    """The job is in the queue, for the first time or once more; it may still hold the nodes of a run that is ending."""
    return not _JOB_WAITS.isdisjoint(states)


def job_is_ending(states: Iterable[str]) -> bool:
    """The job's end has begun: asking for it again would do nothing, or hit its next run."""
    return not _JOB_ENDING.isdisjoint(states)


def text(base: str, flags: Collection[str]) -> str:
    """State and flags in one word, as Slurm's own tools write it: `IDLE+DRAIN`."""
    return "+".join([base, *sorted(flags)])


def is_maintenance_reservation(flags: Collection[str]) -> bool:
    """The reservation has the MAINT flag: it keeps new work away and does not touch running jobs."""
    return _MAINTENANCE_RESERVATION in flags


def table() -> list[tuple[str, str, str]]:
    """Rows (word, meaning, phase of an IDLE node with it, or of the base alone) for the documentation."""
    bases = [(word, meaning, phase_of(word, ()).value) for word, meaning in BASES.items()]
    flags = [(f"IDLE+{word}", meaning, phase_of("IDLE", {word}).value) for word, meaning in FLAGS.items()]
    return bases + flags
