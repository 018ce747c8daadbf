"""What changed between two readings of Slurm, what happened, and how soon to read again."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from lockstep.contracts.common import WorkerRef
from lockstep.contracts.events import (
    SlurmNodeRegistered,
    SlurmNodeVanished,
    SlurmPhaseChanged,
    SlurmReasonChanged,
    SlurmStateChanged,
)
from lockstep.contracts.facts import SlurmJob, SlurmNode
from lockstep.slurm import states
from lockstep.slurm_poller.decide import (
    Difference,
    Pace,
    Watchman,
    difference,
    is_draining,
    is_suspicious,
    jobs_on,
    leaving_names,
)

AT = datetime(2026, 7, 1, 12, tzinfo=UTC)
START = datetime(2026, 7, 1, 11, tzinfo=UTC)
OURS = "lockstep: ops: DIMM"


def after(seconds: float) -> datetime:
    """So long after AT."""
    return AT + timedelta(seconds=seconds)


def a_node(name: str = "gpu-7", state: str = "IDLE", **fields: Any) -> SlurmNode:
    """A node as the client gives it."""
    base, flags = states.split(state)
    return SlurmNode(cluster="main", name=name, base=base, flags=flags, **({"slurmd_start": START} | fields))


def a_job(job_id: int, *nodes: str) -> SlurmJob:
    """A running job."""
    return SlurmJob(cluster="main", job_id=job_id, states=["RUNNING"], nodes=list(nodes))


class Story:
    """Reads a node again and again, and gathers what is told."""

    def __init__(self, first: SlurmNode, **allowed: Any) -> None:
        self.watchman = Watchman(**allowed)
        self.known = {first.name: first}
        self.events: list[SlurmStateChanged] = []
        self.reasons: list[SlurmReasonChanged] = []
        self.phases: list[tuple[str, str]] = []

    def read(self, node: SlurmNode, at: datetime) -> None:
        """Slurm shows this now."""
        told = difference(self.known, [node], at)
        for event in self.watchman.events(self.known, told, at):
            match event:
                case SlurmStateChanged():
                    self.events.append(event)
                case SlurmReasonChanged():
                    self.reasons.append(event)
                case SlurmPhaseChanged():
                    self.phases.append((event.before, event.after))
                case _:
                    raise AssertionError(event)
        self.known = {node.name: node}

    @property
    def told(self) -> list[tuple[str, str]]:
        """Before and after of each."""
        return [(event.before, event.after) for event in self.events]


def test_a_first_reading_is_all_news() -> None:
    """Each node with the time at which it was read."""
    nodes = [a_node("a"), a_node("b")]

    assert difference({}, nodes, AT) == Difference([msgspec.structs.replace(n, read_at=AT) for n in nodes], [])


def test_what_did_not_change_is_not_told() -> None:
    """A hundred readings of the same are no facts and no events."""
    known = {n.name: n for n in (a_node("a"), a_node("b", "MIXED+DRAIN"))}
    watchman = Watchman()
    for i in range(100):
        told = difference(known, [a_node("a"), a_node("b", "MIXED+DRAIN")], after(i))
        assert told == Difference([], [])
        assert watchman.events(known, told, after(i)) == []


def test_what_is_missing_is_gone() -> None:
    """As it was last known, and vanished."""
    known = {"a": a_node("a", "IDLE+DRAIN")}
    told = difference(known, [], AT)

    assert told.gone == [msgspec.structs.replace(known["a"], gone=True, read_at=AT)]
    (event,) = Watchman().events(known, told, AT)
    assert isinstance(event, SlurmNodeVanished)
    assert event.before == "IDLE+DRAIN"


@pytest.mark.parametrize(
    ("known", "missing", "suspicious"),
    [(0, 0, False), (1, 1, True), (2, 1, False), (10, 5, False), (10, 6, True), (10, 10, True)],
)
def test_a_reading_without_most_nodes_is_suspicious(known: int, missing: int, suspicious: bool) -> None:
    """Above all one without any."""
    assert is_suspicious(known, missing) is suspicious


def test_a_change_names_who_and_why() -> None:
    """State and reason before and after."""
    story = Story(a_node())
    story.read(a_node(state="IDLE+DRAIN", reason="bad DIMM", reason_by="alice"), AT)

    (event,), (reason,) = story.events, story.reasons
    assert story.told == [("IDLE", "IDLE+DRAIN")]
    assert story.phases == [("idle", "drained")]
    assert (event.reason, event.by) == ("bad DIMM", "alice")
    assert (reason.before, reason.after, reason.by) == ("", "bad DIMM", "alice")


def test_other_words_for_the_same_state_are_told() -> None:
    """DRAIN over DRAIN replaces the reason silently."""
    story = Story(a_node(state="IDLE+DRAIN", reason=OURS))
    story.read(a_node(state="IDLE+DRAIN", reason="mine now"), AT)

    assert story.told == story.phases == []
    assert [(event.before, event.after) for event in story.reasons] == [(OURS, "mine now")]


def test_allocations_are_facts_and_no_events() -> None:
    """Nobody wants history of each job's CPUs."""
    story = Story(a_node(state="MIXED", alloc_cpus=1))
    story.read(a_node(state="MIXED", alloc_cpus=2), AT)

    assert story.told == []


