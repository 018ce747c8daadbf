"""A service acts while it leads, under its epoch; and who does not lead counts no fleet."""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress

import aiohttp
import msgspec

from lockstep.base.clock import now
from lockstep.contracts.facts import SourceHealth
from lockstep.drain import main as drain
from lockstep.kube.client import KubeClient
from lockstep.runtime.health import Health
from lockstep.runtime.ports import Leadership, Ports
from lockstep.runtime.process import Alone, Process, Service
from lockstep.runtime.settings import HealthSettings, Settings
from tests.builders import a_slurm_node
from tests.integration.services.own_services import node, poller, running


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
        async with asyncio.timeout(30):
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
        async with asyncio.timeout(30):
            while terms < 2:
                await asyncio.sleep(0.01)


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
