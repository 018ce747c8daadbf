"""What changed between two moments: told from the events, and unknown where they do not tell."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from lockstep.base.errors import BadInput
from lockstep.cli.changes import TAGS, UNKNOWN, UNREAD, Change, Changes, WorkerChange, summary
from lockstep.cli.diff import moments_of, row
from lockstep.contracts import events as e
from lockstep.contracts.common import WorkerRef
from lockstep.contracts.facts import Progress
from lockstep.contracts.hold import HoldClass
from tests.builders import HOST, KEY, NOW, a_view
from tests.unit.cli.life import REF, a_life

START, END = NOW, NOW + timedelta(hours=10)


def phase(hour: float, before: str, after: str, **fields: Any) -> e.Event:
    """A change of the phase."""
    known: dict[str, Any] = {"id": f"{hour}", "at": hours(hour), "worker": REF}
    return e.SlurmPhaseChanged(**(known | {"before": before, "after": after} | fields))


def hours(hour: float) -> datetime:
    """A time after the first moment; 10 is the second."""
    return START + timedelta(hours=hour)


def changes(*events: e.Event) -> Changes:
    """The changes of these events, which the stream took as they happened."""
    found = Changes(START, END, {HOST: {KEY}})
    for event in events:
        found.add(event, event.at)
    return found


def one(*events: e.Event) -> WorkerChange:
    """The change of the only worker."""
    (change,) = changes(*events).workers()
    return change


def test_the_first_before_and_the_last_after_are_compared() -> None:
    """What was in between is gone."""
    assert one(phase(1, "idle", "busy"), phase(2, "busy", "draining"), phase(3, "draining", "drained")).phase == Change(
        then="idle", now="drained"
    )


def test_what_came_back_has_not_changed() -> None:
    """A job that ran and ended is no difference."""
    assert changes(phase(1, "idle", "busy"), phase(2, "busy", "idle")).workers() == []


def test_what_comes_after_the_second_moment_does_not_count() -> None:
    """It only tells whether the last change before was the last one."""
    assert one(phase(1, "idle", "busy"), phase(11, "busy", "down")).phase == Change(then="idle", now="busy")
    assert changes(phase(11, "idle", "down")).workers() == []


def test_where_events_are_missing_the_value_is_unknown() -> None:
    """The next event says that it was something else meanwhile: when that began, nobody knows."""
    assert one(phase(1, "idle", "busy"), phase(11, "drained", "idle"), phase(12, "idle", "busy")).phase == Change(
        then="idle", now=UNKNOWN
    )


@pytest.mark.parametrize(
    ("outage", "then", "now"),
    [
        ([], "idle", "busy"),
        ([e.SourceBack(id="b", at=hours(1), source="slurm.node", of="main", lost_for_s=7200)], UNREAD, "busy"),
        ([e.SourceLost(id="l", at=hours(9), source="slurm.node", of="main", error="x")], "idle", UNREAD),
        ([e.SourceLost(id="l", at=hours(11), source="slurm.node", of="main", error="x")], "idle", "busy"),
        ([e.SourceBack(id="b", at=hours(11), source="slurm.node", of="main", lost_for_s=7200)], "idle", UNREAD),
        ([e.SourceBack(id="b", at=hours(5), source="slurm.node", of="main", lost_for_s=60)], "idle", "busy"),
        ([e.SourceBack(id="b", at=hours(1), source="slurm.node", of="spare", lost_for_s=7200)], "idle", "busy"),
        ([e.SourceBack(id="b", at=hours(1), source="kube", of="_site", lost_for_s=7200)], "idle", "busy"),
    ],
)
def test_what_was_not_read_at_a_moment_is_unknown_there(outage: list[e.Event], then: str, now: str) -> None:
    """The last that was seen may have been long over."""
    assert one(phase(2, "idle", "busy"), *outage).phase == Change(then=then, now=now)


def test_a_source_that_still_fails_is_an_outage_too() -> None:
    """Its heartbeat says since when; the event of its loss may be too old to be kept."""
    found = changes(phase(2, "idle", "busy"))
    found.failing("slurm.node", "main", START - timedelta(hours=1))

    assert [(o.source, o.back) for o in found.unread()] == [("slurm.node", None)]
    assert found.workers() == []


def test_holds_that_stand_at_one_moment_only_are_told() -> None:
    """One that came and went is counted."""
    a, b, c = (a_view(name, hold_class=HoldClass.HEALTH) for name in "abc")
    events = [
        e.HoldReleased(id="1", at=hours(1), worker=REF, hold=a),
        e.HoldPlaced(id="2", at=hours(2), worker=REF, hold=b),
        e.HoldPlaced(id="3", at=hours(3), worker=REF, hold=c),
        e.HoldExpired(id="4", at=hours(4), worker=REF, hold=c),
        e.HoldPlaced(id="5", at=hours(11), worker=REF, hold=a),
    ]

    change = one(*events)

    assert ([h.id for h in change.placed], [h.id for h in change.ended]) == (["hold/slurm/b"], ["hold/slurm/a"])
    assert change.passed == 1
    assert summary([change]) == "1 worker changed: holds placed 1 (health 1), holds ended 1 (health 1)"


@pytest.mark.parametrize(
    ("steps", "pod"),
    [
        ([("", "bound", "new"), ("bound", "ready", "new")], "new"),
        ([("terminating", "gone", "old")], "gone"),
        ([("terminating", "gone", "old"), ("", "bound", "new")], "replaced"),
        ([("", "pending", "new"), ("terminating", "gone", "old")], "replaced"),
        ([("ready", "bound", "old"), ("bound", "ready", "old")], ""),
    ],
)
def test_a_pod_is_another_when_its_uid_is(steps: list[tuple[str, str, str]], pod: str) -> None:
    """Whichever is told first: the old one's end or the new one's beginning."""
    kinds = {"gone": e.PodGone, "bound": e.PodBound, "ready": e.PodReady, "pending": e.PodCreated}
    events = [
        kinds[after](id=f"{i}", at=hours(i + 1), worker=REF, before=before, after=after, uid=uid)
        for i, (before, after, uid) in enumerate(steps)
    ]

    assert [change.pod for change in changes(*events).workers()] == ([pod] if pod else [])


@pytest.mark.parametrize("workers", [[REF], []])
def test_a_nodes_reboot_concerns_the_workers_on_it(workers: list[WorkerRef]) -> None:
    """Those that the event names, else those that are known to be on it."""
    assert one(e.NodeRebooted(id="1", at=hours(1), node=HOST, before="a", after="b", workers=workers)).reboots == 1


def test_a_whole_life_leaves_what_is_different() -> None:
    """The holds are gone, the pod is another, the machine was rebooted, the reason stands as last told."""
    change = one(*a_life())

    assert change.phase == Change(then="busy", now="idle")
    assert (change.drain, change.passed, change.placed, change.ended) == (None, 2, [], [])
    assert (change.pod, change.reboots) == ("replaced", 1)
    assert row(change, several=True) == {
        "WORKER": "main/gpu-7",
        "PHASE": "busy → idle",
        "PROGRESS": "",
        "HOLDS": "2 came and went",
        "ALSO": "pod replaced, node rebooted 1x",
        "REASON": "none → lockstep: kubectl-cordon: Kubernetes node cordoned",
    }


def test_all_that_is_looked_at_is_read() -> None:
    """A kind of event that is not asked for would never come."""
    used = {"slurm-node.phase-changed.v1", "slurm-node.reason-changed.v1", "node.rebooted.v1", "fleet.gap-found.v1"}
    nouns = {tag.split(".")[0] for tag in TAGS}

    assert used <= TAGS
    assert nouns == {"slurm-node", "hold", "drain", "pod", "node", "source", "fleet"}
    assert {tag for tag in TAGS if tag.startswith("drain.")} | {"drain.acted.v1"} == {
        f"drain.{step}.v1" for step in ("started", "waiting", "overdue", "drained", "cancelled", "ended", "acted")
    }


def test_an_administrators_drain_is_a_hold_too() -> None:
    """It is told as one that is left alone."""
    hers = a_view(id="slurm/gpu-7", hold_class=HoldClass.SLURM, owner="root", reason="bad fan")

    assert [h.id for h in one(e.ForeignDrainRespected(id="1", at=hours(1), worker=REF, hold=hers)).placed] == [hers.id]


def test_a_drain_is_compared_like_a_phase() -> None:
    """By how far it was."""
    steps = (Progress.NONE, Progress.WAITING), (Progress.WAITING, Progress.DRAINING)
    events = [
        e.DrainStarted(id=f"{i}", at=hours(i + 1), worker=REF, before=b, after=a) for i, (b, a) in enumerate(steps)
    ]

    assert one(*events).drain == Change(then="none", now="draining")


def test_gaps_are_told() -> None:
    """Where facts or events were lost, nobody can be sure."""
    found = changes(e.GapFound(id="1", at=hours(1), where="LOCKSTEP_EVENTS", detail="lost"))

    assert found.gaps == ["2026-12-01 13:00:00Z LOCKSTEP_EVENTS: lost"]
    assert summary([]) == "no worker changed"


def test_the_two_moments_are_one_after_the_other_and_not_to_come() -> None:
    """What is wrong is named."""
    assert moments_of("2h", "now", NOW) == (NOW - timedelta(hours=2), NOW)
    assert moments_of("2h", "1h", NOW) == (NOW - timedelta(hours=2), NOW - timedelta(hours=1))
    for then, until, says in (("1h", "2h", "T1 '1h': want"), ("now", "now", "T1 'now'"), ("x", "now", "T1 'x'")):
        with pytest.raises(BadInput, match=says):
            moments_of(then, until, NOW)
    with pytest.raises(BadInput, match=r"T2 '2027-.*is to come"):
        moments_of("1h", "2027-01-01T00:00:00Z", NOW)
