"""A process that goes on: over a full disk of its own NATS server, and with signs of life from what must not hang."""

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from lockstep.base.clock import monotonic
from lockstep.base.errors import Retry
from lockstep.bus import keeper, ordered
from lockstep.contracts.facts import SlurmNode
from lockstep.runtime import embedded
from lockstep.runtime import health as health_module
from lockstep.runtime.embedded import EmbeddedNats
from lockstep.runtime.health import Health
from lockstep.runtime.ports import Ports
from lockstep.runtime.process import Process
from lockstep.runtime.settings import Settings
from tests.fakes.nats import SmallDiskNats, small_disk
from tests.integration.services.own_services import poller, running

NODE = SlurmNode(cluster="main", name="gpu-1", base="IDLE")


class Beats(Health):
    """Remembers who gave a sign of life."""

    def __init__(self) -> None:
        super().__init__()
        self.beats: list[str] = []

    def beat(self, task: str, *, within_s: float = 60.0) -> None:
        """One more."""
        self.beats.append(task)
        super().beat(task, within_s=within_s)


async def idle(_: Ports) -> None:
    """A service without work."""
    await asyncio.Event().wait()


async def test_a_standalone_goes_on_by_itself_after_its_disk_was_full(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its server would store nothing until it is restarted; what was to be told meanwhile is told."""
    told, full = asyncio.Event(), asyncio.Event()
    monkeypatch.setattr(EmbeddedNats, "_write_files", write_files)
    monkeypatch.setattr(embedded, "RESTART_EVERY_S", 1.0)

    async def run(ports: Ports) -> None:
        await ports.bus.fact(NODE)
        ballast.fill()
        full.set()
        large = msgspec.structs.replace(NODE, base="DOWN", comment="x" * 100_000)
        while not told.is_set():
            with suppress(Retry):
                await ports.bus.fact(large)
                told.set()
        await asyncio.Event().wait()

    settings.data_path.mkdir(mode=0o700)
    with small_disk(settings.data_path / "nats") as ballast:
        async with running(Process(settings, "x", Health(), 0), poller(run)), asyncio.timeout(60):
            await full.wait()
            await asyncio.sleep(10)
            assert not told.is_set()
            ballast.free()
            await told.wait()


def write_files(server: EmbeddedNats) -> None:
    """The server promises the streams more room than its small disk has."""
    plain(server)
    config: Path = server._dir / "nats.conf"
    config.write_text(config.read_text().replace(SmallDiskNats.SYNC, SmallDiskNats.ROOMY))


plain = EmbeddedNats._write_files


async def test_the_mirror_and_the_keeper_of_the_streams_give_signs_of_life(settings: Settings) -> None:
    """Also while NATS is away: then the process is not ready, and lives."""
    health = Beats()
    async with running(Process(settings, "x", health, 0), poller(idle)):
        async with asyncio.timeout(30):
            while not {"mirror", "streams"} <= set(health.beats):
                await asyncio.sleep(0.05)
        pid = int((settings.data_path / "nats.pid").read_text())
        os.kill(pid, signal.SIGSTOP)
        try:
            health.beats.clear()
            async with asyncio.timeout(40):
                while not (health.beats.count("mirror") > 2 and health.beats.count("streams") > 2):
                    await asyncio.sleep(0.05)
        finally:
            os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize(("module", "task"), [(keeper, "streams"), (ordered, "mirror")])
async def test_a_keeper_or_mirror_that_hangs_is_found_dead(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, module: ModuleType, task: str
) -> None:
    """A call that never returns, for whatever reason: /livez says so after a minute."""
    health = Health()

    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(module, "stream_state", never)
    async with running(Process(settings, "x", health, 0), poller(idle)):
        await asyncio.sleep(1)
        assert not health.dead()
        await asyncio.sleep(4)
        later = monotonic() + 57
        with monkeypatch.context() as patched:
            patched.setattr(health_module, "monotonic", lambda: later)
            assert set(health.dead()) == {task}
