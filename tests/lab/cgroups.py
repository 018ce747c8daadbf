"""The lab's folders in the cgroup file systems, version 1 and 2.

Every pod of the lab runs below ``/LAB/NODE``. So its processes are found and ended, whatever else died.
"""

import contextlib
import errno
import os
import signal
import time
from pathlib import Path

from .paths import LAB

ROOT = Path("/sys/fs/cgroup")


def version() -> int:
    """2 if the machine has the unified hierarchy, else 1; 0 if none is mounted."""
    if (ROOT / "cgroup.controllers").exists():
        return 2
    return 1 if (ROOT / "memory").is_dir() else 0


def create(node: str) -> str:
    """Create a node's folder in every hierarchy, and return its path as the kubelet's ``cgroupRoot``."""
    for hierarchy in _hierarchies():
        parent = hierarchy
        for name in (LAB, node):
            _delegate(parent)
            folder = parent / name
            folder.mkdir(exist_ok=True)
            for setting in ("cpuset.cpus", "cpuset.mems"):  # version 1 leaves them empty, and then nothing may run
                if version() == 1 and (folder / setting).exists() and not (folder / setting).read_text().strip():
                    (folder / setting).write_text((parent / setting).read_text())
            parent = folder
        _delegate(parent)
    return f"/{LAB}/{node}"


def remove(node: str = "") -> None:
    """Kill everything in a node's folders (in all of the lab's, without ``node``), and remove them."""
    deadline = time.monotonic() + 15
    while (pids := _pids(node)) and time.monotonic() < deadline:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
    for folder in folders(node):
        _remove_tree(folder)


def folders(node: str = "") -> list[Path]:
    """The lab's (or a node's) folders that exist, one for each hierarchy."""
    return [folder for hierarchy in _hierarchies() if (folder := hierarchy / LAB / node).is_dir()]


def _hierarchies() -> list[Path]:
    if version() == 2:
        return [ROOT]
    return sorted({path.resolve() for path in ROOT.iterdir() if path.is_dir() and (path / "cgroup.procs").exists()})


def _delegate(folder: Path) -> None:
    """Let the folder's children use all its controllers; only version 2 asks for that.

    Where the lab runs in a container, the root it sees is no real one, and may hold no processes for that: they move.
    """
    control = folder / "cgroup.subtree_control"
    if not control.exists():
        return
    for controller in (folder / "cgroup.controllers").read_text().split():
        try:
            control.write_text(f"+{controller}")
        except OSError as error:
            if error.errno == errno.EBUSY and folder == ROOT:
                _move_processes(ROOT, ROOT / "machine")
                control.write_text(f"+{controller}")


def _move_processes(source: Path, target: Path) -> None:
    target.mkdir(exist_ok=True)
    for pid in (source / "cgroup.procs").read_text().split():
        with contextlib.suppress(OSError):  # it has ended, or is the kernel's own
            (target / "cgroup.procs").write_text(pid)


def _pids(node: str) -> set[int]:
    found: set[int] = set()
    for folder in folders(node):
        for path, _, _ in os.walk(folder):
            with contextlib.suppress(OSError):
                found.update(int(pid) for pid in Path(path, "cgroup.procs").read_text().split())
    return found - {0, os.getpid()}


def _remove_tree(folder: Path) -> None:
    for path, _, _ in os.walk(folder, topdown=False):
        for _ in range(50):
            try:
                Path(path).rmdir()
            except FileNotFoundError:
                break
            except OSError:  # a process in it is still on its way out
                time.sleep(0.1)
            else:
                break
