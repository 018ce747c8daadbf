"""One thing at a time, many things at once. Knows nothing of NATS."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from contextvars import Context, copy_context
from types import TracebackType
from typing import Generic, NamedTuple, Self, TypeVar

from lockstep.bus.verdict import again_after

K = TypeVar("K", bound=Hashable)
Job = Callable[[], Awaitable[None]]
OnFailure = Callable[[K, Exception, int], float | None]
"""Is told key, error and attempt; answers with the seconds until another try, or None. May raise to end everything."""

AT_ONCE = 50
"""Jobs that are started in one go: what came in meanwhile is read before the next ones start."""


class Lanes(Generic[K]):
    """Runs jobs of one key in order and of different keys side by side, at most `width` at once.

    Of the jobs that wait for one key only the newest is kept: a job looks at what is, so one look is enough. A job
    that failed is tried again, as `on_failure` says, unless a newer one came. Use it as an async context: leaving it
    drops jobs that wait and lets running ones end, also when it is left because of a cancellation; then for at most
    `grace_s`.
    """

    def __init__(self, width: int, *, on_failure: OnFailure[K] | None = None, grace_s: float = 5.0) -> None:
        self._width = width
        self._grace_s = grace_s
        self._on_failure: OnFailure[K] = on_failure or (lambda _, error, attempt: again_after(error, attempt))
        self._first: OrderedDict[K, _Waiting] = OrderedDict()
        self._ready: OrderedDict[K, _Waiting] = OrderedDict()
        self._behind: dict[K, _Waiting] = {}
        self._delayed: dict[K, asyncio.TimerHandle] = {}
        self._running: set[K] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False
        self._starting = False
        self._group = asyncio.TaskGroup()
        self.handled = 0
        self.failed = 0
        self.superseded = 0

    @property
    def depth(self) -> int:
        """Keys with a job that waits, is delayed or runs."""
        return len(self._first) + len(self._ready) + len(self._delayed) + len(self._running)

    def put(self, key: K, job: Job, *, first: bool = False) -> None:
        """Runs `job` as soon as the key's running job has ended; replaces the one that waits.

        With `first` it is run before all that wait without; so is what fails then, and what is put behind it.
        """
        if self._closed:
            return
        if timer := self._delayed.pop(key, None):
            timer.cancel()
        if key in self._first or key in self._ready or key in self._behind:
            self.superseded += 1
        self._enqueue(key, _Waiting(job, 1, copy_context(), first))

    async def idle(self) -> None:
        """Returns when nothing waits, is delayed or runs."""
        await self._idle.wait()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed = True
        self._first.clear()
        self._ready.clear()
        self._behind.clear()
        for timer in self._delayed.values():
            timer.cancel()
        self._delayed.clear()
        if not self._running:
            self._idle.set()
        if kind is asyncio.CancelledError:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._grace_s):
                    await self._idle.wait()
        await self._group.__aexit__(kind, error, trace)

    def _enqueue(self, key: K, waiting: "_Waiting") -> None:
        self._idle.clear()
        if key in self._running:
            self._behind[key] = waiting
        else:
            self._wait(key, waiting)
            self._start()

    def _wait(self, key: K, waiting: "_Waiting") -> None:
        here, there = (self._first, self._ready) if waiting.first else (self._ready, self._first)
        here[key] = waiting
        there.pop(key, None)

    def _start(self) -> None:
        """Starts what may run, soon."""
        if not self._starting:
            self._starting = True
            asyncio.get_running_loop().call_soon(self._start_some)

    def _start_some(self) -> None:
        """Starts a few; the key that waits longest comes first."""
        self._starting = False
        for _ in range(AT_ONCE):
            queue = self._first or self._ready
            if not queue or len(self._running) >= self._width or self._closed:
                return
            key, waiting = queue.popitem(last=False)
            self._running.add(key)
            self._group.create_task(self._run(key, waiting), context=waiting.context)
        self._start()

    async def _run(self, key: K, waiting: "_Waiting") -> None:
        try:
            await waiting.job()
            self.handled += 1
        except Exception as error:  # noqa: BLE001  on_failure answers every error of a job
            self.failed += 1
            try:
                after_s = self._on_failure(key, error, waiting.attempt)
            except BaseException:
                self._closed = True
                raise
            if after_s is not None and key not in self._behind and not self._closed:
                again = waiting._replace(attempt=waiting.attempt + 1)
                self._delayed[key] = asyncio.get_running_loop().call_later(after_s, self._again, key, again)
        finally:
            self._running.discard(key)
            if (behind := self._behind.pop(key, None)) is not None:
                self._wait(key, behind)
            if not self._closed:
                self._start()
            if not self.depth:
                self._idle.set()

    def _again(self, key: K, waiting: "_Waiting") -> None:
        del self._delayed[key]
        self._enqueue(key, waiting)


class _Waiting(NamedTuple):
    job: Job
    attempt: int
    context: Context
    """Of whoever put it: its trace and its log fields."""
    first: bool
