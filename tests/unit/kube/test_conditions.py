"""Which conditions people see on pods and nodes."""

from datetime import UTC, datetime

import pytest

from lockstep.contracts.facts import Desired, HoldView
from lockstep.contracts.hold import Condition, HoldClass
from lockstep.kube import keys
from lockstep.kube.conditions import camel, in_service, merge, slurm_conditions

NOW = datetime(2026, 5, 1, 12, 0, 0, 999, tzinfo=UTC)
EARLIER = datetime(2026, 4, 1, tzinfo=UTC)
PREFIX = keys.SLURM_STATE_PREFIX


def types(conditions: list[Condition]) -> list[str]:
    """What they are called, without the prefix."""
    return [c.type.removeprefix(PREFIX) for c in conditions]


@pytest.mark.parametrize(
    ("base", "flags", "shown"),
    [
        pytest.param("IDLE", [], ["Idle"], id="idle"),
        pytest.param("ALLOCATED", ["DRAIN", "COMPLETING"], ["Allocated", "Completing", "Drain"], id="draining, sorted"),
        pytest.param("DOWN", ["NOT_RESPONDING"], ["Down", "NotResponding"], id="two words become one"),
        pytest.param("IDLE", ["INVALID_REG"], ["Idle", "InvalidReg"], id="registered with too little"),
        pytest.param(
            "IDLE", ["CLOUD", "DYNAMIC_NORM", "BLOCKED", "PLANNED", "POWER_UP"], ["Idle"], id="not shown by slinky"
        ),
        pytest.param("IDLE", ["WARP_SPEED"], ["Idle", "WarpSpeed"], id="BR-032 a newer Slurm's word is shown"),
    ],
)
def test_states_are_named_as_slurm_operator_names_them(base: str, flags: list[str], shown: list[str]) -> None:
    """Dashboards made for slurm-operator go on working."""
    assert types(slurm_conditions(base, flags, "")) == shown


def test_the_order_of_slurms_flags_does_not_matter() -> None:
    """An unchanged state gives an identical list, so nothing is written."""
    assert slurm_conditions("IDLE", ["FAIL", "DRAIN"], "x") == slurm_conditions("IDLE", ["DRAIN", "FAIL"], "x")


def test_the_message_is_slurms_reason_on_one_line() -> None:
    """Whatever stands in Slurm, a condition shows it without control characters."""
    [drain, idle] = slurm_conditions("IDLE", ["DRAIN"], "bad\x1b[31m DIMM\nB2")
    assert drain.message == idle.message == "bad[31m DIMM B2"
    assert (drain.status, idle.status) == ("True", "True")


def test_merge_keeps_what_is_not_ours_and_when_ours_began() -> None:
    """The kubelet's conditions stay; a condition that still holds keeps its date, with a new message too."""
    ready = Condition(type="Ready", status="True", last_transition_time=EARLIER)
    drain = Condition(type=PREFIX + "Drain", status="True", message="a", last_transition_time=EARLIER)
    idle = Condition(type=PREFIX + "Idle", status="True", message="a", last_transition_time=EARLIER)

    merged = merge([ready, idle, drain], slurm_conditions("MIXED", ["DRAIN"], "b"), PREFIX, NOW)

    assert merged == [
        ready,
        Condition(type=PREFIX + "Drain", status="True", message="b", last_transition_time=EARLIER),
        Condition(type=PREFIX + "Mixed", status="True", message="b", last_transition_time=NOW.replace(microsecond=0)),
    ]


def test_merge_says_none_when_nothing_differs() -> None:
    """No write, no churn."""
    shown = merge([], slurm_conditions("IDLE", ["DRAIN"], "x"), PREFIX, EARLIER)
    assert shown is not None
    assert merge(shown, slurm_conditions("IDLE", ["DRAIN"], "x"), PREFIX, NOW) is None
    assert merge([], [], PREFIX, NOW) is None


def test_merge_dates_a_condition_that_turned() -> None:
    """True to False is a transition."""
    before = Condition(type=keys.IN_SERVICE, status="True", reason="InService", last_transition_time=EARLIER)
    after = Condition(type=keys.IN_SERVICE, status="False", reason="Manual")
    [told] = merge([before], [after], keys.IN_SERVICE, NOW) or []
    assert told.last_transition_time == NOW.replace(microsecond=0)


def test_in_service_shows_the_words_that_slurm_shows() -> None:
    """The same words in both systems, and the class of the first hold as reason."""
    hold = HoldView(id="hold/slurm/a", hold_class=HoldClass.SCALE_IN, owner="o", reason="r")
    out = Desired(cluster="c", name="w", in_service=False, holds=[hold], words="lockstep: o: r")
    assert in_service(out) == Condition(
        type=keys.IN_SERVICE, status="False", reason="ScaleIn", message="lockstep: o: r"
    )
    back = Desired(cluster="c", name="w", in_service=True)
    assert in_service(back) == Condition(type=keys.IN_SERVICE, status="True", reason="InService")


@pytest.mark.parametrize(
    ("words", "want"), [("INVALID_REG", "InvalidReg"), ("scale-in", "ScaleIn"), ("a;b/ü", "AB"), ("", "")]
)
def test_camel_leaves_letters_and_digits_only(words: str, want: str) -> None:
    """A condition's type must be a name that Kubernetes accepts, whatever Slurm says."""
    assert camel(words) == want
