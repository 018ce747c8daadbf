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
from rich.console import Console
from rich.table import Table
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
PIPE_WIDTH = 100_000
"""Nothing is cut where no person looks."""


class Out:
    """Where a command writes: results to `out`, remarks and errors to `err`. Colour only on a terminal."""

    def __init__(self, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self.out = _console(out or sys.stdout)
        self.err = _console(err or sys.stderr)

    @property
    def is_terminal(self) -> bool:
        """Whether a person looks at the results as they come."""
        return self.out.is_terminal

    def line(self, text: str | Text = "") -> None:
        """One line of the result."""
        self.out.print(text, soft_wrap=True)

    def note(self, text: str) -> None:
        """A remark, for people, beside the result."""
        self.err.print(one_line(text, limit=600), soft_wrap=True)

    def raw(self, text: str) -> None:
        """A document, as it is."""
        self.out.file.write(text)

    def table(self, headers: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Columns without a frame. On a terminal the last column is cut to fit; in a pipe nothing is."""
        table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
        for i, header in enumerate(headers):
            last = i == len(headers) - 1
            table.add_column(header, no_wrap=True, overflow="ellipsis", min_width=None if last else len(header))
        for row in rows:
            table.add_row(*(styled(cell) for cell in row))
        if self.is_terminal:
            self.out.print(table)
            return
        with self.out.capture() as shown:
            self.out.print(table)
        self.raw("".join(line.rstrip() + "\n" for line in shown.get().splitlines()))


def _console(file: TextIO) -> Console:
    plain = not file.isatty()
    return Console(
        file=file,
        markup=False,
        highlight=False,
        emoji=False,
        no_color=plain or "NO_COLOR" in os.environ,
        force_terminal=not plain,
        width=PIPE_WIDTH if plain else None,
    )


def styled(cell: str) -> Text:
    """A cell with the colour of its first word."""
    text = one_line(cell, limit=CELL) or NONE
    first = text.split(" ", 1)[0].rstrip(":,").lower()
    return Text(text, style=STYLES.get(first, ""))


def document(value: Any, form: str) -> str:
    """`value` as JSON or YAML, with its fields in their order."""
    plain = msgspec.to_builtins(value)
    if form == "yaml":
        return str(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=120))
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
        for item in items:
            out.line(names(item))
    elif form in {"json", "yaml"}:
        out.raw(document({"kind": kind, "items": list(items)}, form))
    elif items:
        rows = [columns(item, form == "wide") for item in items]
        out.table(list(rows[0]), [list(row.values()) for row in rows])
    else:
        out.note(f"No {kind.removesuffix('List').lower()}s.")


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
