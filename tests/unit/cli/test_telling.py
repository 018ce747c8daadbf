"""A worker's events as a story: what stands under what, in which order, in which words."""

from itertools import pairwise

import pytest

from lockstep.bus.envelope import Unknown
from lockstep.cli.telling import MAX_KNOWN, MAX_SCENE, Line, Teller, gap_words
from lockstep.contracts import events as e
from lockstep.contracts.facts import Progress
from tests.unit.cli.life import CORDON, DIMM, HOST, REF, a_life, at, seen, told


def shape(lines: list[Line]) -> list[tuple[str, int]]:
    """Ids and depths."""
    return [(line.id, line.depth) for line in lines]


def uncordoned(ident: str, seconds: float = 0, cause: str = "") -> e.Event:
    """Some event."""
    return e.NodeUncordoned(id=ident, **at(seconds), node=HOST, cause_id=cause)


def test_a_cordon_is_told_with_all_that_came_of_it() -> None:
    """Each event stands under its cause, as deep as the chain is long."""
    assert shape(told(*a_life()))[:6] == [
        ("cordoned", 0),
        ("held", 1),
        ("began", 2),
        ("set", 3),
        ("state", 4),
        ("waits", 5),
    ]


def test_a_new_state_is_one_line_with_its_phase_and_reason() -> None:
    """One reading of Slurm told all three; the others are there for scripts."""
    lines = {line.id: line for line in told(*a_life())}

    assert lines["state"].text == "busy → draining, Slurm MIXED → MIXED+DRAIN, with our reason"
    assert [each.id for each in lines["state"].all] == ["state", "phase", "reason"]
    assert lines["state2"].text == "draining → drained, Slurm MIXED+DRAIN → IDLE+DRAIN"
    assert lines["phase3"].text == "drained → idle"


def test_a_cause_that_is_told_with_another_event_has_its_effects_there() -> None:
    """Whichever of the three an event names."""
    effect = e.DrainDone(
        id="effect", **at(0.6), worker=REF, before=Progress.WAITING, after=Progress.DRAINED, cause_id="reason"
    )

    lines = shape(told(*a_life()[:8], effect))

    assert lines[-3:] == [("state", 4), ("waits", 5), ("effect", 5)]


def test_a_reason_of_somebody_else_is_told_in_full() -> None:
    """It is what everybody wants to know."""
    (line,) = told(
        e.SlurmStateChanged(id="1", **at(0), worker=REF, before="IDLE", after="IDLE+DRAIN"),
        e.SlurmReasonChanged(id="2", **at(0), worker=REF, before="", after="bad fan", by="root"),
    )

    assert line.text == "Slurm IDLE → IDLE+DRAIN, Slurm's reason by root: bad fan"


def test_how_long_a_drain_took_and_what_it_waited_for_is_said() -> None:
    """Nobody has to subtract times."""
    texts = {line.id: line.text for line in told(*a_life())}

    assert texts["waits"] == "drain waits for job 4242 of u1017, running"
    assert texts["done"] == "drained after 2 h 13 min, waited for job 4242"
    assert texts["ended"] == "nothing holds it any more, after 4 h out of service"
    assert texts["cordoned"] == "node host-7 cordoned by alice: firmware"


def test_the_drains_are_summed_up() -> None:
    """At the end, in one sentence; nothing is said where there was none."""
    teller = Teller()
    for i, event in enumerate(a_life()):
        teller.add(seen(event, i))

    assert teller.summary() == "1 drain, drained after 2 h 13 min, out of service for 4 h"
    assert Teller().summary() == ""


def test_a_worker_that_is_still_out_is_said_to_be() -> None:
    """And since when."""
    teller = Teller()
    for i, event in enumerate(a_life()[:8]):
        teller.add(seen(event, i))

    assert teller.summary() == "out of service since 2026-12-01 12:00:00"


def test_a_drain_whose_beginning_is_not_kept_has_no_length() -> None:
    """What is not known is not made up."""
    life = a_life()
    texts = {line.id: line.text for line in told(*life[life.index(life[13]) :])}

    assert texts["done"] == "drained"
    assert texts["ended"] == "nothing holds it any more"


def test_what_was_asked_for_stands_under_the_request_which_is_told_once() -> None:
    """A request's id is no event's id; its first answer stands for it."""
    lines = told(*a_life())

    assert ("accepted", 0) in shape(lines)
    assert shape(lines)[shape(lines).index(("accepted", 0)) + 1] == ("held2", 1)
    assert [line.because for line in lines if line.id == "accepted"] == [""]


def test_quiet_hours_are_named() -> None:
    """Only where it was quiet for longer than a minute, and at the first line after."""
    gaps = [(line.id, gap_words(line)) for line in told(*a_life()) if line.gap_s]

    assert gaps[:4] == [
        ("lost", "30 min later"),
        ("accepted", "29 min later"),
        ("job", "1 h 13 min later"),
        ("leaving", "2 min later"),
    ]


def test_scenes_are_in_the_order_of_time_and_a_cause_of_an_earlier_one_is_named() -> None:
    """What came of a cordon hours later is told when it came."""
    first, other, late = told(uncordoned("a"), uncordoned("b", 1000), uncordoned("c", 3600, cause="a"))

    assert [line.depth for line in (first, other, late)] == [0, 0, 0]
    assert (first.because, other.because) == ("", "")
    assert late.because == "node host-7 uncordoned (12:00:00)"


