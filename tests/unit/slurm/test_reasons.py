import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.base.text import one_line
from lockstep.slurm import reasons

ANY_TEXT = st.text(max_size=600)


@given(ANY_TEXT, ANY_TEXT, st.integers(0, 2000))
def test_our_words_are_clean_bounded_marked_and_stable(owner: str, reason: str, more: int) -> None:
    """Whatever a user wrote into an annotation, the reason is one line, at most 256, begins with our mark."""
    words = reasons.ours(owner, reason, more)
    assert len(words) <= reasons.MAX
    assert words.startswith(reasons.PREFIX)
    assert reasons.is_ours(words)
    assert not any(unicodedata.category(char).startswith("C") for char in words)
    assert one_line(words, limit=reasons.MAX) == words
    assert not more or words.endswith(f" (+{more} more)")


def test_our_words_say_owner_and_reason() -> None:
    """The shapes that an operator reads in sinfo -R."""
    assert reasons.ours("ops@example.com", "DIMM B2 swap") == "lockstep: ops@example.com: DIMM B2 swap"
    assert reasons.ours("kured", "reboot", 2) == "lockstep: kured: reboot (+2 more)"
    assert reasons.ours("", "reboot") == "lockstep: reboot"
    assert reasons.ours("ops", "") == "lockstep: ops"
    assert reasons.ours("", "\x00") == "lockstep: held"


@pytest.mark.parametrize(
    "payload",
    ["bad\nslurmctld: node up", "tab\there", "\x1b[31mred", "a\u202eb", "line\u2028two", "x" * 10_000, "😀" * 300],
)
def test_a_payload_stays_one_line(payload: str) -> None:
    """Newlines, escapes, direction marks and length cannot forge a second line or break a table."""
    words = reasons.ours("ops", payload)
    assert "\n" not in words
    assert words.isprintable()
    assert len(words) <= reasons.MAX


@pytest.mark.parametrize("reason", ["", "held", "Lockstep: x", " lockstep: x", "maintenance lockstep: x", "lockstep"])
def test_a_reason_without_our_mark_is_foreign(reason: str) -> None:
    """So is an empty one: a drain without a reason is somebody's too."""
    assert not reasons.is_ours(reason)


@pytest.mark.parametrize(
    "reason",
    [
        "Not responding",
        "Node unexpectedly rebooted",
        "Kill task failed",
        "Low RealMemory (reported:400 < 100.00% of configured:512)",
        "Low socket*core*thread count, Low CPUs",
        "gres/gpu count reported lower than configured (0 < 8)",
        "Prolog error",
        "Epilog error",
        "Duplicate jobid",
        "ResumeTimeout reached",
        "batch job complete failure",
        "Failed to set topology 'default:x'",
    ],
)
def test_slurmctlds_own_reasons_are_known(reason: str) -> None:
    """These may be lifted by slurmctld itself."""
    assert reasons.by_slurmctld(reason)


@pytest.mark.parametrize("reason", ["", "lockstep: ops: x", "GPU fell off", "belonged to Not responding"])
def test_a_persons_reason_is_not_slurmctlds(reason: str) -> None:
    """Only what begins as slurmctld writes it."""
    assert not reasons.by_slurmctld(reason)


@given(ANY_TEXT, ANY_TEXT)
def test_what_is_kept_behind_ours_is_bounded_and_ours_again(reason: str, foreign: str) -> None:
    """The whole is a reason of ours, and is told to say the same as ours alone."""
    words = reasons.ours("ops", reason)
    kept = reasons.keep_behind(words, foreign)
    assert len(kept) <= reasons.MAX
    assert reasons.is_ours(kept)
    assert one_line(kept, limit=reasons.MAX) == kept
    assert reasons.same(kept, words)


def test_slurmctlds_words_are_kept_behind_ours() -> None:
    """And ours are never kept behind ours."""
    words = reasons.ours("ops", "reboot")
    assert reasons.keep_behind(words, "Not responding") == "lockstep: ops: reboot [was: Not responding]"
    assert reasons.keep_behind(words, "") == words
    assert reasons.keep_behind(words, "lockstep: ops: older") == words


def test_other_words_are_not_the_same() -> None:
    """A different reason, or a bracket of somebody else's, is a difference."""
    words = reasons.ours("ops", "reboot")
    assert reasons.same(words, words)
    assert not reasons.same("lockstep: ops: swap", words)
    assert not reasons.same("lockstep: ops: swap [was: Not responding]", words)
    assert not reasons.same("", words)
