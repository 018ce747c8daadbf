"""Services as processes: start, crash, stop, leadership, with an embedded NATS server."""

import asyncio
import os
import signal
import socket
import sys
import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import msgspec
import pytest

from lockstep.base.clock import now
from lockstep.base.errors import Fatal
from lockstep.bus.connection import Connection
from lockstep.bus.keeper import StreamKeeper
from lockstep.contracts.facts import SITE, Fact, KubeHold, SlurmNode, SourceHealth
from lockstep.drain import main as drain
from lockstep.fleet.facts import family_of
from lockstep.fleet.mirror import Mirror
from lockstep.kube.client import KubeClient
from lockstep.runtime.embedded import EmbeddedNats, embedded_address, embedded_nats
from lockstep.runtime.health import Health
from lockstep.runtime.ports import Leadership, Ports
from lockstep.runtime.process import Alone, Process, Service, leaves
from lockstep.runtime.recovery import Recovery
from lockstep.runtime.settings import ClusterSettings, HealthSettings, KubeSettings, LeaseSettings, Settings
from tests.builders import a_desired, a_job, a_node, a_pod, a_reservation, a_slurm_node, wrote_drain
from tests.fakes.nats import connected

KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: a, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {token: x}}]
contexts: [{name: c, context: {cluster: a, user: u}}]
current-context: c
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Settings under which nothing but NATS is reached."""
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    return Settings(
        clusters=[ClusterSettings(name="main", namespace="slurm", url="http://127.0.0.1:1", key_file="/none")],
        kube=KubeSettings(kubeconfig=str(tmp_path / "kubeconfig")),
        lease=LeaseSettings(enabled=False),
        health=HealthSettings(port=0),
        data_dir=str(tmp_path / "data"),
    )


def poller(run: Callable[[Ports], Awaitable[None]]) -> Service:
    """A service that writes facts of Slurm."""
    return Service(name="slurm-poller", family="slurm", run=run)


def node(base: str) -> SlurmNode:
    """A Slurm node."""
    return SlurmNode(cluster="main", name="gpu-1", base=base)


class Elected(Alone):
    """Leadership that the test gives and takes."""

    def __init__(self) -> None:
        super().__init__()
        self.epoch = 1
        self.leads = asyncio.Event()
        self.follows = asyncio.Event()
        self.give()

    def give(self) -> None:
        """We lead."""
        self.follows.clear()
        self.leads.set()

    def take(self) -> None:
        """We do not."""
        self.leads.clear()
        self.follows.set()

    def holds(self, _now_monotonic: float) -> bool:
        """As the test says."""
        return self.leads.is_set()

    async def held(self) -> int:
        """When the test says."""
        await self.leads.wait()
        return self.epoch

    async def lost(self) -> None:
        """When the test says."""
        await self.follows.wait()


class Told(Process):
    """A process whose leadership is the test's."""

    def __init__(self, settings: Settings, leadership: Leadership, restarts: int = 0) -> None:
        super().__init__(settings, "standalone", Health(), restarts)
        self.leadership = leadership

    def _leadership(self, service: Service, kube: KubeClient) -> Leadership:
        return self.leadership


