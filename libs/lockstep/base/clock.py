"""The one place that reads a clock. Decisions get the time as an argument."""

import time
from datetime import UTC, datetime


def now() -> datetime:
    """The time of day, in UTC, to the microsecond."""
    return datetime.now(UTC)


def monotonic() -> float:
    """Seconds on a clock that never jumps; only differences mean something."""
    return time.monotonic()


def from_epoch(seconds: float) -> datetime | None:
    """A Unix time as a moment; None for zero, which Slurm writes for "never"."""
    return datetime.fromtimestamp(seconds, UTC) if seconds > 0 else None
