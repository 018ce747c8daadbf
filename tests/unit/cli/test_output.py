"""What is printed, on a terminal and in a pipe."""

from datetime import timedelta

import pytest

from lockstep.cli.output import ago, document, span, styled
from tests.builders import NOW
from tests.unit.cli.seen import captured


def test_a_pipe_gets_plain_text_of_any_width() -> None:
    """No colour, nothing cut, no blanks at the end of a line."""
    out, text, _ = captured()
    out.table(["A", "B"], [["idle", "x" * 100]])

    assert text.getvalue() == f"A      B\nidle   {'x' * 100}\n"


def test_a_terminal_gets_colour_unless_no_color_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """NO_COLOR is respected."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    out, text, _ = captured(terminal=True)
    out.line(styled("idle"))
    monkeypatch.setenv("NO_COLOR", "1")
    plain, plain_text, _ = captured(terminal=True)
    plain.line(styled("idle"))

    assert "\x1b[32m" in text.getvalue()
    assert plain_text.getvalue() == "idle\n"


def test_a_terminal_gets_lines_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long reason is cut with an ellipsis instead of making two lines of one."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("NO_COLOR", "1")
    out, text, _ = captured(terminal=True)
    out.table(["WORKER", "REASON"], [["gpu-7", "x" * 100], ["gpu-8", "short"]])

    lines = text.getvalue().splitlines()
    assert len(lines) == 3
    assert lines[1].startswith("gpu-7    xxx")
    assert lines[1].endswith("…")
    assert all(len(line) <= 40 for line in lines)


def test_text_from_outside_is_neither_markup_nor_control() -> None:
    """A reason cannot colour, move the cursor, or make a second line."""
    out, text, beside = captured()
    out.table(["REASON"], [["[red]x[/red] \x1b[2J\x07 a\nb :smile:"]])
    out.note("\x1b]0;title\x07 gone")

    assert text.getvalue().splitlines()[1] == "[red]x[/red] [2J a b :smile:"
    assert "\x1b" not in beside.getvalue()


def test_an_empty_cell_is_a_dash() -> None:
    """A column never vanishes."""
    assert styled("").plain == "-"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (119, "119s"), (600, "10m"), (7500, "2h5m"), (90000, "25h"), (864000, "10d")]
)
def test_a_span_is_told_in_units_for_people(seconds: float, text: str) -> None:
    """At most two units."""
    assert span(seconds) == text


def test_times_are_told_from_now() -> None:
    """Past, future and never."""
    assert ago(NOW - timedelta(minutes=5), NOW) == "5m"
    assert ago(NOW + timedelta(minutes=5), NOW) == "in 5m"
    assert ago(None, NOW) == "-"


def test_documents_end_with_a_newline_and_keep_the_order_of_fields() -> None:
    """JSON and YAML for scripts."""
    assert document({"b": 1, "a": "ü"}, "json") == '{\n  "b": 1,\n  "a": "ü"\n}\n'
    assert document({"b": 1, "a": "ü"}, "yaml") == "b: 1\na: ü\n"