def test_the_ping_after_an_undrain_is_a_fact_and_no_event() -> None:
    """UNDRAIN sets NOT_RESPONDING for about a second."""
    story = Story(a_node(state="IDLE+DRAIN", reason=OURS))
    story.read(a_node(state="IDLE+NOT_RESPONDING"), AT)
    story.read(a_node(state="IDLE"), after(1))
    story.read(a_node(state="IDLE"), after(10))

    assert story.told == [("IDLE+DRAIN", "IDLE")]


def test_the_ping_may_come_a_reading_later() -> None:
    """Within three seconds of the end of the drain."""
    story = Story(a_node(state="IDLE+DRAIN"))
    story.read(a_node(state="IDLE"), AT)
    story.read(a_node(state="IDLE+NOT_RESPONDING"), after(1))
    story.read(a_node(state="IDLE"), after(2))
    story.read(a_node(state="MIXED"), after(2.5))
    story.read(a_node(state="MIXED"), after(10))

    assert story.told == [("IDLE+DRAIN", "IDLE"), ("IDLE", "MIXED")]


def test_a_node_that_stays_silent_after_its_undrain_is_told() -> None:
    """Three seconds later, although no fact has changed meanwhile; and once."""
    story = Story(a_node(state="IDLE+DRAIN"))
    silent = a_node(state="IDLE+NOT_RESPONDING")
    for seconds in (0, 1, 2, 3, 4, 60):
        story.read(silent, after(seconds))

    assert story.told == [("IDLE+DRAIN", "IDLE"), ("IDLE", "IDLE+NOT_RESPONDING")]


def test_a_node_that_was_silent_before_its_undrain_stays_so() -> None:
    """That is no ping of Slurm's."""
    story = Story(a_node(state="IDLE+DRAIN+NOT_RESPONDING"))
    story.read(a_node(state="IDLE+NOT_RESPONDING"), AT)

    assert story.told == [("IDLE+DRAIN+NOT_RESPONDING", "IDLE+NOT_RESPONDING")]


def test_not_responding_by_itself_is_told_at_once() -> None:
    """No drain has just ended."""
    story = Story(a_node())
    story.read(a_node(state="IDLE+NOT_RESPONDING"), AT)

    assert story.told == [("IDLE", "IDLE+NOT_RESPONDING")]


def test_a_drain_right_after_an_undrain_is_told() -> None:
    """Its state is not hidden by the ping of the undrain before."""
    story = Story(a_node(state="IDLE+DRAIN"))
    story.read(a_node(state="IDLE+NOT_RESPONDING"), AT)
    story.read(a_node(state="IDLE+DRAIN+NOT_RESPONDING", reason="again"), after(0.5))

    assert story.told == [("IDLE+DRAIN", "IDLE"), ("IDLE", "IDLE+DRAIN")]


def test_an_unknown_word_is_named_once() -> None:
    """Whether it is a flag or a base; other nodes with it are told without."""
    story = Story(a_node())
    story.read(a_node(state="IDLE+ZAP"), AT)
    story.read(a_node(), after(1))
    story.read(a_node(state="IDLE+ZAP"), after(2))
    story.read(a_node(state="FUTURE_THING"), after(3))

    assert [event.unknown_flags for event in story.events] == [["ZAP"], [], [], ["FUTURE_THING"]]


def test_an_allowed_flag_is_not_named() -> None:
    """The settings know it."""
    story = Story(a_node(), allowed_flags=["ZAP"])
    story.read(a_node(state="IDLE+ZAP"), AT)

    assert story.events[0].unknown_flags == []


def test_the_first_look_at_a_running_cluster_tells_only_unknown_words() -> None:
    """Every node is counted, whatever its state; the unknown one is named once."""
    nodes = [a_node(f"n{i}", word) for i, word in enumerate([*states.BASES, "FUTURE_THING", "FUTURE_THING"])]
    told = difference({}, nodes, AT)
    events = Watchman().first(told.changed, AT)

    assert len(told.changed) == len(nodes)
    assert [getattr(event, "unknown_flags", None) for event in events] == [["FUTURE_THING"]]


