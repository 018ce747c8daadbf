"""A worker's story as stretches of time: what it was when, drawn as SVG. Pure."""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from html import escape

import msgspec

from lockstep.base.text import one_line
from lockstep.bus.envelope import Unknown
from lockstep.cli.moments import lasting
from lockstep.contracts import events as e
from lockstep.contracts.facts import HoldView

MAX_HOLDS = 12
"""Rows of holds; the newest are drawn."""
MAX_STRETCHES = 4000
"""So many of one row are drawn at least, the newest."""
WIDTH, LEFT, ROW, BAR = 960, 150, 26, 16
_STEPS_S = (1, 5, 15, 60, 300, 900, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86400, 2 * 86400, 7 * 86400)


class Stretch(msgspec.Struct):
    """Something that lasted. Without an end it still does."""

    what: str
    start: datetime
    end: datetime | None = None
    note: str = ""


class Row(msgspec.Struct):
    """One line of the chart."""

    title: str
    stretches: list[Stretch] = []

    def begin(self, what: str, at: datetime, note: str = "") -> None:
        """Something else begins, and ends what was."""
        self.end(at)
        self.stretches.append(Stretch(what, at, None, note))
        if len(self.stretches) > 2 * MAX_STRETCHES:
            del self.stretches[:MAX_STRETCHES]

    def end(self, at: datetime) -> None:
        """What is, ends."""
        if self.stretches and self.stretches[-1].end is None:
            self.stretches[-1].end = max(at, self.stretches[-1].start)


def rows_of(events: Iterable[e.Event | Unknown], since: datetime) -> list[Row]:  # noqa: PLR0912  one case an event
    """The rows of a chart that begins at `since`: Slurm, the drain, the pod, each hold, and what could not be read."""
    slurm, drain, pod = Row("Slurm"), Row("Drain"), Row("Pod")
    holds: dict[str, Row] = {}
    sources: dict[tuple[str, str], Row] = {}
    for event in events:
        match event:
            case e.SlurmPhaseChanged():
                _changed(slurm, event.before, event.after, event.at, since)
            case e.PodEvent():
                _changed(pod, event.before, event.after, event.at, since)
            case e.DrainCancelled() | e.DrainEnded():
                _known(drain, event.before.value, since)
                drain.end(event.at)
            case e.DrainEvent():
                what = "draining" if event.after == "waiting" else event.after.value
                if not drain.stretches or drain.stretches[-1].end or drain.stretches[-1].what != what:
                    drain.begin(what, event.at)
            case e.HoldPlaced() | e.ForeignDrainRespected():
                hold_row(holds, event.hold).begin("hold", event.at, _note(event.hold))
            case e.HoldReleased() | e.HoldExpired():
                row = hold_row(holds, event.hold)
                if not row.stretches:
                    row.begin("hold", max(since, event.hold.since or since), _note(event.hold))
                row.end(event.at)
            case e.SourceLost():
                title = f"{event.source} lost"
                sources.setdefault((event.source, event.of), Row(title)).begin("lost", event.at, event.error)
            case e.SourceBack():
                row = sources.setdefault((event.source, event.of), Row(f"{event.source} lost"))
                if not row.stretches and event.lost_for_s:
                    row.begin("lost", max(since, event.at - timedelta(seconds=event.lost_for_s)))
                row.end(event.at)
            case _:
                pass
    rows = [slurm, drain, pod, *list(holds.values())[-MAX_HOLDS:], *sources.values()]
    return [row for row in rows if row.stretches]


def hold_row(rows: dict[str, Row], hold: HoldView) -> Row:
    """The row of a hold."""
    return rows.setdefault(hold.id, Row(hold.id))


def _note(hold: HoldView) -> str:
    return f"{hold.owner}: {hold.reason}"


def _known(row: Row, what: str, since: datetime) -> None:
    if not row.stretches and what and what != "none":
        row.begin(what, since)


def _changed(row: Row, before: str, after: str, at: datetime, since: datetime) -> None:
    _known(row, before, min(since, at))
    if after and after != "gone":
        row.begin(after, at)
    else:
        row.end(at)


def svg(rows: list[Row], since: datetime, until: datetime) -> str:
    """The chart. Colours are classes, for the page's style sheet; every text is escaped."""
    until = max(until, since + timedelta(seconds=1))
    height = ROW * len(rows) + 34
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="Phases, drains and holds over time">',
        *_axis(since, until, ROW * len(rows)),
    ]
    for index, row in enumerate(rows):
        y = index * ROW + 4
        title = escape(one_line(row.title, limit=60))
        shown = escape(one_line(row.title, limit=21))
        parts.append(f'<text class="t" x="{LEFT - 10}" y="{y + 12}"><title>{title}</title>{shown}</text>')
        parts.append(f'<rect class="lane" x="{LEFT}" y="{y}" width="{WIDTH - LEFT}" height="{BAR}"/>')
        parts += _bars(row, y, since, until)
    return "\n".join([*parts, "</svg>"])


def _bars(row: Row, y: int, since: datetime, until: datetime) -> Iterator[str]:
    """The stretches as bars. Of many that share a pixel the first is drawn."""
    drawn = -1.0
    for stretch in row.stretches:
        start, end = max(stretch.start, since), min(stretch.end or until, until)
        x, right = _x(start, since, until), _x(end, since, until)
        if end <= start or right <= drawn:
            continue
        drawn = max(right, x + 1)
        lasted = lasting((end - stretch.start).total_seconds())
        still = "" if stretch.end else " so far"
        note = f"{stretch.what}: {stretch.start:%Y-%m-%d %H:%M:%S}, {lasted}{still}. {stretch.note}"
        kind = stretch.what if stretch.what.isalpha() and stretch.what.isascii() else "unknown"
        tip = f"<title>{escape(one_line(note, limit=300))}</title>"
        width = max(1.0, right - x)
        yield f'<rect class="b {escape(kind)}" x="{x:.1f}" y="{y}" width="{width:.1f}" height="{BAR}">{tip}</rect>'
        label = stretch.note if stretch.what == "hold" else stretch.what
        room = int(width / 6.5)
        if label and room > len(stretch.what) + 1:
            yield f'<text class="l" x="{x + 5:.1f}" y="{y + 12}">{escape(one_line(label, limit=room))}</text>'


def _axis(since: datetime, until: datetime, bottom: int) -> Iterator[str]:
    lasts = (until - since).total_seconds()
    step = next((s for s in _STEPS_S if lasts / s <= 10), _STEPS_S[-1])
    at = datetime.fromtimestamp((since.timestamp() // step + 1) * step, since.tzinfo)
    form = "%H:%M:%S" if step < 60 else "%H:%M" if step < 86400 else "%d %b"
    day = since.date() if lasts < 86400 else None
    while at < until:
        x = _x(at, since, until)
        label = at.strftime(form) if day == at.date() or step >= 86400 else at.strftime("%d %b %H:%M")
        yield f'<line class="g" x1="{x:.1f}" y1="0" x2="{x:.1f}" y2="{bottom + 4}"/>'
        if LEFT + 20 < x < WIDTH - 20:
            yield f'<text class="a" x="{x:.1f}" y="{bottom + 20}">{label}</text>'
        at += timedelta(seconds=step)


def _x(at: datetime, since: datetime, until: datetime) -> float:
    return LEFT + (WIDTH - LEFT) * ((at - since) / (until - since))
