"""Asked once more, at once: behind one address there may be several slurmrestds, of which one is broken."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from lockstep.base import clock
from lockstep.slurm.errors import Busy, Unreachable

QUICK_S = 0.5
"""What took longer to fail is not asked again: an outage would be told too late, and a write would rest on old news."""

T = TypeVar("T")


async def read(ask: Callable[[], Awaitable[T]]) -> T:
    """What `ask` reads. A quick failure that may be the path's or that one server's is no answer: then once more.

    Raises:
        SlurmError: as `ask`, the second time if there was one.
    """
    return await _ask(ask, Unreachable, Busy)


async def write(ask: Callable[[], Awaitable[T]]) -> T:
    """As `read`, for a write: once more only where nothing was changed."""
    return await _ask(ask, Busy)


async def _ask(ask: Callable[[], Awaitable[T]], *again: type[Unreachable | Busy]) -> T:
    began = clock.monotonic()
    try:
        return await ask()
    except again as error:
        is_for_all = isinstance(error, Busy) and error.status != 503
        if is_for_all or clock.monotonic() - began > QUICK_S:
            raise
    return await ask()
