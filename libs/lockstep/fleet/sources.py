"""Which sources have come back: what was not decided for want of them is worth a look then. Pure."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from lockstep.contracts.common import WorkerKey
from lockstep.contracts.facts import SITE
from lockstep.fleet.facts import FactTable, SourceKey


class Returns:
    """Remembers when each source was last complete."""

    def __init__(self, stale_after_s: float) -> None:
        self._gap = timedelta(seconds=stale_after_s)
        self._complete: dict[SourceKey, datetime] = {}

    def workers(self, table: FactTable, beaten: Iterable[SourceKey]) -> set[WorkerKey]:
        """The workers of those sources that beat for the first time, or for the first time after being stale."""
        found: set[WorkerKey] = set()
        for key in beaten:
            health = table.sources.get(key)
            at = health.complete_as_of if health else None
            if at is None:
                continue
            before = self._complete.get(key)
            self._complete[key] = at
            if before is None or at - before > self._gap:
                found |= table.workers("" if key[1] == SITE else key[1])
        return found
