"""One process: what its services share, who of them may act, and what happens when one fails."""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from importlib.metadata import version
from typing import Any, NoReturn

import msgspec
import structlog

from lockstep.base.backoff import backoff
from lockstep.base.clock import monotonic, now
from lockstep.base.errors import BadInput, Fatal, Retry
from lockstep.bus.connection import Connection
from lockstep.bus.facts import FactFeed
from lockstep.bus.keeper import StreamKeeper
from lockstep.bus.publisher import Publisher
from lockstep.bus.streams import ensure, there
from lockstep.contracts.facts import SITE, Fact
from lockstep.contracts.permissions import STREAM_MAKER
from lockstep.fleet.facts import family_of, key_of
from lockstep.fleet.mirror import Mirror
from lockstep.kube import lease
from lockstep.kube.client import KubeClient
from lockstep.runtime.embedded import embedded_nats
from lockstep.runtime.gauges import show_sources, show_streams
from lockstep.runtime.health import Health
from lockstep.runtime.metrics import LEADING, NATS_STUCK, RESTARTS, count_event
from lockstep.runtime.ports import Leadership, Ports, open_bus, open_kube, open_slurm
from lockstep.runtime.recovery import Recovery, until_done
from lockstep.runtime.settings import Settings
from lockstep.runtime.tracing import sending, trace_as
from lockstep.slurm.port import SlurmApi

LOST_PAUSE_S = 0.5
"""After a service failed because its lease had run out; the election notices within that time or the next."""
FORGIVEN_AFTER_S = 600.0
"""A service that ran so long has its restarts back."""

log = structlog.get_logger()


class Service(msgspec.Struct, frozen=True, kw_only=True):
    """A service: what it is called, whose facts it alone writes, and what it does."""

    name: str
    family: str
    """`kube`, `slurm`, `drain` or `reconciler`: the facts that it alone writes; its bus knows what they last were."""
    run: Callable[[Ports], Awaitable[None]]
    """Called when this process becomes the one that acts; cancelled when it no longer is, and at the end. Never
    returns by itself. A cancellation must let running writes end and then go on as CancelledError."""