@asynccontextmanager
async def running(process: Process, *services: Service) -> AsyncIterator[asyncio.Task[None]]:
    """The process runs inside the context."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(process.run(services, embedded=True))
        try:
            yield task
        finally:
            task.cancel()


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
        async with asyncio.timeout(10):
            await Process(settings, "x", Health(), 3).run([poller(run)], embedded=True)
    assert ("a bug" if error else "ended by itself") in str(leaves(caught.value)[0])


async def test_a_service_acts_only_while_it_leads_and_stamps_its_epoch(settings: Settings) -> None:
    """It is cancelled when it no longer may, and called anew with the next epoch, knowing what it said."""
    elected = Elected()
    terms: list[tuple[int, bool]] = []
    cancelled = 0

    async def run(ports: Ports) -> None:
        nonlocal cancelled
        terms.append((ports.epoch, await ports.bus.fact(node("IDLE"))))
        try:
            await asyncio.Event().wait()
        finally:
            cancelled += 1

    async with running(Told(settings, elected), poller(run)):
        async with asyncio.timeout(10):
            while len(terms) < 1:
                await asyncio.sleep(0.01)
            elected.take()
            while not cancelled:
                await asyncio.sleep(0.01)
            elected.epoch = 2
            elected.give()
            while len(terms) < 2:
                await asyncio.sleep(0.01)
    assert terms == [(1, True), (2, False)]


async def test_a_service_whose_lease_ran_out_in_the_middle_waits_for_the_next(settings: Settings) -> None:
    """Its writes are refused here; that is no crash."""
    elected = Elected()
    terms = 0

    async def run(ports: Ports) -> None:
        nonlocal terms
        terms += 1
        if terms == 1:
            elected.leads.clear()
            assert not ports.may_act()
            await ports.bus.fact(node("IDLE"))
        await asyncio.Event().wait()

    async with running(Told(settings, elected), poller(run)):
        await asyncio.sleep(1)
        assert terms == 1
        elected.give()
        async with asyncio.timeout(5):
            while terms < 2:
                await asyncio.sleep(0.01)


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
        async with running(process, *all_services(tell)), asyncio.timeout(10):
            while len(mirrors) < 4 or len(mirrors["kube"].table) != count:
                await asyncio.sleep(0.01)
            return mirrors["kube"].table.all()

    assert len(await told(Process(both, "x", Health(), 0), facts, len(facts) + 1)) == 21
    left = await told(Process(settings, "x", Health(), 0), [], 12)
    assert {fact.scope for fact in left} == {SITE, "main"}
    assert {family_of(fact) for fact in left if fact.scope == "main"} == {"kube", "slurm", "drain", "reconciler"}


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


async def test_the_fleet_is_counted_by_the_one_who_decides_and_the_streams_by_everybody(settings: Settings) -> None:
    """A replica that does not lead says nothing of the fleet: a sum over all of them counts each worker once."""
    settings = msgspec.structs.replace(settings, health=HealthSettings(port=free_port()))
    elected = Elected()
    health = [
        SourceHealth(source="kube", complete_as_of=now()),
        SourceHealth(source="slurm.node", of="main", complete_as_of=now()),
    ]

    async def run(ports: Ports) -> None:
        await ports.bus.facts([a_slurm_node("IDLE+DRAIN", name="gpu-1"), a_slurm_node(name="gpu-2"), *health])
        await asyncio.Event().wait()

    def fleet(shown: dict[str, float]) -> dict[str, float]:
        return {name: value for name, value in shown.items() if name.startswith("lockstep_workers{") and value}

    async with running(Told(settings, elected), poller(run), drain.SERVICE), aiohttp.ClientSession() as session:

        async def until(holds: Callable[[dict[str, float]], object]) -> dict[str, float]:
            async with asyncio.timeout(20):
                while True:
                    with suppress(aiohttp.ClientError):
                        async with session.get(f"http://127.0.0.1:{settings.health.port}/metrics") as answer:
                            lines = [
                                line.rsplit(" ", 1) for line in (await answer.text()).splitlines() if line[0] != "#"
                            ]
                        shown = {name: float(value) for name, value in lines}
                        if holds(shown):
                            return shown
                    await asyncio.sleep(0.1)

        counted = await until(
            lambda shown: len(fleet(shown)) == 2 and shown.get('lockstep_stream_bytes{stream="LOCKSTEP_FACTS"}')
        )
        elected.take()
        followed = await until(lambda shown: not shown['lockstep_leading{service="drain"}'])

    assert fleet(counted) == {
        'lockstep_workers{cluster="main",phase="drained"}': 1,
        'lockstep_workers{cluster="main",phase="idle"}': 1,
    }
    assert counted['lockstep_leading{service="drain"}'] == counted["lockstep_nats_up"] == 1
    assert counted['lockstep_events_total{type="hold.respected.v1"}'] >= 1
    assert counted['lockstep_source_up{of="main",source="slurm.node"}'] == 1
    assert counted['lockstep_consumer_lag_messages{service="standalone",stream="LOCKSTEP_FACTS"}'] == 0
    assert 0 < counted['lockstep_stream_used_ratio{stream="LOCKSTEP_FACTS"}'] < 0.01
    assert [name for name in followed if name.startswith(("lockstep_workers{", "lockstep_drains{"))] == []
    assert followed['lockstep_stream_bytes{stream="LOCKSTEP_FACTS"}'] > 0


def free_port() -> int:
    """One that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
