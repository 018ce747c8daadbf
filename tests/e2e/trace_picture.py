"""`python -m tests.e2e.trace_picture`: cordons a worker on the lab, and draws what Jaeger shows of it.

Writes `docs/trace.svg`: a row for each span, below the one that it continues, over the time since the cordon was seen.
"""

import sys
from collections.abc import Sequence
from html import escape
from math import log10

from tests.e2e.site import Site, eventually
from tests.lab import paths
from tests.lab.jaeger import Span
from tests.lab.lab import Lab
from tests.lab.lockstep import Lockstep

FILE = paths.CHECKOUT / "docs" / "trace.svg"
WORKER = "gpu-1"
COLOURS = {
    "lockstep-pod-watcher": "#1668b8",
    "lockstep-drain": "#c2571a",
    "lockstep-reconciler": "#2e7d4f",
    "lockstep-slurm-poller": "#7a4fb5",
}
_LEFT, _RIGHT, _ROW, _TOP, _WIDTH, _INDENT = 460, 96, 21, 62, 1120, 11
_FONT = 'font-family="sans-serif" font-size="12"'
_TICKS = {0.1: "0.1 ms", 1.0: "1 ms", 10.0: "10 ms", 100.0: "100 ms", 1_000.0: "1 s", 10_000.0: "10 s"}
_SHORT = {"/api/v1/namespaces/{namespace}": "", "/api/v1": "", "/slurm/v0.0.45": ""}


def picture(spans: Sequence[Span]) -> str:
    """The trace as a whole SVG file. Pure."""
    began = min(span.start for span in spans)
    rows = in_order(spans)
    last = max((span.start + span.seconds - began) * 1_000 for span in spans)
    end = next((tick for tick in _TICKS if tick >= last), max(_TICKS))
    height = _TOP + _ROW * len(rows) + 34
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" {_FONT}>',
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        *_legend(),
    ]
    for at, label in _TICKS.items():
        if at <= end:
            x = _x(at, end)
            parts.append(f'<line x1="{x}" y1="{_TOP - 8}" x2="{x}" y2="{height - 30}" stroke="#e3e6ea"/>')
            parts.append(f'<text x="{x}" y="{height - 12}" text-anchor="middle" fill="#5a6470">{label}</text>')
    for number, (span, depth) in enumerate(rows):
        parts += _row(_TOP + number * _ROW, span, depth, (span.start - began) * 1_000, end)
    return "\n".join([*parts, "</svg>"]) + "\n"


def in_order(spans: Sequence[Span]) -> list[tuple[Span, int]]:
    """Each span below the one that it continues, the earlier first; and how deep it is."""
    below: dict[str, list[Span]] = {}
    known = {span.id for span in spans}
    for span in sorted(spans, key=lambda span: span.start):
        below.setdefault(span.parent if span.parent in known else "", []).append(span)
    rows: list[tuple[Span, int]] = []

    def add(parent: str, depth: int) -> None:
        for span in below.get(parent, []):
            rows.append((span, depth))
            add(span.id, depth + 1)

    add("", 0)
    return rows


def _legend() -> list[str]:
    found = []
    for number, (service, colour) in enumerate(COLOURS.items()):
        x = 14 + number * 190
        found.append(f'<rect x="{x}" y="14" width="12" height="12" rx="2" fill="{colour}"/>')
        found.append(f'<text x="{x + 18}" y="25" fill="#1b2026">{service}</text>')
    found.append(
        f'<text x="{_WIDTH - 14}" y="25" text-anchor="end" fill="#5a6470">since the cordon was seen, logarithmic</text>'
    )
    return found


def _row(y: int, span: Span, depth: int, start_ms: float, end: float) -> list[str]:
    colour = COLOURS.get(span.service, "#5a6470")
    left, right = _x(start_ms, end), _x(start_ms + span.seconds * 1_000, end)
    indent = 14 + depth * _INDENT
    took = span.seconds * 1_000
    label = f"{took:.1f} ms" if took < 100 else f"{took:.0f} ms"
    weight = ' font-weight="bold"' if span.kind != "producer" else ""
    return [
        f'<text x="{indent}" y="{y + 13}" fill="{colour}"{weight}>{escape(_name(span))}</text>',
        f'<rect x="{left}" y="{y + 3}" width="{max(right - left, 3):.1f}" height="13" rx="2" fill="{colour}"/>',
        f'<text x="{max(right, left + 3) + 6:.1f}" y="{y + 13}" fill="#5a6470" font-size="11">{label}</text>',
    ]


def _name(span: Span) -> str:
    name = span.name
    for long, short in _SHORT.items():
        name = name.replace(long, short)
    progress = span.tags.get("lockstep.progress")
    return f"{name}: {progress}" if progress else name


def _x(ms: float, end: float) -> float:
    """Where a moment is on the axis."""
    low, high = log10(min(_TICKS)), log10(end)
    share = (log10(max(ms, min(_TICKS))) - low) / (high - low)
    return round(_LEFT + share * (_WIDTH - _LEFT - _RIGHT), 1)


def main() -> int:
    """Plays it on the lab; returns the exit status."""
    lab = Lab.up()
    lab.jaeger.up()
    lockstep = Lockstep(lab, settings={"tracing": dict(lab.jaeger.settings)})
    lockstep.install()
    lockstep.up()
    site = Site(lab, lockstep)
    site.settle()
    site.cordon(WORKER)
    eventually("drained and let go", lambda: site.slurm(WORKER).drained and not site.protected(WORKER), 30)

    def whole() -> list[Span]:
        found = lab.jaeger.find("lockstep-reconciler", {"lockstep.worker": WORKER})
        return next((spans for spans in found if any(span.name == "unprotect" for span in spans)), [])

    first = eventually("the trace", whole, 20, 2.5)
    spans = eventually("the whole trace", lambda: again if len(again := whole()) == len(first) else [], 10, 2.5)
    paths.write(FILE, picture(spans))
    print(f"{len(spans)} spans of {len({span.service for span in spans})} services: {FILE}")
    site.reset()
    lockstep.stop()
    lab.jaeger.down()
    return 0


if __name__ == "__main__":
    sys.exit(main())