class Process:
    """What the services of one process share."""

    def __init__(self, settings: Settings, name: str, health: Health, restarts: int) -> None:
        self._settings = settings
        self._name = name
        self._health = health
        self._restarts = restarts
        self._makes = False
        """Whether the streams are made here; NATS may let nobody else."""
        self._waits_for = "no answer yet"
        """The last that NATS or the way to it said against us."""

    async def run(self, services: Sequence[Service], *, embedded: bool) -> None:
        """Opens everything in order, runs, and closes in reverse."""
        settings, health = self._settings, self._health
        async with AsyncExitStack() as stack:
            health.need("start", lambda: f"waits for NATS: {self._waits_for}")
            url = await stack.enter_async_context(health.serving(settings.health))
            log.info("Starting", version=version("slurm-lockstep"), url=url)
            server = None
            if embedded and not settings.nats.url:
                server = await stack.enter_async_context(embedded_nats(settings.data_path))
            kube = await stack.enter_async_context(open_kube(settings))
            slurm = await stack.enter_async_context(open_slurm(settings))
            address = server.address if server else None
            opening = open_bus(settings, self._name, address=address, on_error=self._note)
            connection = await stack.enter_async_context(opening)
            async with asyncio.TaskGroup() as group:
                if server is not None:
                    self._start(group, "embedded-nats", server.run())
                self._start(group, "nats", connection.run())
                self._makes = server is not None or any(service.name == STREAM_MAKER for service in services)
                await self._streams(connection)
                mirror = Mirror(FactFeed(connection, on_round=partial(health.beat, "mirror")))
                recovery = Recovery(mirror)
                keeper = self._keeper(connection, recovery, server.restart if server else lambda: None)
                self._start(group, "streams", keeper.run())
                self._start(group, "mirror", mirror.run())
                self._start(group, "recovery", recovery.run())
                health.need("start", lambda: "")
                health.need("nats", lambda: "" if connection.up.is_set() else self._away(connection))
                health.need("mirror", lambda: "" if mirror.ready.is_set() else "is being read")
                health.observe(partial(show_sources, mirror))
                health.observe(partial(show_streams, self._name, mirror, keeper.seen))
                health.observe(lambda: NATS_STUCK.set(recovery.facts().stuck_for_s))
                for service in services:
                    shared = _Shared(kube, slurm, connection, mirror, keeper, recovery)
                    self._start(group, service.name, self._serve(service, shared))

    def _note(self, error: str) -> None:
        self._waits_for = error

    def _away(self, connection: Connection) -> str:
        return f"away for {connection.away_s():.0f} s: {self._waits_for}"

    async def _streams(self, connection: Connection) -> None:
        """Waits until the streams are as they must be; why they are not is said once."""
        said = False

        async def once() -> None:
            nonlocal said
            try:
                await (ensure if self._makes else there)(connection, self._settings.nats.streams)
            except Retry as e:
                self._note(str(e))
                if not said:
                    log.warning("Waits for the streams", error=str(e))
                said = True
                raise

        await until_done(once)

    def _start(self, group: asyncio.TaskGroup, task: str, work: Awaitable[Any]) -> None:
        """Runs `work` as a task whose end is the end of all."""

        async def guarded() -> NoReturn:
            await work
            raise Fatal(f"{task} ended by itself")

        group.create_task(guarded(), name=task)

    async def _serve(self, service: Service, shared: "_Shared") -> None:
        """One service: waits until it may act, runs it until it may not, and so on."""
        trace_as(service.name)
        leadership = self._leadership(service, shared.kube)
        LEADING.labels(service.name).set(0)
        RESTARTS.labels(service.name)
        async with asyncio.TaskGroup() as group:
            self._start(group, f"{service.name}-lease", leadership.run())
            attempt = 0
            while True:
                started = monotonic()
                try:
                    await self._term(service, shared, leadership)
                except Exception as error:
                    if not leadership.holds(monotonic()):
                        await asyncio.sleep(LOST_PAUSE_S)
                        continue
                    attempt = 0 if monotonic() - started > FORGIVEN_AFTER_S else attempt
                    if attempt >= self._restarts or any(isinstance(e, Fatal | BadInput) for e in leaves(error)):
                        raise
                    told = "; ".join(str(e) for e in leaves(error))
                    log.error(
                        "Service failed, starts anew", service=service.name, error=told, exc_info=leaves(error)[0]
                    )
                    RESTARTS.labels(service.name).inc()
                    await asyncio.sleep(backoff(attempt, first_s=0.5))
                    attempt += 1

    async def _term(self, service: Service, shared: "_Shared", leadership: Leadership) -> None:
        """One term of leadership."""
        epoch = await leadership.held()
        await shared.recovery.whole.wait()
        await shared.mirror.ready.wait()
        bus = Publisher(
            shared.connection,
            source=service.name,
            epoch=epoch,
            may_act=lambda: leadership.holds(monotonic()),
            sending=sending,
            on_doubt=lambda lost: shared.keeper.look(lost if shared.recovery.whole.is_set() else ""),
            on_event=count_event,
        )
        ours = [fact for fact in shared.mirror.table.all() if family_of(fact) == service.family]
        bus.known(ours, lambda fact: shared.mirror.cause_of(key_of(fact)))
        ports = Ports(
            name=service.name,
            settings=self._settings,
            kube=shared.kube,
            slurm=shared.slurm,
            bus=bus,
            mirror=shared.mirror,
            connection=shared.connection,
            health=self._health,
            leadership=leadership,
            epoch=epoch,
            log=log.bind(service=service.name),
        )
        await until_done(partial(bus.facts, self._left_behind(ours)))
        if not shared.recovery.whole.is_set():
            return
        log.info("Service acts", service=service.name, epoch=epoch)
        LEADING.labels(service.name).set(1)
        try:
            async with asyncio.TaskGroup() as group:
                work = group.create_task(_forever(service, ports), name=f"{service.name}-run")
                lost = group.create_task(leadership.lost())
                with shared.recovery.acting(bus, work):
                    await asyncio.wait({work, lost}, return_when=asyncio.FIRST_COMPLETED)
                    work.cancel()
                    lost.cancel()
            log.warning("Service no longer acts", service=service.name, epoch=epoch)
        finally:
            LEADING.labels(service.name).set(0)

    def _left_behind(self, facts: Sequence[Fact]) -> list[Fact]:
        """The facts of clusters that are no longer in the settings, as gone: nobody else will ever say so."""
        scopes = {SITE, *(cluster.name for cluster in self._settings.clusters)}
        left = (fact for fact in facts if fact.scope not in scopes)
        return [msgspec.structs.replace(fact, gone=True, read_at=now(), epoch=0) for fact in left]

    def _leadership(self, service: Service, kube: KubeClient) -> Leadership:
        settings = self._settings.lease
        if not settings.enabled:
            return Alone()
        return lease.Leadership(
            kube,
            f"lockstep-{service.name}",
            self._settings.lease_namespace,
            f"{socket.gethostname()}-{os.getpid()}",
            duration_s=settings.duration_s,
            renew_s=settings.duration_s / 5,
            margin_s=settings.duration_s / 5,
        )

    def _keeper(self, connection: Connection, recovery: Recovery, on_stuck: Callable[[], None]) -> StreamKeeper:
        """What several processes find, one of them says; the events are the same whoever publishes them."""
        bus = Publisher(connection, source=self._name, patience_s=3.0, on_event=count_event)
        return StreamKeeper(
            connection,
            recovery.on_gap,
            bus.events,
            streams=self._settings.nats.streams,
            makes=self._makes,
            facts=recovery.facts,
            on_round=partial(self._health.beat, "streams"),
            on_stuck=on_stuck,
            source=self._name,
        )


class _Shared(msgspec.Struct, frozen=True):
    kube: KubeClient
    slurm: dict[str, SlurmApi]
    connection: Connection
    mirror: Mirror
    keeper: StreamKeeper
    recovery: Recovery


class Alone:
    """Leadership of a process that believes that it is alone. A later start has a higher epoch, as with a Lease."""

    def __init__(self) -> None:
        self.epoch = int(now().timestamp()) // 10

    def holds(self, _now_monotonic: float) -> bool:
        """Always."""
        return True

    async def held(self) -> int:
        """At once."""
        return self.epoch

    async def lost(self) -> None:
        """Never."""
        await asyncio.Event().wait()

    async def run(self) -> None:
        """Nothing to do."""
        await asyncio.Event().wait()


def leaves(error: BaseException) -> list[BaseException]:
    """The errors in a group, however deep; or the error itself."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in leaves(inner)]
    return [error]


async def _forever(service: Service, ports: Ports) -> NoReturn:
    structlog.contextvars.bind_contextvars(service=service.name)
    await service.run(ports)
    raise Fatal(f"{service.name} ended by itself")
