"""Which of Slurm's data parsers is spoken.

A list of plugins has moved between releases and cannot be trusted, so each version is tried at its own address, newest
first. What answered is remembered until it stops answering: slurmrestd was then exchanged for another.
"""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from lockstep.base.backoff import backoff
from lockstep.slurm.errors import Unreachable, Unsupported

PARSERS = ("v0.0.45", "v0.0.44", "v0.0.43", "v0.0.42")
"""The data parsers that we speak, best first: Slurm 26.05 down to 24.11."""
HAS_REQUEUE = frozenset({"v0.0.45"})
"""Those that offer `jobs/requeue`."""

_ROUNDS = 3

log = structlog.get_logger(__name__)


class Versions:
    """The parser in use, found when it is needed."""

    def __init__(self, probe: Callable[[str], Awaitable[bool]]) -> None:
        """`probe` tells whether slurmrestd has a parser, and raises when it cannot tell."""
        self._probe = probe
        self._lock = asyncio.Lock()
        self._current = ""
        self._last = ""

    async def current(self) -> str:
        """The parser to use now.

        Raises:
            Unsupported: slurmrestd has none of ours, asked three times.
            Unreachable: slurmrestd does not say.
        """
        async with self._lock:
            if not self._current:
                self._current = await self._find()
                if self._last and self._last != self._current:
                    log.info("Slurm's data parser changed", parser=self._current, was=self._last)
                self._last = self._current
            return self._current

    def doubt(self, version: str) -> None:
        """`version` stopped answering: look again before the next request."""
        if self._current == version:
            self._current = ""

    async def _find(self) -> str:
        """A daemon that has just started may deny a parser that it has, so a "no" of all is asked for again."""
        trouble: Unreachable | None = None
        for round_ in range(_ROUNDS):
            if round_:
                await asyncio.sleep(backoff(round_ - 1, first_s=0.1))
            for version in PARSERS:
                try:
                    if await self._probe(version):
                        return version
                    trouble = None
                except Unreachable as error:
                    trouble = error
                    break
        raise trouble or Unsupported(f"slurmrestd has none of the data parsers {', '.join(PARSERS)}")
