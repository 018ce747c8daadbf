"""Moments and lengths of time, as people type and read them. Pure."""

import re
from datetime import UTC, datetime, timedelta

from lockstep.base.errors import BadInput
from lockstep.cli import choose
from lockstep.contracts.hold import seconds_of

WANT = "want how long ago, as 10m, 2h or 3d, or a time as 2026-12-01T06:00:00Z"
_DAYS = re.compile(r"(\d{1,9})d(.*)", re.ASCII)


def moment(field: str, text: str, at: datetime) -> datetime:
    """The moment that `10m`, `2d`, `now` or an RFC 3339 time means, in UTC.

    Raises:
        BadInput: it cannot be read; names the field.
    """
    if text == "now":
        return at
    try:
        return at - timedelta(seconds=_seconds(text))
    except (ValueError, OverflowError):
        pass
    try:
        found = datetime.fromisoformat(text)
        if found.tzinfo is not None:
            return found.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise BadInput([f"{field} {choose.quoted(text)}: {WANT}"])


def between(since: str | None, until: str | None, at: datetime) -> tuple[datetime | None, datetime | None]:
    """The stretch that `--since` and `--until` mean; None where nothing was said.

    Raises:
        BadInput: one cannot be read, or the stretch is empty.
    """
    start = moment("--since", since, at) if since is not None else None
    end = moment("--until", until, at) if until is not None else None
    if start is not None and end is not None and end <= start:
        raise BadInput(
            [f"--until {choose.quoted(until or '')}: want a time after --since {choose.quoted(since or '')}"]
        )
    return start, end


def lasting(seconds: float) -> str:
    """A length of time for people, in its two largest units: `45 s`, `2 h 13 min`, `3 d`."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if minutes < 60:
        rest, small = whole % 60 if minutes < 10 else 0, "s"
        first = f"{minutes} min"
    elif hours < 48:
        rest, small, first = minutes % 60, "min", f"{hours} h"
    else:
        rest, small, first = hours % 24, "h", f"{days} d"
    return f"{first} {rest} {small}" if rest else first


def _seconds(text: str) -> int:
    match = _DAYS.fullmatch(text)
    if match is None:
        return seconds_of(text)
    return int(match[1]) * 86400 + (seconds_of(match[2]) if match[2] else 0)
