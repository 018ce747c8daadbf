"""A story on a terminal: a heading for each day, the time at the margin, causes to the left of what they led to."""

from collections.abc import Callable, Iterator
from datetime import datetime

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from lockstep.cli.telling import Line, gap_words

STYLES = {
    "node": "cyan",
    "pod": "cyan",
    "hold": "yellow",
    "drain": "magenta",
    "slurm-node": "blue",
    "job": "blue",
    "worker": "green",
    "request": "bold",
    "source": "dim",
    "fleet": "dim",
}
"""The colour of an event by its noun."""
BAD = frozenset(
    {"drain.overdue", "hold.refused", "hold.overridden", "request.refused", "worker.drift-found"}
    | {"worker.write-refused", "slurm-node.vanished", "node.rebooted", "node.gone"}
)
"""What a person looks for first when something went wrong."""
TIME_CELLS = 10
STEP = 2
MAX_STEPS = 8
"""Deeper lines are not moved further to the right: their text would have no room."""


def lines_of(line: Line, last: datetime | None, *, width: int, link: Callable[[str], str]) -> Iterator[Text]:
    """The line of an event, and what has to stand before it: the day, or how long nothing happened."""
    if last is None or last.date() != line.at.date():
        yield Text(("" if last is None else "\n") + f"{line.at:%A, %Y-%m-%d} (UTC)", "bold")
    if gap := gap_words(line):
        yield Text(" " * TIME_CELLS + f"… {gap}", "dim")
    indent = min(TIME_CELLS + STEP * min(line.depth, MAX_STEPS), width // 2)
    text = Text(line.text, style_of(line.type))
    if line.because:
        text.append(f"  because of {line.because}", "dim")
    yield from _hung(f"{line.at:%H:%M:%S}", text, indent, width)
    if not line.depth and line.traceparent and (url := link(line.traceparent)):
        yield Text(" " * (indent + STEP) + url, "dim")


def style_of(kind: str) -> str:
    """The colour of a type of event; of one that is not known here none."""
    noun, _, rest = kind.partition(".")
    return "bold red" if f"{noun}.{rest.partition('.')[0]}" in BAD else STYLES.get(noun, "")


def _hung(time: str, text: Text, indent: int, width: int) -> Iterator[Text]:
    """The text in as many lines as it needs, all of them behind the time."""
    room = width - indent
    parts = [text] if cell_len(text.plain) <= room else text.wrap(Console(width=room), room)
    for index, part in enumerate(parts):
        part.rstrip()
        yield Text.assemble((time.ljust(indent), "dim") if not index else " " * indent, part)
