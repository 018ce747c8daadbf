"""One lab of each name per machine: who may change it, and who is using it.

A process shares the lock as long as it uses the lab, and owns it alone while it starts or ends the lab; so nobody's lab
is ended under a test that runs. The kernel releases both when the process ends, however it ends. The file's content
names the last one that owned it.
"""

import fcntl
import json
import os
import time
from pathlib import Path

from . import paths
from .progress import say


class LockedError(RuntimeError):
    """Others use or change the lab; the text names them."""


_descriptor: int | None = None
"""Open while this process has the lock: one for all its ``Lab`` objects, or it would wait for itself."""


def share(*, wait: bool = True) -> None:
    """Use the lab: as long as this process lives (or until ``release``) others cannot end it.

    Raises:
        LockedError: Somebody is starting or ending it and ``wait`` is false.
    """
    _take(fcntl.LOCK_SH, wait=wait)


def own(*, wait: bool = True) -> None:
    """Be alone with the lab, to start or end it.

    Raises:
        LockedError: Somebody uses it and ``wait`` is false.
    """
    descriptor = _take(fcntl.LOCK_EX, wait=wait)
    mine = {"pid": os.getpid(), "checkout": str(paths.CHECKOUT), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
    os.truncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps(mine).encode(), 0)


def release() -> None:
    """Let go; nothing happens without a lock."""
    global _descriptor  # noqa: PLW0603  (the process has one)
    if _descriptor is not None:
        os.close(_descriptor)
        _descriptor = None


def holders() -> list[str]:
    """The other processes that have the lock, as ``pid (command)``."""
    try:
        inode = f":{paths.LOCK.stat().st_ino} "
    except FileNotFoundError:
        return []
    held = [line.split() for line in Path("/proc/locks").read_text().splitlines() if inode in line and "->" not in line]
    return [_describe(int(words[4])) for words in held if int(words[4]) != os.getpid()]


def _take(mode: int, *, wait: bool) -> int:
    global _descriptor  # noqa: PLW0603  (the process has one)
    if _descriptor is None:
        _descriptor = os.open(paths.LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(_descriptor, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        whom = "; ".join(holders()) or "a process that is gone already"
        if not wait:
            release()
            raise LockedError(f"the lab is in use by {whom}") from None
        say(f"The lab is in use by {whom}. Waiting (--no-wait gives up instead).")
        fcntl.flock(_descriptor, mode)
    return _descriptor


def _describe(pid: int) -> str:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        return f"{pid} ({command[:80]}, in {Path(f'/proc/{pid}/cwd').readlink()})"
    except OSError:
        return str(pid)
