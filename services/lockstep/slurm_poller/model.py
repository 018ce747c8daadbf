"""How a kind of thing that is read from Slurm is doing: one outage is told once, and its end once. Pure."""

from datetime import datetime, timedelta
from typing import NamedTuple

from lockstep.contracts.events import SourceBack, SourceLost
from lockstep.contracts.facts import SourceHealth

TOLERATED = timedelta(seconds=2)
"""So long a source may fail before that is told."""
TOLERATED_TIMES = 3
"""So often it may fail in a row before that is told."""


class Told(NamedTuple):
    """What is to be published: the source's health, and an event if an outage has begun or ended."""

    health: SourceHealth | None = None
    event: SourceLost | SourceBack | None = None


class Source:
    """Nodes, jobs or reservations of one cluster."""

    def __init__(self, name: str, of: str, before: SourceHealth | None = None) -> None:
        """`before` is what a predecessor told last: the end of an outage that it told of is then for us to tell."""
        self._name = name
        self._of = of
        self._as_of = before.complete_as_of if before else None
        self._since = before.failing_since if before else None
        self._failures = 0
        self._is_told = bool(before and before.last_error)

    @property
    def failures(self) -> int:
        """How often in a row it failed."""
        return self._failures

    @property
    def is_lost(self) -> bool:
        """An outage was told, and its end was not."""
        return self._is_told

    def succeeded(self, as_of: datetime, interval_s: float) -> Told:
        """All of it was true at `as_of`: the heartbeat."""
        event = None
        if self._is_told and self._since is not None:
            lost_for_s = (as_of - self._since).total_seconds()
            event = SourceBack(
                id=self._mark("back", as_of), at=as_of, source=self._name, of=self._of, lost_for_s=lost_for_s
            )
        self._as_of, self._since, self._failures, self._is_told = as_of, None, 0, False
        return Told(self._health(as_of, interval_s=interval_s), event)

    def failed(self, error: str, at: datetime, *, began: datetime | None = None) -> Told:
        """It could not be read, after a try that `began` earlier. Its facts stand, and no heartbeat comes.

        Why is told once. A single try that lasted too long is enough.
        """
        self._failures += 1
        self._since = self._since or began or at
        if self._is_told or (self._failures < TOLERATED_TIMES and at - self._since < TOLERATED):
            return Told()
        self._is_told = True
        event = SourceLost(id=self._mark("lost", self._since), at=at, source=self._name, of=self._of, error=error)
        return Told(self._health(at, error=error), event)

    def _health(self, at: datetime, *, error: str = "", interval_s: float = 0.0) -> SourceHealth:
        return SourceHealth(
            read_at=at,
            source=self._name,
            of=self._of,
            complete_as_of=self._as_of,
            last_error=error,
            failing_since=self._since,
            interval_s=interval_s,
        )

    def _mark(self, what: str, at: datetime) -> str:
        return f"{self._name}/{self._of}:{what}:{at.isoformat()}"
