"""The table, the picture and the files of ``docs/bench``."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from tests.bench.cost import MACHINE
from tests.bench.picture import Bar, picture
from tests.lab import paths

FOLDER = paths.CHECKOUT / "docs" / "bench"
TEMPLATE = Path(__file__).with_name("page.md")
Result = dict[str, Any]
Numbers = dict[str, float]

OWN = ("lockstep", "nats-server")
"""Lockstep's processes, as the kernel names them."""
ONE = {"p50_s": "p50 {}", "p99_s": "p99 {}", "max_s": "max {}"}
ALL = {"all_s": "{}"}
AFTER = {"all_s": "{}", "from_first_s": "{} after the first"}
COST = {"core_share": "{} of a core", "rss_mib": "{}"}


class Row(NamedTuple):
    """One line of the table; `target` and `operator` by the keys of the leg's numbers.

    `floor` is what the lab needs for the same without any of our work. `operator` is what slurm-operator 1.2.1 needed
    with 1,000 workers on the same lab, alone.
    """

    what: str
    leg: str
    shown: dict[str, str]
    target: Numbers
    floor: str
    operator: Numbers


_QUICK, _SHOWN = {"p50_s": 0.05, "p99_s": 0.25}, {"p50_s": 0.5, "p99_s": 1.5}
ROWS = (
    Row("cordon → DRAIN", "cordon", ONE, _QUICK, "15 ms", {"p50_s": 5.2, "max_s": 7.2}),
    Row("uncordon → no DRAIN", "uncordon", ONE, _QUICK, "23 ms", {}),
    Row("drain in Slurm → pod condition", "drain", ONE, _SHOWN, "0.25 s", {"p50_s": 3.0, "max_s": 23.8}),
    Row("undrain in Slurm → no pod condition", "undrain", ONE, _SHOWN, "0.25 s", {}),
    Row("last of all cordons → all DRAIN", "cordon-all", AFTER, {"all_s": 1.0}, "0.15 s", {"from_first_s": 25.4}),
    Row("last of all uncordons → none DRAIN", "uncordon-all", AFTER, {"all_s": 1.0}, "0.15 s", {"from_first_s": 36.9}),
    Row("all drained in Slurm → all pod conditions", "drain-all", ALL, {"all_s": 5.0}, "2.4 to 3.9 s", {"all_s": 11.6}),
    Row("all undrained in Slurm → no pod conditions", "undrain-all", ALL, {"all_s": 5.0}, "2.4 to 3.9 s", {}),
    Row("idle", "idle", COST, {"core_share": 0.05, "rss_mib": 400}, "", {"core_share": 0.178, "rss_mib": 196}),
)
OPERATOR_WORKERS = 1000
"""With so many slurm-operator was measured; runs with others are not compared."""
HEAD = ("", "target", "floor", "slurm-operator 1.2.1", "Lockstep", "ratio")


def table(result: Result) -> str:
    """The table for a terminal."""
    rows = [HEAD, *_cells(result)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def write(result: Result) -> None:
    """Write results.json, latency.svg and README.md."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "results.json").write_text(json.dumps(_rounded(result), indent=1) + "\n")
    (FOLDER / "latency.svg").write_text(picture(_bars(result)))
    (FOLDER / "README.md").write_text(_page(result))


def missed(result: Result) -> list[str]:
    """The targets that were not reached."""
    found = []
    for row in ROWS:
        numbers = _numbers(result, row.leg)
        for key, limit in row.target.items():
            if key in numbers and numbers[key] > limit:
                found.append(f"{row.what}: {_said(key, numbers[key])}, target {_said(key, limit)}")
    return found


def _numbers(result: Result, leg: str) -> Numbers:
    found = result["legs"].get(leg, {})
    if leg != "idle":
        return dict(found)
    return {key: sum(numbers[key] for name, numbers in found.items() if name in OWN) for key in COST if found}


def _cells(result: Result) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for row in ROWS:
        numbers = _numbers(result, row.leg)
        if numbers:
            operator = row.operator if result["workers"] == OPERATOR_WORKERS else {}
            compared = next((key for key in operator if key in row.shown and key in numbers), "")
            ratio = operator[compared] / numbers[compared] if compared and numbers[compared] else 0
            target = "≤ " + _list(row, row.target)
            found.append((row.what, target, row.floor, _list(row, operator), _list(row, numbers), _times(ratio)))
    return found


def _list(row: Row, numbers: Numbers) -> str:
    return ", ".join(form.format(_said(key, numbers[key])) for key, form in row.shown.items() if key in numbers)


def _times(ratio: float) -> str:
    return "" if not ratio else f"{ratio:.0f}x" if ratio >= 10 else f"{ratio:.1f}x"


def _said(key: str, value: float) -> str:
    match key:
        case "core_share":
            return f"{value * 100:.1f} %"
        case "rss_mib":
            return f"{value:.0f} MiB"
        case _:
            return f"{value * 1000:.0f} ms" if value < 0.5 else f"{value:.2f} s" if value < 10 else f"{value:.1f} s"


def _bars(result: Result) -> list[Bar]:
    found = []
    for row in ROWS:
        numbers = _numbers(result, row.leg)
        key = next((key for key in row.operator if key in numbers), "")
        if row.leg != "idle" and key:
            found.append(
                Bar(row.what, row.operator[key], numbers[key], _said(key, row.operator[key]), _said(key, numbers[key]))
            )
    return found


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _page(result: Result) -> str:
    lines = ["| " + " | ".join(cells) + " |" for cells in _cells(result)]
    head = "| " + " | ".join(HEAD) + " |\n" + "|---" * len(HEAD) + "|"
    faults = missed(result)
    verdict = "All targets are reached." if not faults else "Not reached: " + "; ".join(faults) + "."
    idle = result["legs"]["idle"].copy()
    busy = idle.pop(MACHINE)["core_share"] / result["machine"]["cores"]
    costs = [
        f"| {n} | {_said('core_share', c['core_share'])} | {_said('rss_mib', c['rss_mib'])} |" for n, c in idle.items()
    ]
    return TEMPLATE.read_text().format(
        workers=f"{result['workers']:,}",
        cores=result["machine"]["cores"],
        kubernetes=result["machine"]["kubernetes"],
        slurm=result["machine"]["slurm"],
        head=head,
        rows="\n".join(lines),
        verdict=verdict,
        costs="\n".join(costs),
        busy=_said("core_share", busy),
        start=_said("s", result["legs"]["start"]["protected_s"]),
        cordoning=_said("s", result["legs"]["cordon-all"]["cordoning_s"]),
        samples=int(result["legs"]["cordon"]["count"]),
    )
