"""A Secret that is missing, empty or wrong: the service lives, says so once and where, and goes on when it is there."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from lockstep.cli.checks import Level
from lockstep.cli.connect import Reach
from lockstep.cli.doctor import guarded
from lockstep.cli.examine_slurm import cluster as examine
from lockstep.contracts.events import SourceBack, SourceLost
from lockstep.kube import keys
from lockstep.pod_watcher.main import SERVICE as POD_WATCHER
from lockstep.runtime.health import Health
from lockstep.runtime.process import Process
from lockstep.runtime.settings import Settings
from lockstep.slurm_poller.main import SERVICE as SLURM_POLLER
from tests.fakes.nats import nats_server
from tests.integration.test_gaps import Fleet, a_fleet, eventually

DEPLOYMENT = "lockstep-slurm-poller"


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    """Both systems faked, and a server of its own."""
    async with nats_server(tmp_path / "nats") as nats, a_fleet(tmp_path, nats) as it:
        yield it


@asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[Health]:
    """Both sources run; a process that ends fails the test."""
    healths = [Health(), Health()]
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(Process(settings, service.name, health, 0).run([service], embedded=False))
            for service, health in zip((SLURM_POLLER, POD_WATCHER), healths, strict=True)
        ]
        yield healths[0]
        for task in tasks:
            assert not task.done()
            task.cancel()


async def ready(health: Health) -> bool:
    """Whether the process is."""
    return not health.missing()


def with_secret(fleet: Fleet, field: str, path: Path) -> Settings:
    """The settings, with another file for the way to Slurm."""
    cluster = msgspec.structs.replace(fleet.settings.clusters[0], key_file="", token_file="")
    cluster = msgspec.structs.replace(cluster, **{field: str(path)})
    shown = msgspec.structs.replace(fleet.settings.health, deployment=DEPLOYMENT)
    return msgspec.structs.replace(fleet.settings, clusters=[cluster], health=shown)


async def condition(fleet: Fleet) -> tuple[str, str, str]:
    """What the Deployment shows of Slurm: status, reason, message."""
    stored = fleet.kube.get("deployments", DEPLOYMENT, "slurm").get("status", {}).get("conditions", [])
    found = [(c["status"], c["reason"], c["message"]) for c in stored if c["type"] == keys.SLURM_READ]
    return found[0] if found else ("", "", "")


@pytest.mark.parametrize(
    ("field", "content", "why"),
    [
        ("key_file", None, "cannot read {path}: No such file or directory; put the key or token there"),
        ("key_file", b"", "{path} is empty; put the key or token there"),
        ("key_file", b"\x00garbage\xff", "see that the key in {path} is right"),
        ("token_file", None, "cannot read {path}: No such file or directory; put the key or token there"),
        ("token_file", b"two words", "{path} holds no token; put the key or token there"),
        ("token_file", b"garbage", "see that the token in {path} is right"),
    ],
)
async def test_slurm_without_its_secret(
    fleet: Fleet, tmp_path: Path, field: str, content: bytes | None, why: str
) -> None:
    """The pod is live and ready, a standby could take over; one event, one line in the log, one in `kubectl events`.

    The Deployment's condition and a line of `lockstep doctor` say it, too. None of them shows what is in the file.
    """
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)
    settings = with_secret(fleet, field, path)
    fleet.kube.put("deployments", DEPLOYMENT, "slurm")

    async def shows(status: str) -> bool:
        return (await condition(fleet))[0] == status

    with capture_logs() as lines:
        async with running(settings) as health:

            async def told() -> list[SourceLost]:
                return [e for e in await fleet.events(SourceLost) if e.source == "slurm.node"]

            await eventually(told)
            await asyncio.sleep(1)
            [lost] = await told()
            assert why.format(path=path) in lost.error
            assert health.dead() == {}
            assert await ready(health)
            said = [line for line in lines if line["event"] == "Slurm cannot be read"]
            assert [line["source"] for line in said] == ["slurm.node"]
            [event] = [e for e in fleet.kube.objects("events") if e["reason"] == "SlurmLost"]
            assert event["metadata"]["namespace"] == "slurm"
            assert str(path) in event["message"]
            await eventually(lambda: shows("False"))
            _, reason, message = shown = await condition(fleet)
            assert reason == "SlurmLost"
            assert message.startswith("Slurm cluster main, slurm.node: ")
            assert why.format(path=path) in message
            reach = Reach(settings)
            [*_, check] = await guarded("slurm main", examine(reach, settings.clusters[0]))
            await reach._stack.aclose()
            assert check.level is Level.FAIL
            assert str(path) in check.found
            assert not any("garbage" in str(text) for text in (lost, said, event, shown, check))

            good = fleet.slurm.tokens().headers()["X-SLURM-USER-TOKEN"].encode()
            path.write_bytes(fleet.slurm.key if field == "key_file" else good)
            await eventually(lambda: fleet.events(SourceBack))
            await fleet.in_step()
            await eventually(lambda: shows("True"))
            assert await condition(fleet) == ("True", "Read", "")

            path.unlink()

            async def told_again() -> bool:
                return len(await told()) == 2

            await eventually(told_again)
            await eventually(lambda: shows("False"))
            assert await ready(health)


async def test_nats_without_its_secret(fleet: Fleet, tmp_path: Path) -> None:
    """Not ready, and why; live, one line in the log. Then it goes on by itself."""
    path = tmp_path / "password"
    nats = msgspec.structs.replace(fleet.settings.nats, password_file=str(path))
    settings = msgspec.structs.replace(fleet.settings, nats=nats)
    with capture_logs() as lines:
        async with running(settings) as health:

            async def says_why() -> bool:
                return f"nats.password_file {path}: No such file" in health.missing().get("start", "")

            await eventually(says_why)
            await asyncio.sleep(1)
            assert health.dead() == {}
            assert len([line for line in lines if line["event"] == "NATS stopped answering"]) == 2
            path.write_text(Path(fleet.settings.nats.password_file).read_text())
            await eventually(lambda: ready(health))
            await fleet.in_step()
