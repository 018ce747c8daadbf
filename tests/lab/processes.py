"""The lab's processes: started detached, recorded on disk, ended exactly.

Each process leads a session of its own, so it outlives the command that started it. It is known by pid, start time
and boot, so that a number the kernel has given to somebody else is never signalled. Its environment carries a mark;
by it ``stop_all`` also finds a process whose starter was killed before it could write the record, and helpers that
outlive their parent, such as containerd's shims.

>>> processes = Processes()
>>> processes.start("etcd", ["etcd", "--name", "lab"])
>>> processes.kill("etcd"), processes.restart("etcd"), processes.stop("etcd")
"""

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from . import paths

MARK = "LOCKSTEP_LAB_PROCESS"
"""Environment variable that marks a process: the state folder it belongs to, a colon, its name."""

CLEAN_ENV = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
}


class ProcessError(RuntimeError):
    """A process could not be started, or ended at once."""


@dataclass(frozen=True)
class Record:
    """All that is needed to recognise a process and to start it again."""

    name: str
    argv: list[str]
    pid: int
    born: str
    """Start time in clock ticks since boot, and the boot's id."""
    env: dict[str, str] = field(default_factory=dict)
    cwd: str | None = None
    uid: int | None = None
    gid: int | None = None
    groups: list[int] | None = None
    chroot: str | None = None


