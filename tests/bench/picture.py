"""A bar chart in SVG with a logarithmic axis. Pure."""

from collections.abc import Sequence
from html import escape
from math import log10
from typing import NamedTuple

_LEFT, _RIGHT, _ROW, _TOP = 310, 90, 52, 44
_WIDTH = 880
_TICKS = {0.01: "10 ms", 0.1: "0.1 s", 1.0: "1 s", 10.0: "10 s", 100.0: "100 s"}
_FONT = 'font-family="sans-serif" font-size="13"'
_OPERATOR, _LOCKSTEP = "#b5bcc6", "#1668b8"


class Bar(NamedTuple):
    """What is compared, both in seconds, and how the numbers are written."""

    what: str
    operator_s: float
    lockstep_s: float
    operator: str
    lockstep: str


def picture(bars: Sequence[Bar]) -> str:
    """The chart, as a whole SVG file."""
    height = _TOP + _ROW * len(bars) + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" {_FONT}>',
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        *_legend(),
    ]
    for at, label in _TICKS.items():
        x = _x(at)
        parts.append(f'<line x1="{x}" y1="{_TOP - 6}" x2="{x}" y2="{height - 26}" stroke="#e3e6ea"/>')
        parts.append(f'<text x="{x}" y="{height - 10}" text-anchor="middle" fill="#5a6470">{label}</text>')
    for number, bar in enumerate(bars):
        y = _TOP + number * _ROW
        parts.append(f'<text x="{_LEFT - 10}" y="{y + 25}" text-anchor="end" fill="#1b2026">{escape(bar.what)}</text>')
        parts += _bar(y, bar.operator_s, bar.operator, _OPERATOR)
        parts += _bar(y + 20, bar.lockstep_s, bar.lockstep, _LOCKSTEP)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _legend() -> list[str]:
    found = []
    for x, colour, name in ((_LEFT, _OPERATOR, "slurm-operator 1.2.1"), (_LEFT + 180, _LOCKSTEP, "Lockstep")):
        found.append(f'<rect x="{x}" y="12" width="12" height="12" fill="{colour}"/>')
        found.append(f'<text x="{x + 18}" y="23" fill="#1b2026">{name}</text>')
    return found


def _bar(y: int, seconds: float, label: str, colour: str) -> list[str]:
    end = _x(seconds)
    return [
        f'<rect x="{_LEFT}" y="{y}" width="{max(end - _LEFT, 2):.1f}" height="17" rx="2" fill="{colour}"/>',
        f'<text x="{max(end, _LEFT + 2) + 6:.1f}" y="{y + 13}" fill="#1b2026">{escape(label)}</text>',
    ]


def _x(seconds: float) -> float:
    """Where a duration is on the axis."""
    low, high = log10(min(_TICKS)), log10(max(_TICKS))
    share = (log10(max(seconds, min(_TICKS))) - low) / (high - low)
    return round(_LEFT + share * (_WIDTH - _LEFT - _RIGHT), 1)
