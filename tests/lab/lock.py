"""One lab per machine. The lock is held while a command changes the lab, and names the lab that is up.

A lab outlives the command that started it, so the file's content stays: who started it, from which checkout.
"""

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from typing import Any

from . import paths
from .progress import say


class LockedError(RuntimeError):
    """Another command is changing the lab; the text says which."""


@contextlib.contextmanager
def hold(*, wait: bool = True) -> Iterator[None]:
    """Hold the lock; wait for it with a message, or give up at once.

    Raises:
        LockedError: Somebody holds it and ``wait`` is false.
    """
    with paths.LOCK.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _describe(_read())
            if not wait:
                raise LockedError(f"the lab is in use by {holder}") from None
            say(f"The lab is in use by {holder}; waiting (--no-wait gives up instead).")
            fcntl.flock(file, fcntl.LOCK_EX)
        mine = {"pid": os.getpid(), "checkout": str(paths.CHECKOUT), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
        file.truncate(0)
        file.write(json.dumps(mine))
        file.flush()
        yield


def _read() -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(paths.LOCK.read_text())
    except (OSError, ValueError):
        return {}
    return found


def _describe(who: dict[str, Any]) -> str:
    return f"process {who['pid']} of {who['checkout']} since {who['since']}" if who else "another process"
