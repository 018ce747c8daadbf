"""The table, the picture and the page of the stream's benchmark: ``docs/bench/stream.*``."""

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import linear_regression
from typing import Any, NamedTuple

from tests.bench.report import FOLDER, Result

TEMPLATE = Path(__file__).with_name("stream_page.md")
HEAD = ("", "target", "Lockstep")
WARM = 1 / 3
"""Share of the soak that memory is given to settle in."""
_FONT = 'font-family="sans-serif" font-size="13"'
_COLOURS = ("#1668b8", "#2f8f5b", "#b5651d")
_LEFT, _TOP, _WIDTH, _HEIGHT = 60, 44, 880, 300


class Row(NamedTuple):
    """One line: a number that must not be more (or, with `at_least`, not less) than its target."""

    what: str
    leg: str
    key: str
    form: str
    target: float | None = None
    at_least: bool = False


ROWS = (
    Row("published → handled by a subscriber, p50", "latency", "p50_s", "ms"),
    Row("the same, p99", "latency", "p99_s", "ms", 0.02),
    Row("events that one subscriber keeps up with", "backlog", "read_per_s", "rate", 10_000, at_least=True),
    Row("of that, its processor time for each event", "backlog", "read_cpu_us", "us"),
    Row("events that one service publishes", "backlog", "publish_per_s", "rate"),
    Row("of that, its processor time for each event", "backlog", "publish_cpu_us", "us"),
    Row("to decode and dispatch one event", "decode", "event_us", "us", 50),
    Row("to decode one fact and put it into the table", "decode", "fact_us", "us"),
    Row("soak: published → handled, p99", "soak", "p99_s", "ms"),
    Row("soak: memory of the subscriber grows in ten minutes by", "soak", "subscriber", "mib", 2),
    Row("soak: memory of the publisher grows in ten minutes by", "soak", "publisher", "mib", 2),
)


def table(result: Result) -> str:
    """The table for a terminal."""
    rows = [HEAD, *_cells(result)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    lines = ("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows)
    return "\n".join(lines)


def missed(result: Result) -> list[str]:
    """The targets that were not reached."""
    found = []
    for row in ROWS:
        number = _number(result, row)
        if number is None or row.target is None:
            continue
        if number < row.target if row.at_least else number > row.target:
            found.append(f"{row.what}: {_said(row.form, number)}, target {_said(row.form, row.target)}")
    return found


def growth_mib(samples: Sequence[Sequence[float]], column: int) -> float:
    """By how much memory grows in ten minutes, by a line through what comes after the first third."""
    late = [row for row in samples if row[0] >= samples[-1][0] * WARM]
    return linear_regression([row[0] for row in late], [row[column] for row in late]).slope * 600


def write(result: Result) -> None:
    """Write stream.json, stream.svg and stream.md."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "stream.json").write_text(json.dumps(_rounded(result), indent=1) + "\n")
    (FOLDER / "stream.svg").write_text(picture(result["legs"]["soak"]["rss_mib"]))
    (FOLDER / "stream.md").write_text(page(result))


def page(result: Result) -> str:
    """The page."""
    soak = result["legs"]["soak"]
    faults = missed(result)
    names = soak["rss_mib"]["columns"][1:]
    grown = {name: growth_mib(soak["rss_mib"]["rows"], n) for n, name in enumerate(names, 1)}
    last = dict(zip(names, soak["rss_mib"]["rows"][-1][1:], strict=True))
    costs = [f"| {n} | {soak['core_share'][n]:.1%} | {last[n]:.0f} MiB | {grown[n]:+.1f} MiB |" for n in names]
    return TEMPLATE.read_text().format(
        cores=result["cores"],
        load=result["load"],
        head="| " + " | ".join(HEAD) + " |\n" + "|---" * len(HEAD) + "|",
        rows="\n".join("| " + " | ".join(cells) + " |" for cells in _cells(result)),
        verdict="All targets are reached." if not faults else "Not reached: " + "; ".join(faults) + ".",
        costs="\n".join(costs),
        minutes=round(soak["seconds"] / 60),
        late=f"{soak['late_s']:.1f} s",
        read=_said("us", result["legs"]["backlog"]["read_cpu_us"]),
        decode=_said("us", result["legs"]["decode"]["event_us"]),
    )


def picture(samples: dict[str, Any]) -> str:
    """Memory over the soak, one line for each process, as a whole SVG file."""
    rows, names = samples["rows"], samples["columns"][1:]
    top = max(max(row[1:]) for row in rows) * 1.1
    last = rows[-1][0] or 1

    def at(second: float, mib: float) -> str:
        x = _LEFT + (_WIDTH - _LEFT - 20) * second / last
        y = _HEIGHT - 30 - (_HEIGHT - 30 - _TOP) * mib / top
        return f"{x:.1f},{y:.1f}"

    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" {_FONT}>'
    parts = [head, f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>']
    for share in (0.0, 0.5, 1.0):
        x, y = at(last * share, top * share).split(",")
        parts.append(f'<line x1="{_LEFT}" y1="{y}" x2="{_WIDTH - 20}" y2="{y}" stroke="#e3e6ea"/>')
        parts.append(f'<text x="{_LEFT - 8}" y="{y}" text-anchor="end" fill="#5a6470">{top * share:.0f} MiB</text>')
        parts.append(f'<text x="{x}" y="{_HEIGHT - 10}" text-anchor="end" fill="#5a6470">{last * share:.0f} s</text>')
    for number, (name, colour) in enumerate(zip(names, _COLOURS, strict=True), 1):
        points = " ".join(at(row[0], row[number]) for row in rows)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        x = _LEFT + 150 * (number - 1)
        parts.append(f'<rect x="{x}" y="12" width="12" height="12" fill="{colour}"/>')
        parts.append(f'<text x="{x + 18}" y="23" fill="#1b2026">{name}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _cells(result: Result) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for row in ROWS:
        number = _number(result, row)
        if number is not None:
            sign = "≥" if row.at_least else "≤"
            target = "" if row.target is None else f"{sign} {_said(row.form, row.target)}"
            found.append((row.what, target, _said(row.form, number)))
    return found


def _number(result: Result, row: Row) -> float | None:
    leg = result["legs"].get(row.leg)
    if leg is None:
        return None
    if row.form == "mib":
        samples = leg["rss_mib"]
        return growth_mib(samples["rows"], samples["columns"].index(row.key)) if len(samples["rows"]) > 3 else None
    return float(leg[row.key])


def _said(form: str, value: float) -> str:
    match form:
        case "ms":
            return f"{value * 1000:.3g} ms"
        case "us":
            return f"{value:.3g} µs"
        case "mib":
            return f"{value:.1f} MiB"
        case _:
            return f"{value:,.0f} a second"


def _rounded(value: Any) -> Any:
    match value:
        case dict():
            return {key: _rounded(inner) for key, inner in value.items()}
        case list():
            return [_rounded(inner) for inner in value]
        case float():
            return float(f"{value:.4g}")
        case _:
            return value
