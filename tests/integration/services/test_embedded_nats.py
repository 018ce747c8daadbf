"""The embedded NATS server: killed, left over, asked for twice, and asked by strangers."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from lockstep.base.errors import Fatal
from lockstep.runtime.embedded import EmbeddedNats, embedded_nats
from lockstep.runtime.health import Health
from lockstep.runtime.ports import Ports
from lockstep.runtime.process import Process
from lockstep.runtime.settings import Settings
from tests.fakes.nats import connected
from tests.integration.services.own_services import node, poller, running


async def test_a_standalone_survives_the_death_of_its_nats_server(settings: Settings) -> None:
    """It is started again at the same address, and publishing goes on."""
    done = asyncio.Event()

    async def run(ports: Ports) -> None:
        await ports.bus.fact(node("IDLE"))
        os.kill(int((settings.data_path / "nats.pid").read_text()), signal.SIGKILL)
        await ports.bus.fact(node("DOWN"))
        done.set()
        await asyncio.Event().wait()

    async with running(Process(settings, "x", Health(), 0), poller(run)):
        async with asyncio.timeout(20):
            await done.wait()


async def test_two_standalones_do_not_share_a_data_directory(tmp_path: Path) -> None:
    """Two servers on one store would destroy it."""
    async with embedded_nats(tmp_path / "data"):
        with pytest.raises(Fatal, match="another lockstep standalone"):
            await EmbeddedNats(tmp_path / "data").start()


async def test_a_server_whose_parent_was_killed_is_ended_before_the_next_starts(tmp_path: Path) -> None:
    """The new one has the store for itself, and what was stored is there."""
    data = tmp_path / "data"
    first = EmbeddedNats(data)
    await first.start()
    async with connected(first.address) as connection:
        await connection.client.jetstream().publish("lockstep.fact.x", b"{}")
    assert first._lock is not None
    first._lock.close()
    assert first._process is not None
    async with embedded_nats(data) as second:
        assert await first._process.wait() != 0
        async with connected(second.address) as connection:
            info = await connection.call("STREAM.INFO.LOCKSTEP_FACTS")
            assert info["state"]["messages"] == 1


async def test_nobody_else_may_use_the_embedded_server(tmp_path: Path) -> None:
    """On a machine of many, its password is in a file that only we can read."""
    async with embedded_nats(tmp_path / "data") as server:
        assert Path(server.address.password_file).stat().st_mode & 0o077 == 0
        assert (tmp_path / "data").stat().st_mode & 0o077 == 0
        reader, writer = await asyncio.open_connection("127.0.0.1", int(server.address.url.rpartition(":")[2]))
        await reader.readline()
        writer.write(b'CONNECT {"verbose":false}\r\nPING\r\n')
        assert b"Authorization Violation" in await reader.readline()
        writer.close()
