"""Services as processes: they start, crash and stop, and forget a cluster that left the settings."""

import asyncio
import signal
import socket
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

import aiohttp
import msgspec
import pytest

from lockstep.bus.connection import Connection
from lockstep.bus.keeper import StreamKeeper
from lockstep.contracts.facts import SITE, Fact, KubeHold, SourceHealth
from lockstep.fleet.facts import family_of
from lockstep.fleet.mirror import Mirror
from lockstep.runtime.embedded import EmbeddedNats, embedded_address
from lockstep.runtime.health import Health
from lockstep.runtime.ports import Ports
from lockstep.runtime.process import Alone, Process, Service, leaves
from lockstep.runtime.recovery import Recovery
from lockstep.runtime.settings import Settings
from tests.builders import a_desired, a_job, a_node, a_pod, a_reservation, a_slurm_node, wrote_drain
from tests.integration.services.own_services import poller, running


async def test_a_service_that_returns_ends_the_process_with_an_error(settings: Settings) -> None:
    """Nothing goes on half."""

    async def run(_: Ports) -> None:
        return

    with pytest.raises(ExceptionGroup) as caught:
        await Process(settings, "x", Health(), 3).run([poller(run)], embedded=True)
    assert [str(e) for e in leaves(caught.value)] == ["slurm-poller ended by itself"]


async def test_a_service_that_crashes_is_started_anew_so_often_and_then_ends_everything(settings: Settings) -> None:
    """Twice is forgiven here; the third time the process ends."""
    starts = 0

    async def run(_: Ports) -> None:
        nonlocal starts
        starts += 1
        raise ValueError("a bug")

    with pytest.raises(ExceptionGroup) as caught:
        await Process(settings, "x", Health(), 2).run([poller(run)], embedded=True)
    assert starts == 3
    assert [str(e) for e in leaves(caught.value)] == ["a bug"]


@pytest.mark.parametrize(
    ("owner", "method"),
    [
        (Connection, "run"),
        (StreamKeeper, "run"),
        (Mirror, "run"),
        (Recovery, "run"),
        (Alone, "run"),
        (EmbeddedNats, "run"),
    ],
)
@pytest.mark.parametrize("error", [None, ValueError("a bug")])
async def test_the_end_of_any_long_lived_task_ends_the_process(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, owner: type, method: str, error: Exception | None
) -> None:
    """No zombie with green probes: whether it fails or just returns."""

    async def ends(_: object) -> None:
        await asyncio.sleep(0.1)
        if error:
            raise error

    async def run(_: Ports) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(owner, method, ends)
    with pytest.raises(ExceptionGroup) as caught:
        async with asyncio.timeout(30):
            await Process(settings, "x", Health(), 3).run([poller(run)], embedded=True)
    assert ("a bug" if error else "ended by itself") in str(leaves(caught.value)[0])


async def test_workers_of_a_cluster_that_left_the_settings_are_forgotten(settings: Settings) -> None:
    """Every service says that its own facts of it are gone; those of other clusters and of the site stand.

    Besides theirs, the stream has what is said of itself.
    """
    main, *_ = settings.clusters
    both = msgspec.structs.replace(settings, clusters=[main, msgspec.structs.replace(main, name="old")])
    facts: list[Fact] = [a_node(), SourceHealth(source="kube")]
    for cluster in ("main", "old"):
        facts += [a_slurm_node(cluster=cluster), a_job(cluster=cluster), a_reservation(cluster=cluster)]
        facts += [a_pod(cluster=cluster), KubeHold(cluster=cluster, namespace="slurm", name="dimm")]
        facts += [a_desired(cluster=cluster), wrote_drain(cluster=cluster)]
        facts += [SourceHealth(source=f"slurm.{kind}", of=cluster) for kind in ("node", "job")]
    mirrors: dict[str, Mirror] = {}

    def all_services(tell: Sequence[Fact]) -> list[Service]:
        def of(family: str) -> Service:
            async def run(ports: Ports) -> None:
                mirrors[family] = ports.mirror
                await ports.bus.facts(fact for fact in tell if family_of(fact) == family)
                await asyncio.Event().wait()

            return Service(name=family, family=family, run=run)

        return [of(family) for family in ("kube", "slurm", "drain", "reconciler")]

    async def told(process: Process, tell: Sequence[Fact], count: int) -> list[Fact]:
        mirrors.clear()
        async with running(process, *all_services(tell)), asyncio.timeout(30):
            while len(mirrors) < 4 or len(mirrors["kube"].table) != count:
                await asyncio.sleep(0.01)
            return mirrors["kube"].table.all()

    assert len(await told(Process(both, "x", Health(), 0), facts, len(facts) + 1)) == 21
    left = await told(Process(settings, "x", Health(), 0), [], 12)
    assert {fact.scope for fact in left} == {SITE, "main"}
    assert {family_of(fact) for fact in left if fact.scope == "main"} == {"kube", "slurm", "drain", "reconciler"}


PROGRAM = """
import asyncio, sys
from lockstep.bus.lanes import Lanes
from lockstep.runtime.load import load
from lockstep.runtime.service import Service, run_to_the_end

async def run(ports):
    async with Lanes(1) as lanes:
        async def slow():
            print("writing", flush=True)
            await asyncio.sleep(1)
            print("written", flush=True)
        lanes.put("w-1", slow)
        await asyncio.Event().wait()

sys.exit(run_to_the_end(load(), [Service(name="drain", family="drain", run=run)], name="drain", embedded=True))
"""


async def test_sigterm_lets_running_work_end_and_leaves_nothing_behind(settings: Settings, tmp_path: Path) -> None:
    """Not ready at once, the write that was begun is finished, exit code 0, no server left."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    env = {
        "LOCKSTEP_CLUSTERS": '[{name: main, namespace: slurm, url: "http://127.0.0.1:1", key_file: /none}]',
        "LOCKSTEP_KUBE_KUBECONFIG": settings.kube.kubeconfig,
        "LOCKSTEP_LEASE_ENABLED": "false",
        "LOCKSTEP_HEALTH_PORT": str(port),
        "LOCKSTEP_DATA_DIR": settings.data_dir,
    }
    pipe = asyncio.subprocess.PIPE
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-c", textwrap.dedent(PROGRAM), env=env, stdout=pipe, stderr=pipe
    )
    assert program.stdout is not None
    assert await program.stdout.readline() == b"writing\n"
    program.send_signal(signal.SIGTERM)
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/readyz") as answer:
        assert (answer.status, await answer.text()) == (503, "process: is stopping\n")
    out, err = await program.communicate()
    assert out == b"written\n", err
    assert program.returncode == 0
    assert embedded_address(settings.data_path) is None
    assert not (settings.data_path / "nats.pid").exists()
