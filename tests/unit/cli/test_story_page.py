"""A story as a page: it needs nothing, runs nothing, and shows text as text."""

import re
from collections import Counter
from datetime import timedelta
from html.parser import HTMLParser

import pytest

from lockstep.bus.envelope import Unknown
from lockstep.cli.story_chart import WIDTH, rows_of, svg
from lockstep.cli.story_page import Heading, page
from lockstep.cli.telling import Teller
from lockstep.contracts import events as e
from lockstep.contracts.common import WorkerRef
from tests.builders import NOW, a_view
from tests.unit.cli.life import HOST, REF, a_life, at, seen, told

END = NOW + timedelta(hours=5)
HOSTILE = "\"'><script>alert(1)</script><img src=//evil>\x1b[31m\u202egpj.exe\u200f&lt; ${7*7}"


class Reader(HTMLParser):
    """What a browser makes of a page: its tags, attributes and text."""

    VOID = frozenset({"meta", "rect", "line"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """A tag that opens."""
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in self.VOID or (tag == "rect" and not (self.get_starttag_text() or "").endswith("/>")):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """A tag that is closed at once."""
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        """A tag that closes what was opened last."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Text that is seen."""
        if "style" not in self.open:
            self.text += data


def a_page(*events: e.Event | Unknown, link: str = "", worker: str = "main/gpu-7") -> str:
    """The page of these events."""
    heading = Heading(worker=worker, since=None, until=END, summary="1 drain")
    return page(heading, told(*events), lambda _: link)


def hostile_life() -> list[e.Event | Unknown]:
    """Events that say the worst in each of their texts."""
    ref = WorkerRef(cluster="main", name="gpu-7", kube_node=HOSTILE, pod=HOSTILE)
    return [
        e.NodeCordoned(id=HOSTILE, **at(0), node=HOSTILE, by=HOSTILE, reason=HOSTILE, cause_id="x" + HOSTILE),
        e.HoldPlaced(id="1", **at(1), worker=ref, hold=a_view(id=HOSTILE, owner=HOSTILE, reason=HOSTILE)),
        e.SlurmPhaseChanged(id="2", **at(2), worker=ref, before=HOSTILE, after=HOSTILE),
        e.SourceLost(id="3", **at(3), source=HOSTILE, of=HOSTILE, error=HOSTILE),
        e.SlurmReasonChanged(id="4", **at(4), worker=ref, before=HOSTILE, after=HOSTILE, by=HOSTILE),
        Unknown(HOSTILE, HOSTILE),
    ]


def test_the_page_has_every_event_with_its_fields() -> None:
    """Each is a line that opens to all that the event says."""
    reader = Reader(a_page(*a_life()))

    assert reader.open == []
    assert reader.tags["details"] == len(told(*a_life()))
    assert f"{len(a_life())} events." in reader.text
    assert reader.text.count("slurm-node.phase-changed.v1") == 3
    assert "drained after 2 h 13 min, waited for job 4242" in reader.text
    assert "waiting_for.0.user" in reader.text
    assert "1 h 13 min later" in reader.text


def test_the_page_needs_nothing_from_elsewhere_and_runs_nothing() -> None:
    """A policy in the page says so to the browser; the style is allowed by its digest alone."""
    text = a_page(*a_life())
    reader = Reader(text)

    assert not reader.tags.keys() & {"script", "link", "img", "iframe", "object", "form", "base"}
    assert not [name for _, name, _ in reader.attributes if name in {"src", "style", "href"} or name.startswith("on")]
    policy = next(value for _, name, value in reader.attributes if name == "content" and "default-src" in value)
    assert re.fullmatch(
        r"default-src 'none'; style-src 'sha256-[\w+/]{43}='; base-uri 'none'; form-action 'none'", policy
    )
    assert "url(" not in text
    assert "@import" not in text


def test_hostile_text_is_shown_as_text() -> None:
    """In the list, in the chart, in fields, in attributes and in the title."""
    plain, hostile = Reader(a_page(*a_life())), Reader(a_page(*hostile_life(), worker=HOSTILE))

    assert hostile.open == []
    assert hostile.tags.keys() <= plain.tags.keys()
    assert {name for _, name, _ in hostile.attributes} == {name for _, name, _ in plain.attributes}
    assert "<script>alert(1)</script>" in hostile.text
    assert all(c.isprintable() or c == "\n" for c in hostile.text)
    assert not set(hostile.text) & set("\u202e\u200f\x1b")


@pytest.mark.parametrize(("link", "shown"), [("https://traces/1?a=1&b=2", 1), ("javascript:alert(1)", 0), ("", 0)])
def test_a_trace_is_linked_where_it_is_an_address(link: str, shown: int) -> None:
    """And nothing else is."""
    teller = Teller()
    teller.add(seen(a_life()[0], 1, "00-a-b-01"))
    text = page(Heading(worker="w", since=None, until=END, summary=""), teller.flush(), lambda _: link)

    assert Reader(text).tags["a"] == shown
    assert ("javascript" in text) is False


def test_an_empty_story_is_a_page_too() -> None:
    """It says that nothing happened."""
    assert "Nothing happened." in Reader(a_page()).text


def test_the_chart_has_a_row_for_each_thing_that_lasts() -> None:
    """What it was when: from the first change back to the beginning, and what lasts has no end."""
    rows = {row.title: row for row in rows_of(a_life(), NOW)}

    assert list(rows) == ["Slurm", "Drain", "Pod", "cordon/host-7", "hold/slurm/dimm", "slurm.node lost"]
    assert [s.what for s in rows["Slurm"].stretches] == ["busy", "draining", "drained", "idle"]
    assert [s.what for s in rows["Drain"].stretches] == ["draining", "drained"]
    assert [s.end is None for s in rows["Slurm"].stretches] == [False, False, False, True]
    (lost,) = rows["slurm.node lost"].stretches
    assert (lost.start, lost.end) == (NOW + timedelta(seconds=1800), NOW + timedelta(seconds=1835))


def test_the_chart_is_in_the_order_of_time_whatever_stands_under_what() -> None:
    """The list goes by causes; what was when does not."""
    a, b, c = (
        e.SlurmPhaseChanged(id=f"{i}", **at(i * 0.4), worker=REF, before=p, after=q, cause_id=cause)
        for i, (p, q, cause) in enumerate([("idle", "busy", ""), ("busy", "draining", ""), ("draining", "idle", "0")])
    )

    heading = Heading(worker="w", since=None, until=NOW + timedelta(seconds=2), summary="")
    drawn = re.findall(r'class="b (\w+)"', page(heading, told(a, b, c), str))

    assert [line.id for line in told(a, b, c)] == ["0", "2", "1"]
    assert drawn == ["busy", "draining", "idle"]


def test_what_began_before_the_chart_begins_with_it() -> None:
    """A hold that is only seen to end was there before, and so was an outage."""
    freed = e.HoldReleased(id="1", **at(600), worker=REF, hold=a_view(since=NOW - timedelta(days=1)))
    back = e.SourceBack(id="2", **at(600), source="kube", of="_site", lost_for_s=9000)

    assert [row.stretches[0].start for row in rows_of([freed, back], NOW)] == [NOW, NOW]


def test_thousands_of_stretches_are_drawn_as_what_can_be_seen() -> None:
    """A bar a pixel at most; the page stays small."""
    flips = [
        e.SlurmPhaseChanged(id=str(i), **at(i), worker=REF, before=p, after=q)
        for i, (p, q) in enumerate([("idle", "busy"), ("busy", "idle")] * 20_000)
    ]

    drawn = svg(rows_of(flips, NOW), NOW, NOW + timedelta(seconds=40_000))

    assert drawn.count('class="b ') <= WIDTH


def test_a_chart_of_no_time_is_drawn() -> None:
    """One event alone, at the end of the stretch."""
    event = e.NodeRebooted(id="1", **at(0), node=HOST, before="a", after="b")
    assert Reader(page(Heading(worker="w", since=NOW, until=NOW, summary=""), told(event), str)).open == []