def test_a_cause_of_another_day_is_named_with_its_day() -> None:
    """A time alone would mislead."""
    assert told(uncordoned("a"), uncordoned("b", 86400, cause="a"))[1].because == (
        "node host-7 uncordoned (2026-12-01 12:00:00)"
    )


def test_a_cause_that_is_not_kept_is_named_by_its_id_and_cut() -> None:
    """It comes from outside, like everything in an event."""
    (line,) = told(uncordoned("a", cause="\x1b[2J" + "x" * 500))

    assert line.depth == 0
    assert line.because == "[2J" + "x" * 36 + "…"


def test_an_effect_that_the_stream_has_before_its_cause_stands_under_it() -> None:
    """Two services publish at the same time; which one is first means nothing."""
    assert shape(told(uncordoned("effect", 0, cause="cause"), uncordoned("cause", 0.1))) == [
        ("cause", 0),
        ("effect", 1),
    ]


def test_events_of_one_time_keep_the_order_of_the_stream() -> None:
    """A time is no order."""
    names = ["d", "b", "a", "c"]

    assert [line.id for line in told(*map(uncordoned, names))] == names


def test_nobody_has_to_go_back_in_time() -> None:
    """What comes seconds later stays at its time, also when others came in between; its cause is named then."""
    lines = told(
        uncordoned("root"),
        uncordoned("early", 0.1, "root"),
        uncordoned("other", 0.2, "root"),
        uncordoned("below", 0.3, "other"),
        uncordoned("late", 2, "early"),
        uncordoned("after", 2.1, "late"),
        uncordoned("elsewhere", 3),
        uncordoned("last", 5, "late"),
    )

    assert shape(lines)[4:] == [("late", 2), ("after", 3), ("elsewhere", 0), ("last", 0)]
    because = [line.because for line in lines if line.because]
    assert because == ["node host-7 uncordoned (12:00:00)", "node host-7 uncordoned (12:00:02)"]
    assert all((below.at - above.at).total_seconds() >= -1 for above, below in pairwise(lines))


def test_services_that_speak_one_after_the_other_are_put_in_order() -> None:
    """Within a moment each stands under its cause."""
    lines = told(
        uncordoned("a"), uncordoned("b", 0.1, "a"), uncordoned("c", 0.2), uncordoned("d", 0.3, "a"),
        uncordoned("e", 0.4, "b"), uncordoned("f", 0.5, "c"),
    )  # fmt: skip

    assert shape(lines) == [("a", 0), ("b", 1), ("e", 2), ("d", 1), ("c", 0), ("f", 1)]


@pytest.mark.parametrize("causes", [["a"], ["b", "a"], ["c", "a", "b"]])
def test_causes_in_a_circle_are_cut(causes: list[str]) -> None:
    """Whatever is in the stream, each event is told once, and it ends."""
    events = [uncordoned(name, i, cause) for i, (name, cause) in enumerate(zip("abc", causes, strict=False))]

    lines = told(*events)

    assert sorted(line.id for line in lines) == sorted(event.id for event in events)
    assert lines[0].depth == 0
    assert all(below.depth <= above.depth + 1 for above, below in pairwise(lines))


def test_an_event_that_is_in_the_stream_twice_is_told_once() -> None:
    """A service that starts anew may say the last thing again."""
    assert len(told(uncordoned("a"), uncordoned("a"), uncordoned("b", 5000), uncordoned("a", 5000))) == 2


def test_an_event_of_a_newer_version_is_told_by_its_type() -> None:
    """It happened, whether this version has words for it or not."""
    (line,) = told(Unknown("gpu.healed.v1", "a newer kind"))

    assert (line.type, line.text) == ("gpu.healed.v1", "gpu.healed.v1: cannot be read: a newer kind")


def test_what_is_told_as_it_happens_goes_on_under_its_cause() -> None:
    """With --follow little is at hand at a time; the branch that was told last goes on."""
    teller = Teller()
    teller.add(seen(uncordoned("a")))
    teller.add(seen(uncordoned("b", 0.1, "a"), 2))
    first = teller.flush()
    teller.add(seen(uncordoned("c", 2, "b"), 3))
    teller.add(seen(uncordoned("d", 2, "a"), 4))

    assert shape([*first, *teller.flush()]) == [("a", 0), ("b", 1), ("c", 2), ("d", 1)]


def test_only_so_much_is_remembered() -> None:
    """A worker that never rests does not fill the memory, and no event is left out."""
    teller = Teller()
    count = MAX_KNOWN + 2 * MAX_SCENE
    lines = [line for i in range(count) for line in teller.add(seen(uncordoned(f"e{i}", i / 100), i))]

    assert len(lines) + len(teller.flush()) == count == teller.told
    assert len(teller._known) <= MAX_KNOWN
    assert len(teller._scene) <= MAX_SCENE


def test_a_hold_in_words_says_whose_it_is() -> None:
    """Also as a field of its own, for scripts."""
    placed, refused = told(
        e.HoldPlaced(id="1", **at(0), worker=REF, hold=DIMM),
        e.HoldOverridden(id="2", **at(1), worker=REF, hold=CORDON, by="eve", why="needed"),
    )

    assert (placed.by, refused.by) == ("ops@example.com", "eve")
