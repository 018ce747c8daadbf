"""What the command prints: tables for people, JSON and YAML for scripts.

Text from outside is shown as text: never as markup, on one line, without control characters.
"""

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, TextIO

import msgspec
import yaml
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from lockstep.base.text import one_line

CELL = 120
"""Characters of one cell, at most; `-o wide` and `-o json` have the rest."""
STYLES = {
    "idle": "green",
    "busy": "cyan",
    "draining": "yellow",
    "drained": "blue",
    "down": "red",
    "power": "magenta",
    "unknown": "red",
    "overdue": "bold red",
    "waiting": "yellow",
    "refused": "red",
    "expired": "dim",
    "ok": "green",
    "warn": "yellow",
    "fail": "bold red",
    "stale": "red",
}
"""The colour of a word, by its first part in small letters."""
NONE = "-"
GAP = "   "
PIPE_WIDTH = 100_000
"""Nothing is cut where no person looks."""


class Out:
    """Where a command writes: results to `out`, remarks and errors to `err`. Colour only on a terminal."""

    def __init__(self, out: TextIO | None = None, err: TextIO | None = None, *, form: str = "text") -> None:
        self.out = _console(out or sys.stdout)
        self.err = _console(err or sys.stderr)
        self.form = form
        """`json`: what is told is one JSON document a line."""

    @property
    def is_terminal(self) -> bool:
        """Whether a person looks at the results as they come."""
        return self.out.is_terminal

    @property
    def width(self) -> int:
        """Cells of a line; in a pipe more than any line has."""
        return self.out.width

    def line(self, text: str | Text = "") -> None:
        """One line of the result."""
        self.out.print(text, soft_wrap=True)

    def tell(self, text: str, about: Any) -> None:
        """What was done or has happened: in words for people, or `about` as JSON for scripts. At once, also piped."""
        if self.form == "json":
            self.raw(msgspec.json.encode(about).decode() + "\n")
        else:
            self.line(text)
        self.out.file.flush()

    def note(self, text: str) -> None:
        """A remark, for people, beside the result."""
        self.err.print(one_line(text, limit=600), soft_wrap=True)

    def raw(self, text: str) -> None:
        """A document, as it is."""
        self.out.file.write(text)

    def table(self, headers: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Columns without a frame. On a terminal a line is cut to fit; in a pipe nothing is."""
        lines = [[one_line(cell, limit=CELL) or NONE for cell in row] for row in rows]
        widths = [max(map(cell_len, column)) for column in zip(headers, *lines, strict=True)]
        for line in [list(headers), *lines]:
            padded = [set_cell_size(cell, width) for cell, width in zip(line, widths, strict=True)]
            if not self.is_terminal:
                self.raw(GAP.join(padded).rstrip() + "\n")
                continue
            styles = ["dim" if line == headers else style_of(cell) for cell in line]
            shown = Text(GAP).join(Text(cell, style) for cell, style in zip(padded, styles, strict=True))
            self.out.print(shown, no_wrap=True, overflow="ellipsis", crop=True)


def _console(file: TextIO) -> Console:
    plain = not file.isatty()
    return Console(
        file=file,
        markup=False,
        highlight=False,
        emoji=False,
        color_system=None if plain or os.environ.get("NO_COLOR") else "auto",
        force_terminal=not plain,
        width=PIPE_WIDTH if plain else None,
    )


def styled(text: str) -> Text:
    """A text with the colour of its first word."""
    return Text(one_line(text, limit=CELL) or NONE, style=style_of(text))


def style_of(text: str) -> str:
    """The colour of a text's first word."""
    return STYLES.get(text.split(" ", 1)[0].rstrip(":,").lower(), "")


def document(value: Any, form: str) -> str:
    """`value` as JSON or YAML, with its fields in their order."""
    plain = msgspec.to_builtins(value)
    if form == "yaml":
        return str(yaml.dump(plain, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120))
    return msgspec.json.format(msgspec.json.encode(plain), indent=2).decode() + "\n"


def show(
    out: Out,
    form: str,
    kind: str,
    items: Sequence[Any],
    *,
    names: Callable[[Any], str],
    columns: Callable[[Any, bool], dict[str, str]],
) -> None:
    """A list in the form asked for: table, wide, json, yaml or name."""
    if form == "name":
        out.raw("".join(one_line(names(item), limit=CELL) + "\n" for item in items))
    elif form in {"json", "yaml"}:
        out.raw(document({"kind": kind, "items": list(items)}, form))
    elif items:
        rows = [columns(item, form == "wide") for item in items]
        out.table(list(rows[0]), [list(row.values()) for row in rows])
    else:
        out.note(f"No {kind.removesuffix('List').lower()}s.")


_Dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
"""The quick one, where the YAML library was built with it."""


def ago(at: datetime | None, now: datetime) -> str:
    """How long ago something was, or in how long it will be: `3h`, `in 20m`."""
    if at is None:
        return NONE
    seconds = (now - at).total_seconds()
    return span(seconds) if seconds >= 0 else f"in {span(-seconds)}"


def span(seconds: float) -> str:
    """A length of time in its two largest units: `45s`, `3h12m`, `12d`."""
    whole = int(seconds)
    if whole < 120:
        return f"{whole}s"
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if minutes < 120:
        return f"{minutes}m"
    if hours < 48:
        rest = minutes % 60
        return f"{hours}h{rest}m" if rest and hours < 10 else f"{hours}h"
    return f"{days}d"
