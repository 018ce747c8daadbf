"""Lanes: one thing at a time, many things at once."""

import asyncio
import gc
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from functools import partial

import pytest

from lockstep.base.errors import Fatal, Reject, Retry
from lockstep.bus.lanes import AT_ONCE, Lanes
from lockstep.bus.verdict import again_after


def job(
    log: list[str], name: str, *, takes_s: float = 0.0, error: Exception | None = None
) -> Callable[[], Awaitable[None]]:
    """A job that says when it begins and ends."""

    async def work() -> None:
        log.append(f"+{name}")
        await asyncio.sleep(takes_s)
        log.append(f"-{name}")
        if error:
            raise error

    return work


async def test_jobs_of_one_key_never_overlap_and_only_the_newest_waits() -> None:
    """While one runs, later ones replace each other: a job looks at what is."""
    log: list[str] = []
    async with Lanes[str](width=8) as lanes:
        for n in range(5):
            lanes.put("w-1", job(log, str(n), takes_s=0.01))
            await asyncio.sleep(0)
        await lanes.idle()
    assert log == ["+0", "-0", "+4", "-4"]
    assert lanes.superseded == 3


async def test_keys_run_side_by_side_up_to_the_width() -> None:
    """Never more than so many, and all in the end."""
    running = most = 0

    async def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1

    async with Lanes[int](width=3) as lanes:
        for key in range(20):
            lanes.put(key, work)
        assert lanes.depth == 20
        await lanes.idle()
    assert (most, lanes.handled) == (3, 20)


async def test_what_is_to_be_first_goes_before_all_that_waits() -> None:
    """In the order in which it came; and what is no longer so takes its turn with the others."""
    log: list[str] = []
    async with Lanes[str](width=1) as lanes:
        for name, first in (
            ("a", False),
            ("b", False),
            ("c", True),
            ("d", True),
            ("e", True),
            ("b", True),
            ("d", False),
        ):
            lanes.put(name, job(log, name), first=first)
        assert lanes.depth == 5
        await lanes.idle()
    assert [entry for entry in log if entry[0] == "+"] == ["+c", "+e", "+b", "+a", "+d"]
    assert lanes.superseded == 2


async def test_what_was_put_behind_a_running_job_is_still_first() -> None:
    """A write that is due stays due."""
    log: list[str] = []
    async with Lanes[str](width=1, on_failure=lambda *_: 0.0) as lanes:
        lanes.put("a", job(log, "a", takes_s=0.01), first=True)
        await asyncio.sleep(0.001)
        lanes.put("b", job(log, "b"))
        lanes.put("a", job(log, "A"), first=True)
        await lanes.idle()
    assert log == ["+a", "-a", "+A", "-A", "+b", "-b"]


async def test_one_noisy_worker_does_not_delay_another() -> None:
    """Ten thousand events of one, then one of another: that is looked at next."""
    log: list[str] = []
    async with Lanes[str](width=2) as lanes:
        for n in range(10_000):
            lanes.put("noisy", job(log, f"noisy-{n}", takes_s=0.001))
        lanes.put("quiet", job(log, "quiet"))
        await lanes.idle()
    assert log.index("+quiet") <= 2
    assert "-noisy-9999" in log
    assert len(log) < 10


async def test_a_failed_job_is_tried_again_until_it_works() -> None:
    """The callback is told key, error and attempt, and says when."""
    told: list[tuple[str, str, int]] = []
    tries = 0

    async def work() -> None:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise Retry("busy")

    def on_failure(key: str, error: Exception, attempt: int) -> float:
        told.append((key, str(error), attempt))
        return 0.001

    async with Lanes[str](width=1, on_failure=on_failure) as lanes:
        lanes.put("w-1", work)
        await lanes.idle()
    assert told == [("w-1", "busy", 1), ("w-1", "busy", 2)]
    assert (lanes.handled, lanes.failed) == (1, 2)


async def test_a_newer_job_takes_the_place_of_one_that_waits_for_its_next_try() -> None:
    """It looks at newer facts, and at once."""
    log: list[str] = []
    async with Lanes[str](width=1, on_failure=lambda *_: 3600.0) as lanes:
        lanes.put("w-1", job(log, "old", error=Retry("no")))
        await asyncio.sleep(0.01)
        lanes.put("w-1", job(log, "new"))
        await lanes.idle()
    assert log == ["+old", "-old", "+new", "-new"]


