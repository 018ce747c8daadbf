"""What a process does when facts were lost: its services end, say what they knew, and start anew from what there is.

So nothing is trusted that only we remember: a source lists its system again and tells the differences, as it does at
any start. What cannot be read anywhere else (`drain.desired`, `reconciler.wrote`) is said anew before that.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

import structlog

from lockstep.base.backoff import backoff
from lockstep.base.errors import Reject, Retry
from lockstep.bus.keeper import Facts
from lockstep.bus.publisher import Publisher
from lockstep.contracts.subjects import FACTS
from lockstep.fleet.mirror import Mirror

PAUSE_S = 10.0
"""From one recovery to the next, at least: a stream that loses messages all the time must not stop all work."""

log = structlog.get_logger()


class Recovery:
    """Knows which services act, and starts them anew. `run` must be running."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._acting: dict[Publisher, asyncio.Task[Any]] = {}
        self._lost = asyncio.Event()
        self.whole = asyncio.Event()
        """Set while no loss of facts is being recovered from; a service waits for it before it starts."""
        self.whole.set()

    def on_gap(self, stream: str) -> None:
        """A stream lost messages."""
        if stream == FACTS.name:
            self.whole.clear()
            self._lost.set()

    def facts(self) -> Facts:
        """What this process knows of the stream of facts."""
        if not self.whole.is_set():
            return Facts()
        return Facts(
            claims=[bus.claim for bus in self._acting if bus.claim is not None],
            standing=self._mirror.standing if self._mirror.ready.is_set() else 0,
            stuck_for_s=max((bus.stuck_for_s for bus in self._acting), default=0.0),
        )

    @contextmanager
    def acting(self, bus: Publisher, work: asyncio.Task[Any]) -> Iterator[None]:
        """While inside, `work` is cancelled when facts are lost, and what `bus` said is said anew."""
        self._acting[bus] = work
        try:
            yield
        finally:
            self._acting.pop(bus, None)

    async def run(self) -> NoReturn:
        """Recovers whenever facts were lost, for ever."""
        while True:
            await self._lost.wait()
            self._lost.clear()
            acting = dict(self._acting)
            for work in acting.values():
                work.cancel()
            if acting:
                await asyncio.wait(acting.values())
            count = 0
            for bus in acting:
                with suppress(Reject):
                    count += await until_done(bus.republish)
            self._mirror.read_anew("facts were lost")
            await self._mirror.ready.wait()
            log.info("Facts were said anew", stream=FACTS.name, count=count)
            if not self._lost.is_set():
                self.whole.set()
            await asyncio.sleep(PAUSE_S)


async def until_done(work: Callable[[], Awaitable[Any]]) -> Any:
    """The result of `work`, which is tried until it does not raise Retry."""
    attempt = 0
    while True:
        try:
            return await work()
        except Retry as e:
            log.debug("Trying again", error=str(e))
            await asyncio.sleep(backoff(attempt, limit_s=5))
            attempt += 1
