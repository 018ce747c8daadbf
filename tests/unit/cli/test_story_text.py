"""A story on a terminal of 80 columns."""

import re

import pytest
from rich.cells import cell_len

from lockstep.bus.envelope import Unknown
from lockstep.cli.story_text import lines_of, style_of
from lockstep.cli.telling import Teller
from lockstep.contracts import events as e
from lockstep.contracts.subjects import tag_of
from tests.unit.cli.life import HOST, a_life, at, seen, told
from tests.unit.cli.seen import captured


def shown(*events: e.Event | Unknown, width: int = 80) -> list[str]:
    """The lines as they are printed."""
    texts, last = [], None
    for line in told(*events):
        texts += [text.plain for text in lines_of(line, last, width=width, link=lambda _: "")]
        last = line.at
    return texts


def test_the_story_of_a_cordon_reads_as_a_person_would_tell_it() -> None:
    """When, what, of what, and how long it was quiet."""
    assert shown(*a_life())[:11] == [
        "Tuesday, 2026-12-01 (UTC)",
        "12:00:00  node host-7 cordoned by alice: firmware",
        "12:00:00    held: cordon/host-7 of kubectl-cordon: Kubernetes node cordoned",
        "12:00:00      drain started, waits for 1 job",
        "12:00:00        DRAIN set in Slurm: lockstep: kubectl-cordon: Kubernetes node",
        "                cordoned",
        "12:00:00          busy → draining, Slurm MIXED → MIXED+DRAIN, with our reason",
        "12:00:00            drain waits for job 4242 of u1017, running",
        "          … 30 min later",
        "12:30:00  slurm.node of main cannot be read: slurmrestd does not answer",
        "12:30:35  slurm.node of main can be read again, after 35 s",
    ]


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    """Also where words are long or wide, and causes many."""
    chain = [
        e.NodeCordoned(id=f"e{i}", **at(i / 100), node=HOST, reason="机架 " + "x" * 100, cause_id=f"e{i - 1}")
        for i in range(30)
    ]

    assert max(map(cell_len, shown(*chain, width=width))) <= width


def test_colours_are_the_events_and_the_time_stands_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal; the same text without colour elsewhere."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    out, shown, _ = captured(terminal=True)
    plain, unstyled, _ = captured()
    for each in (out, plain):
        for line in told(a_life()[0]):
            for text in lines_of(line, line.at, width=80, link=str):
                each.line(text)

    assert re.fullmatch(r"\x1b\[2m12:00:00  \x1b\[0m\x1b\[36mnode host-7 .*\x1b\[0m\n", shown.getvalue())
    assert unstyled.getvalue() == "12:00:00  node host-7 cordoned by alice: firmware\n"


def test_a_new_day_has_a_heading_of_its_own() -> None:
    """Else a time would mean nothing."""
    first, second = (e.NodeUncordoned(id=str(i), **at(i), node=HOST) for i in (0, 90_000))

    assert [text for text in shown(first, second) if "UTC" in text] == [
        "Tuesday, 2026-12-01 (UTC)",
        "\nWednesday, 2026-12-02 (UTC)",
    ]


def test_text_from_outside_cannot_play_with_the_terminal() -> None:
    """No control characters, no marks that turn the line around, no second line."""
    hostile = "\x1b[2J\u202egpj.exe\r\n[red]bold[/red]"
    events = [
        e.NodeCordoned(id="1", **at(0), node=HOST, by=hostile, reason=hostile, cause_id=hostile),
        Unknown(hostile, hostile),
    ]

    texts = shown(*events, width=500)

    assert all(text.isprintable() for text in texts)
    assert any("[red]bold[/red]" in text for text in texts)


def test_a_trace_is_named_once_where_its_flow_begins() -> None:
    """Under the event at the margin; not again under each that came of it."""
    marked = [seen(event, i, f"trace-{i}") for i, event in enumerate(a_life()[:3])]
    teller = Teller()
    for each in marked:
        teller.add(each)
    texts = [t.plain for line in teller.flush() for t in lines_of(line, line.at, width=80, link=lambda t: f"see {t}")]

    assert [text.strip() for text in texts if "see" in text] == ["see trace-0"]


@pytest.mark.parametrize("kind", e.EVENT_TYPES, ids=tag_of)
def test_every_kind_of_event_has_a_colour(kind: type[e.Event]) -> None:
    """By its noun; what went wrong stands out."""
    assert style_of(tag_of(kind))


def test_what_a_worker_lost_stands_out() -> None:
    """A person looks for these first; a newer kind has no colour, and is shown."""
    assert style_of("drain.overdue.v1") == style_of("node.rebooted.v1") == "bold red"
    assert style_of("gpu.healed.v1") == ""
