"""The words of a drain: the same in Slurm and Kubernetes, one line, bounded, and known again by their prefix.

Slurm does not say who holds a drain: it replaces reason, time and user silently, and the user is whoever's token was
used. So the mark in the text is the only thing that tells ours from foreign.
"""

from lockstep.base.text import one_line

PREFIX = "lockstep: "
"""What all our reasons begin with. A reason without it is somebody else's, also an empty one."""
MAX = 256
"""Characters of a reason. Slurm keeps thousands; people and tables do not."""

_KEPT = " [was: "
_KEPT_MAX = 96
_NOTHING_SAID = "held"

_SLURMCTLD = (
    "not responding",
    "node unexpectedly rebooted",
    "node unexpectedly restarted",
    "kill task failed",
    "low realmemory",
    "low cpus",
    "low socket",
    "low core",
    "low thread",
    "low tmpdisk",
    "prolog error",
    "epilog error",
    "batch job complete failure",
    "duplicate jobid",
    "gres/",
    "resumetimeout reached",
    "reboot timed out",
    "reboot asap",
    "scheduled reboot",
    "failed to set topology",
    "failed to validate",
    "invalid slurmd",
    "job credential",
    "powered down by",
    "slurmd/slurmctld version",
)


def ours(owner: str, reason: str, more: int = 0) -> str:
    """`lockstep: <owner>: <reason>`, then ` (+2 more)`, as one line of at most 256 characters.

    Prefix and count stay whole. Sanitising the answer again changes nothing.
    """
    tail = f" (+{more} more)" if more > 0 else ""
    said = ": ".join(part for part in (_clean(owner), _clean(reason)) if part) or _NOTHING_SAID
    return PREFIX + one_line(said, limit=MAX - len(PREFIX) - len(tail)) + tail


def is_ours(reason: str) -> bool:
    """The reason carries our mark. The author that Slurm shows is not looked at: all who use one token look alike."""
    return reason.startswith(PREFIX)


def by_slurmctld(reason: str) -> bool:
    """Slurm itself wrote this reason, and may lift the state by itself when it thinks that the cause has gone."""
    return reason.strip().lower().startswith(_SLURMCTLD)


def keep_behind(words: str, foreign: str) -> str:
    """`<words> [was: <foreign>]` within 256 characters. Nothing is kept of what is empty or ours already."""
    kept = _clean(foreign)
    if not kept or is_ours(kept):
        return words
    behind = f"{_KEPT}{one_line(kept, limit=max(_KEPT_MAX, MAX - len(words) - len(_KEPT) - 1))}]"
    return one_line(words, limit=MAX - len(behind)) + behind


def same(reason: str, words: str) -> bool:
    """Slurm's `reason` says `words`, with or without something kept behind them."""
    if reason == words:
        return True
    at = reason.rfind(_KEPT)
    return at > 0 and reason.endswith("]") and keep_behind(words, reason[at + len(_KEPT) : -1]) == reason


def _clean(text: str) -> str:
    return one_line(text, limit=MAX)
