"""A real nats-server for tests that can be killed, and a proxy before it that can fail in the ways a network does."""

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Literal

from nats.aio.client import Client

from lockstep.bus.connection import Connection, connect
from lockstep.bus.streams import ensure
from lockstep.contracts.permissions import WRITES
from lockstep.contracts.subjects import STREAMS, Stream
from lockstep.runtime.embedded import HOST, EmbeddedNats, NatsAddress
from lockstep.runtime.recovery import until_done

Way = Literal["pass", "blackhole", "hold-answers", "lose-answers"]


class NatsServer(EmbeddedNats):
    """nats-server with a store of its own; like the embedded one, and it can be killed and paused."""

    async def kill(self) -> None:
        """Kill -9, and wait until it is gone."""
        assert self._process is not None
        self._process.kill()
        await self._process.wait()

    async def again(self) -> None:
        """Starts it anew on the same store and port."""
        await self._launch()

    def pause(self, paused: bool) -> None:
        """Stops (or continues) the process as it is."""
        assert self.pid is not None
        os.kill(self.pid, signal.SIGSTOP if paused else signal.SIGCONT)


class SmallDiskNats(NatsServer):
    """Keeps its store on a file system of a few megabytes; promises the streams all the same that they have room."""

    SYNC = "sync_interval: 1s"
    ROOMY = "sync_interval: 1s, max_file_store: 20GB"

    def _write_files(self) -> None:
        super()._write_files()
        config = self._dir / "nats.conf"
        config.write_text(config.read_text().replace(self.SYNC, self.ROOMY))


class Ballast:
    """A file that takes what room there is."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "ballast"

    def fill(self) -> None:
        """To the last byte."""
        with self._path.open("wb", buffering=0) as file:
            for size in (1 << 20, 1 << 12, 1):
                with suppress(OSError):
                    while file.write(b"x" * size):
                        pass

    def free(self) -> None:
        """There is room again."""
        self._path.unlink()


@contextmanager
def small_disk(folder: Path, size: str = "16m") -> Iterator[Ballast]:
    """A file system of that size at `folder`, inside the context. Needs root."""
    folder.mkdir(parents=True, mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "tmpfs", str(folder)], check=True)
    try:
        yield Ballast(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@asynccontextmanager
async def nats_server(folder: Path, kind: type[NatsServer] = NatsServer) -> AsyncIterator[NatsServer]:
    """A server that runs inside the context."""
    server = kind(folder)
    await server.start()
    try:
        yield server
    finally:
        if server.pid is not None:
            server.pause(False)
        await server.stop()


@asynccontextmanager
async def connected(
    address: NatsAddress,
    *,
    name: str = "test",
    on_lost: Callable[[str], None] = lambda _: None,
    streams: Sequence[Stream] = STREAMS,
) -> AsyncIterator[Connection]:
    """A watched connection, with these streams in place."""
    connection = await connect(
        address.url, name=name, user=address.user, password_file=address.password_file, on_lost=on_lost
    )
    async with asyncio.TaskGroup() as group:
        watch = group.create_task(connection.run())
        try:
            await until_done(partial(ensure, connection, streams))
            yield connection
        finally:
            watch.cancel()
            await connection.close()


async def handled(client: Client) -> None:
    """Waits until the server has handled all that the client wrote before; what it refuses has been told by then.

    `Client.flush` alone (nats-py 2.16) does not: its PING goes past what waits in the client's buffer.
    """
    while client.pending_data_size:
        await asyncio.sleep(0.001)
    await client.flush()


class TcpProxy:
    """Between client and server. In a blackhole nothing passes and nothing is closed.

    Lost answers make a connection useless: it is closed when the next answer comes.
    """

    def __init__(self, target: NatsAddress) -> None:
        self._target = target
        self._server: asyncio.Server | None = None
        self._open = asyncio.Event()
        self._open.set()
        self._answers = asyncio.Event()
        self._answers.set()
        self._losing = False
        self._pipes: set[asyncio.Task[None]] = set()
        self.address = target

    def set(self, way: Way) -> None:
        """How to fail from now on. What is held back passes later, as over a real network."""
        self._losing = way == "lose-answers"
        for event, is_open in ((self._open, way != "blackhole"), (self._answers, way != "hold-answers")):
            if is_open:
                event.set()
            else:
                event.clear()

    @asynccontextmanager
    async def running(self) -> AsyncIterator["TcpProxy"]:
        """Serves inside the context."""
        self._server = await asyncio.start_server(self._serve, HOST, 0)
        port = self._server.sockets[0].getsockname()[1]
        self.address = self._target._replace(url=f"nats://{HOST}:{port}")
        try:
            yield self
        finally:
            self._server.close()
            for pipe in list(self._pipes):
                pipe.cancel()
            await asyncio.gather(*self._pipes, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._pipes.add(task)
        host, port = self._target.url.removeprefix("nats://").split(":")
        with suppress(OSError, asyncio.CancelledError):
            far_reader, far_writer = await asyncio.open_connection(host, int(port))
            try:
                async with asyncio.TaskGroup() as group:
                    there = group.create_task(self._pipe(reader, far_writer, [self._open]))
                    gates = [self._open, self._answers]
                    back = group.create_task(self._pipe(far_reader, writer, gates, may_lose=True))
                    await asyncio.wait([there, back], return_when=asyncio.FIRST_COMPLETED)
                    there.cancel()
                    back.cancel()
            finally:
                far_writer.close()
        writer.close()
        self._pipes.discard(task)

    async def _pipe(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        gates: list[asyncio.Event],
        *,
        may_lose: bool = False,
    ) -> None:
        lost = False
        with suppress(OSError):
            while data := await reader.read(65536):
                for gate in gates:
                    await gate.wait()
                if may_lose and self._losing:
                    lost = True
                    continue
                if lost:
                    return
                writer.write(data)
                await writer.drain()


class NatsWithUsers(NatsServer):
    """A server with the users of `deploy/nats/users.conf`; each one's password is its own name and `-secret`."""

    def _write_files(self) -> None:
        super()._write_files()
        users = Path(__file__).parents[2] / "deploy" / "nats" / "users.conf"
        (self._dir / "users.conf").write_text(users.read_text())
        passwords = [f'{user.replace("-", "_")}_password: "{user}-secret"\n' for user in USERS]
        (self._dir / "passwords.conf").write_text("".join(passwords))
        for user in USERS:
            (self._dir / f"{user}.password").write_text(f"{user}-secret\n")
        config = (self._dir / "nats.conf").read_text()
        kept = [line for line in config.splitlines() if not line.startswith("authorization")]
        (self._dir / "nats.conf").write_text("\n".join([*kept, "include users.conf", ""]))

    @property
    def address(self) -> NatsAddress:
        """As the user goes there who is all services at once."""
        return self.of("lockstep")

    def of(self, user: str) -> NatsAddress:
        """The address as this user goes there."""
        return NatsAddress(super().address.url, user, str(self._dir / f"{user}.password"))

    @property
    def log(self) -> str:
        """What the server wrote in its log."""
        return (self._dir / "nats.log").read_text()


USERS = (*WRITES, "lockstep", "ops", "guest", "admin")


@asynccontextmanager
async def nats_with_users(folder: Path) -> AsyncIterator[NatsWithUsers]:
    """One that runs inside the context."""
    server = NatsWithUsers(folder)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