def test_a_new_node_is_told() -> None:
    """Before, it was not there."""
    told = difference({"a": a_node("a")}, [a_node("a"), a_node("b")], AT)
    state, phase = Watchman().events({"a": a_node("a")}, told, AT)

    assert isinstance(state, SlurmStateChanged)
    assert isinstance(phase, SlurmPhaseChanged)
    assert [(event.before, event.after) for event in (state, phase)] == [("", "IDLE"), ("", "idle")]


def test_a_slurmd_that_started_anew_has_registered() -> None:
    """The id is made from the start, so that reading it twice is one event."""
    known = {"gpu-7": a_node()}
    told = difference(known, [a_node(slurmd_start=AT)], after(5))

    assert Watchman().events(known, told, after(5)) == [
        SlurmNodeRegistered(
            id=f"main/gpu-7:{AT.isoformat()}:registered",
            at=after(5),
            worker=WorkerRef(cluster="main", name="gpu-7"),
            slurmd_start=AT,
        )
    ]


@pytest.mark.parametrize(
    ("state", "fields", "matter"),
    [
        ("IDLE", {}, False),
        ("MIXED", {"alloc_cpus": 4}, False),
        ("MIXED+DRAIN", {}, True),
        ("IDLE+DRAIN", {}, True),
        ("IDLE+DRAIN+UNDRAIN", {}, False),
        ("MIXED+FAIL", {}, True),
        ("DOWN", {}, False),
        ("DOWN", {"alloc_cpus": 4}, True),
    ],
)
def test_jobs_matter_where_somebody_waits_for_their_end(state: str, fields: Any, matter: bool) -> None:
    """A drain, a failing node, a node that is down with work on it."""
    assert (leaving_names([a_node("other"), a_node(state=state, **fields)]) == {"gpu-7"}) is matter


def test_only_jobs_on_nodes_that_are_leaving_are_facts() -> None:
    """A job on several nodes counts when one of them is."""
    leaving = leaving_names([a_node("a", "MIXED+DRAIN"), a_node("b", "MIXED")])

    assert jobs_on([a_job(1, "a", "b"), a_job(2, "b"), a_job(3)], leaving) == [a_job(1, "a", "b")]


def test_draining_is_a_drain_with_work() -> None:
    """An idle drained node needs no hurry."""
    assert is_draining([a_node(state="MIXED+DRAIN")])
    assert not is_draining([a_node(state="IDLE+DRAIN"), a_node(state="MIXED")])


def run(pace: Pace, cost_s: float, for_s: float, *, draining: bool = False) -> float:
    """How often is read within so many seconds, when each answer takes so long."""
    passed, times = 0.0, 0
    while passed < for_s:
        wait_s = pace.wait_s(draining=draining)
        pace = pace.after(cost_s, cost_s + wait_s, draining=draining)
        passed += cost_s + wait_s
        times += 1
    return times / passed


PACE = Pace(min_s=0.25, max_s=5, max_share=0.05)


def test_cheap_answers_keep_the_shortest_interval() -> None:
    """304 takes two milliseconds."""
    assert run(PACE, 0.002, 600) == pytest.approx(1 / 0.252, rel=0.01)


def test_the_shortest_interval_counts_from_the_beginning_of_a_reading() -> None:
    """A list that takes long makes the next one no later, as long as there is time left to spend."""
    assert PACE.wait_s(draining=False, took_s=0.2) == pytest.approx(0.05)
    assert PACE.wait_s(draining=False, took_s=0.3) <= 0


def test_constant_change_costs_no_more_than_the_share() -> None:
    """A list of a thousand nodes takes 0.13 s."""
    assert run(PACE, 0.13, 3_600) * 0.13 == pytest.approx(0.05, rel=0.05)


def test_twice_the_cost_is_half_the_readings() -> None:
    """So a slow slurmctld is asked less."""
    assert run(PACE, 0.1, 3_600) / run(PACE, 0.2, 3_600) == pytest.approx(2, rel=0.05)


def test_a_very_slow_slurmctld_is_read_at_the_longest_interval() -> None:
    """And soon again as usual when it is quick: no debt is kept for long."""
    pace = PACE
    for _ in range(100):
        pace = pace.after(10, 15, draining=False)

    assert pace.wait_s(draining=False) == 5
    assert pace.after(0.002, 5.5, draining=False).wait_s(draining=False) == 0.25


def test_a_change_after_a_quiet_while_is_followed_quickly() -> None:
    """Several lists in a row at the shortest interval."""
    pace = PACE
    for _ in range(6):
        pace = pace.after(0.13, 0.4, draining=False)

    assert pace.wait_s(draining=False) == 0.25


def test_drains_are_followed_faster_and_still_bounded() -> None:
    """Five times the usual share."""
    assert run(PACE, 0.13, 3_600, draining=True) * 0.13 == pytest.approx(0.25, rel=0.05)
