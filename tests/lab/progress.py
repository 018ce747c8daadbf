"""Says what the lab is doing: one line a step, with its time; overwritten in a terminal, plain elsewhere."""

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

_lock = threading.Lock()
_running: list[str] = []


def say(text: str) -> None:
    """Print one line for the person in front of the screen."""
    with _lock:
        _clear()
        print(text, file=sys.stderr, flush=True)
        _show()


@contextlib.contextmanager
def step(what: str) -> Iterator[None]:
    """Name what goes on inside, and print how long it took; steps of several threads may overlap."""
    begun = time.monotonic()
    with _lock:
        _running.append(what)
        _show()
    mark = "failed"
    try:
        yield
        mark = "ok"
    finally:
        with _lock:
            _clear()
            _running.remove(what)
            print(f"  {mark:6} {time.monotonic() - begun:6.1f} s  {what}", file=sys.stderr, flush=True)
            _show()


def together(*jobs: Callable[[], object]) -> None:
    """Run jobs in threads; wait for all of them, then raise the first failure."""
    if not jobs:
        return
    with ThreadPoolExecutor(len(jobs)) as pool:
        for future in [pool.submit(job) for job in jobs]:
            future.result()


def each(work: Callable[[str], object], names: Sequence[str]) -> None:
    """Run the same job for several names in threads."""
    together(*(partial(work, name) for name in names))


def wait_for(what: str, ready: Callable[[], object], timeout_s: float, pause_s: float = 0.1) -> None:
    """Ask until the answer is true.

    Raises:
        TimeoutError: It did not become true within ``timeout_s``; the text names ``what``.
    """
    deadline = time.monotonic() + timeout_s
    while not ready():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {timeout_s:g} s")
        time.sleep(pause_s)


def _show() -> None:
    if sys.stderr.isatty() and _running:
        print(f"  … {_running[-1]}"[:100], end="", file=sys.stderr, flush=True)


def _clear() -> None:
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
