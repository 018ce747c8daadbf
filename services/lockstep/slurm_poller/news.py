"""Waits for the news of a write that a reading shows before it has been told.

A change may be told only after the event that it came from, and a fact only after the event that tells of it. So both
wait, for this worker alone, for as long as the news takes from the reconciler through NATS: milliseconds.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from lockstep.contracts.facts import Fact, SlurmNode, Wrote, worker_key
from lockstep.fleet.mirror import Mirror
from lockstep.slurm_poller.causes import Change, Echoes

WITHIN_S = 0.5
"""The news of a write whose answer was lost, or whose writer has died, never comes."""


class News:
    """Knows which writes have been told. Reads the mirror only."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._echoes = Echoes(mirror.table, mirror.cause_of)

    def echo_of(self, before: SlurmNode | None, after: SlurmNode) -> str:
        """The event that tells of the write of ours which a change shows; empty if it shows none."""
        return self._echoes.of(before, after)

    def is_awaited(self, before: SlurmNode | None, after: SlurmNode) -> bool:
        """Whether a change shows a write of ours whose news is on its way."""
        return self._echoes.is_early(before, after)

    async def told(self, changes: Iterable[Change]) -> None:
        """Waits until the writes that these changes show have been told, at most `WITHIN_S`."""
        left = {worker_key(change[1]): change for change in changes if self.is_awaited(*change)}
        if not left:
            return
        all_told = asyncio.Event()

        def look(_: Fact | None, fact: Fact) -> None:
            change = left.get(worker_key(fact)) if isinstance(fact, Wrote) else None
            if change is not None and not self.is_awaited(*change):
                del left[worker_key(change[1])]
                if not left:
                    all_told.set()

        self._mirror.on_change.append(look)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(WITHIN_S):
                    await all_told.wait()
        finally:
            self._mirror.on_change.remove(look)