class Processes:
    """Starts, signals and ends processes by name. Safe to use from several threads, and by several commands in turn."""

    def __init__(self, state: Path = paths.STATE, logs: Path = paths.LOGS) -> None:
        self._state, self._logs = state, logs
        self._records = state / "processes"
        self._lock = threading.RLock()

    def start(
        self,
        name: str,
        argv: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        uid: int | None = None,
        gid: int | None = None,
        groups: Sequence[int] | None = None,
        chroot: str | Path | None = None,
    ) -> int:
        """Start a process and return its pid; one of that name that is still alive is left as it is.

        Args:
            name: Also the name of the log file; letters, digits, dots and dashes.
            argv: The program and its arguments. Inside ``chroot`` if that is given.
            env: Added to a small clean environment; nothing is inherited from the caller.
            cwd: Working directory, inside ``chroot`` if that is given.
            uid: User to run as; with ``gid`` and ``groups``. Without: root.
            gid: Main group.
            groups: Further groups; none if not given and ``uid`` is.
            chroot: Directory to use as root.

        Raises:
            ProcessError: The program does not exist or may not be run.
        """
        with self._lock:
            if self.alive(name):
                return self.pid(name)
            record = Record(
                name=name,
                argv=[str(part) for part in argv],
                pid=0,
                born="",
                env=dict(env or {}),
                cwd=str(cwd) if cwd else None,
                uid=uid,
                gid=gid,
                groups=list(groups) if groups is not None else None,
                chroot=str(chroot) if chroot else None,
            )
            return self._spawn(record)

    def stop(self, name: str, timeout_s: float = 10) -> None:
        """Ask a process to end (SIGTERM), then make it; it can be started again by ``restart``."""
        pid = self._live_pid(name)
        if pid is None:
            return
        _signal(pid, signal.SIGTERM)
        _signal(pid, signal.SIGCONT)
        if not self._wait_gone(name, timeout_s):
            self.kill(name)
        _signal_group(pid, signal.SIGKILL)

    def kill(self, name: str) -> None:
        """End a process and its group without warning (SIGKILL), and wait until it is gone."""
        pid = self._live_pid(name)
        if pid is not None:
            _signal_group(pid, signal.SIGKILL)
            if not self._wait_gone(name, 10):
                raise ProcessError(f"{name} (pid {pid}) does not end, even by SIGKILL")

    def pause(self, name: str) -> None:
        """Freeze a process and its group (SIGSTOP): it keeps its connections and answers nothing from now on."""
        pid = self.pid(name)
        _signal_group(pid, signal.SIGSTOP)
        deadline = time.monotonic() + 5
        while _stat(pid)[0] not in "TZX" and time.monotonic() < deadline:
            time.sleep(0.002)

    def resume(self, name: str) -> None:
        """Let a frozen process go on (SIGCONT)."""
        _signal_group(self.pid(name), signal.SIGCONT)

    def restart(self, name: str) -> int:
        """End a process if it is alive, and start it again as it was started the last time."""
        with self._lock:
            self.stop(name)
            return self._spawn(self._read(name))

    def alive(self, name: str) -> bool:
        """Whether the recorded process is there and not a zombie. A frozen one is alive."""
        return self._live_pid(name) is not None

    def pid(self, name: str) -> int:
        """Pid of a living process.

        Raises:
            ProcessError: It is not alive.
        """
        pid = self._live_pid(name)
        if pid is None:
            raise ProcessError(f"{name} is not running; its log is {self.log(name)}")
        return pid

    def log(self, name: str) -> Path:
        """Where the process's output goes; appended over restarts."""
        return self._logs / f"{name}.log"

    def names(self) -> list[str]:
        """All processes known by name, alive or not."""
        return sorted(path.stem for path in self._records.glob("*.json"))

    def forget(self, name: str) -> None:
        """End a process and drop its record."""
        self.stop(name)
        (self._records / f"{name}.json").unlink(missing_ok=True)

    def stop_all(self, timeout_s: float = 10) -> None:
        """End everything that was ever started, marked helpers included, and drop the records."""
        asked = {pid for name in self.names() if (pid := self._live_pid(name))}
        for pid in asked:
            _signal(pid, signal.SIGTERM)
            _signal(pid, signal.SIGCONT)
        deadline = time.monotonic() + timeout_s
        while any(_alive(pid) for pid in asked) and time.monotonic() < deadline:
            time.sleep(0.05)
        for pid in asked:
            _signal_group(pid, signal.SIGKILL)
        self.sweep()
        for name in self.names():
            (self._records / f"{name}.json").unlink(missing_ok=True)

    def sweep(self, name: str = "") -> None:
        """Kill every marked process of this name (of any name, without), recorded or not."""
        deadline = time.monotonic() + 10
        while (found := dict(marked(name, self._state))) and time.monotonic() < deadline:
            for pid in found:
                _signal(pid, signal.SIGKILL)
            time.sleep(0.05)

    def _spawn(self, record: Record) -> int:
        argv, cwd, uid, gid = record.argv, record.cwd, record.uid, record.gid
        groups = record.groups if record.groups is not None or record.uid is None else []
        if record.chroot is not None:
            argv = [*_chroot(record, groups), *argv]
            cwd, uid, gid, groups = None, None, None, None
        self._logs.mkdir(parents=True, exist_ok=True)
        with self.log(record.name).open("ab") as log:
            try:
                child = subprocess.Popen(
                    argv,
                    env={**CLEAN_ENV, **record.env, MARK: f"{self._state}:{record.name}"},
                    cwd=cwd or "/",
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    extra_groups=groups,
                    user=uid,
                    group=gid,
                )
            except OSError as error:
                raise ProcessError(f"{record.name} cannot be started: {error}") from error
        child.returncode = 0  # it is not ours to wait for: it outlives this command, and alive() reaps it
        known = Record(**{**asdict(record), "pid": child.pid, "born": _born(child.pid) or ""})
        paths.write(self._records / f"{record.name}.json", json.dumps(asdict(known), indent=1), mode=0o600)
        return child.pid

    def _read(self, name: str) -> Record:
        try:
            return Record(**json.loads((self._records / f"{name}.json").read_text()))
        except FileNotFoundError:
            raise ProcessError(f"{name} was never started") from None

    def _live_pid(self, name: str) -> int | None:
        try:
            record = self._read(name)
        except ProcessError:
            return None
        return record.pid if record.born and _born(record.pid) == record.born else None

    def _wait_gone(self, name: str, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while self.alive(name):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True


def marked(name: str = "", state: Path = paths.STATE) -> Iterator[tuple[int, str]]:
    """Pid and name of each living process that carries the mark of this state folder (and name)."""
    mark = f"{MARK}={state}:".encode()
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or not _alive(int(folder.name)):
            continue
        with contextlib.suppress(OSError):
            for entry in (folder / "environ").read_bytes().split(b"\0"):
                found = entry.removeprefix(mark).decode(errors="replace")
                if entry.startswith(mark) and name in ("", found):
                    yield int(folder.name), found


def _chroot(record: Record, groups: list[int] | None) -> list[str]:
    """The command that enters the root and drops privileges; it becomes the program, so the pid stays."""
    command = ["chroot"]
    if record.uid is not None:
        gid = record.gid if record.gid is not None else record.uid
        command += [
            f"--userspec=+{record.uid}:+{gid}",
            "--groups=" + ",".join(f"+{group}" for group in groups or [gid]),
        ]
    command.append(str(record.chroot))
    return [*command, "env", "-C", record.cwd] if record.cwd else command


def _born(pid: int) -> str | None:
    """What tells a process from a later one with the same pid; None if it is gone or a zombie.

    A leader may be a zombie while other threads are still ending: until they have, its sockets are open.
    """
    state, *rest = _stat(pid)
    if state in "ZX" and _threads(pid) <= 1:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
        return None
    return f"{rest[18]}@{Path('/proc/sys/kernel/random/boot_id').read_text().strip()}"


def _stat(pid: int) -> list[str]:
    """What the kernel says of a process, from its state on; a process that is gone is dead ("X")."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ["X"]


def _threads(pid: int) -> int:
    try:
        return len(list(Path(f"/proc/{pid}/task").iterdir()))
    except OSError:
        return 0


def _alive(pid: int) -> bool:
    return _born(pid) is not None


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _signal_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, number)