async def test_one_bad_worker_does_not_stop_the_others() -> None:
    """It is counted; the rest goes on."""
    log: list[str] = []
    async with Lanes[str](width=1, on_failure=lambda *_: None) as lanes:
        lanes.put("bad", job(log, "bad", error=ValueError("a bug")))
        lanes.put("good", job(log, "good"))
        await lanes.idle()
    assert "-good" in log
    assert lanes.failed == 1


async def test_a_fatal_error_ends_everything() -> None:
    """The process is to be restarted."""

    async def serve() -> None:
        async with Lanes[str](width=1) as lanes:
            lanes.put("w-1", job([], "x", error=Fatal("lost")))
            await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as caught:
        await serve()
    assert caught.group_contains(Fatal)


async def test_nothing_is_started_after_a_fatal_error() -> None:
    """What waited its turn in that moment is dropped, and nobody is told of an error that is none."""
    told: list[object] = []
    log: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))

    async def serve() -> None:
        async with Lanes[int](width=2) as lanes:
            for number in range(10):
                lanes.put(number, job(log, str(number), error=Fatal("lost")))
            await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup):
        await serve()
    await asyncio.sleep(0.01)

    assert told == []
    assert log == ["+0", "+1", "-0", "-1"]


async def test_many_jobs_are_started_a_few_at_a_time() -> None:
    """So that a thousand keys at once do not keep the loop from reading what comes in; none waits for another's end."""
    begun: list[int] = []
    may_end = asyncio.Event()

    async def work(number: int) -> None:
        begun.append(number)
        await may_end.wait()

    async with Lanes[int](width=1_000) as lanes:
        for number in range(500):
            lanes.put(number, partial(work, number))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert 0 < len(begun) <= AT_ONCE
        async with asyncio.timeout(30):
            while len(begun) < 500:
                await asyncio.sleep(0)
        may_end.set()
        await lanes.idle()


async def test_a_cancellation_lets_running_jobs_end_and_drops_those_that_wait() -> None:
    """A write that was begun is finished, up to the grace."""
    log: list[str] = []

    async def serve() -> None:
        async with Lanes[str](width=1) as lanes:
            lanes.put("a", job(log, "a", takes_s=0.05))
            lanes.put("b", job(log, "b"))
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(serve())
        await asyncio.sleep(0.01)
        task.cancel()
    assert log == ["+a", "-a"]


async def test_a_job_that_outlasts_the_grace_is_cut() -> None:
    """The end comes whatever a job does."""
    log: list[str] = []

    async def serve() -> None:
        async with Lanes[str](width=1, grace_s=0.02) as lanes:
            lanes.put("a", job(log, "a", takes_s=60))
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(serve())
        await asyncio.sleep(0.01)
        task.cancel()
    assert log == ["+a"]


async def test_a_job_runs_in_the_context_of_whoever_put_it() -> None:
    """The trace of one flow does not leak into the next that runs in its lane."""
    trace: ContextVar[str] = ContextVar("trace", default="")
    seen: dict[str, str] = {}

    async with Lanes[str](width=1) as lanes:
        for key in ("a", "b", "c"):
            trace.set(key)

            async def work(key: str = key) -> None:
                await asyncio.sleep(0)
                seen[key] = trace.get()

            lanes.put(key, work)
        await lanes.idle()
    assert seen == {"a": "a", "b": "b", "c": "c"}


async def test_no_job_vanishes_while_garbage_is_collected() -> None:
    """The loop itself keeps only weak references to tasks."""
    async with Lanes[int](width=1000) as lanes:
        for key in range(1000):
            lanes.put(key, job([], str(key), takes_s=0.01))
        for _ in range(5):
            gc.collect(1)
            await asyncio.sleep(0.002)
        await lanes.idle()
    assert lanes.handled == 1000


@pytest.mark.parametrize(
    ("error", "attempt", "after_s"),
    [
        (Reject("no"), 1, None),
        (Retry("later", after_s=7), 5, 7.0),
        (Retry("later", after_s=0), 5, 0.0),
        (Retry("later"), 1, 0.2),
        (Retry("later"), 3, 0.8),
        (ValueError("a bug"), 1, 0.2),
        (ValueError("a bug"), 100, 30.0),
    ],
)
def test_the_class_of_the_error_says_whether_to_try_again(
    error: Exception, attempt: int, after_s: float | None
) -> None:
    """Never, when the error says, or the usual backoff."""
    assert again_after(error, attempt) == after_s


def test_a_fatal_error_is_passed_on() -> None:
    """It is not the job's to survive it."""
    with pytest.raises(Fatal):
        again_after(Fatal("x"), 1)
