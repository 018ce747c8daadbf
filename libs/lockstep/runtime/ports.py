"""What a service is given: the ways to Kubernetes, Slurm and the bus, and whether it may act."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import msgspec
import structlog

from lockstep.base import clock
from lockstep.base.errors import BadInput
from lockstep.bus.connection import Connection, connect
from lockstep.bus.publisher import Publisher
from lockstep.fleet.mirror import Mirror
from lockstep.kube.client import KubeClient
from lockstep.kube.port import KubeApi
from lockstep.kube.settings import KubeClientSettings
from lockstep.runtime.counted import counted
from lockstep.runtime.embedded import NatsAddress, embedded_address
from lockstep.runtime.health import Health
from lockstep.runtime.metrics import CALLS, NATS_UP
from lockstep.runtime.settings import ClusterSettings, NatsSettings, Settings
from lockstep.runtime.telemetry import Outage
from lockstep.runtime.tracing import calling
from lockstep.slurm.client import SlurmRest
from lockstep.slurm.port import SlurmApi
from lockstep.slurm.tokens import FileTokens, KeyTokens
from lockstep.slurm.transport import Transport


class Leadership(Protocol):
    """Whether this process may act as a service. `kube.lease.Leadership` is one."""

    epoch: int

    def holds(self, now_monotonic: float) -> bool:
        """Whether it may, at that moment."""

    async def held(self) -> int:
        """Waits until it may; the epoch."""

    async def lost(self) -> None:
        """Waits until it may not."""

    async def run(self) -> None:
        """Tries for ever."""


class Ports(msgspec.Struct, frozen=True, kw_only=True):
    """Given to a service's `run` each time it becomes the one that acts; valid until `run` is cancelled."""

    name: str
    """The service's."""
    settings: Settings
    kube: KubeApi
    slurm: Mapping[str, SlurmApi]
    """Per cluster."""
    bus: Publisher
    """Stamps our epoch on facts, and refuses when we may no longer act."""
    mirror: Mirror
    """Ready, and kept up to date."""
    connection: Connection
    """For readers of events."""
    health: Health
    leadership: Leadership
    epoch: int
    log: Any
    """structlog's, with the service bound."""
    clock: ModuleType = clock

    def may_act(self) -> bool:
        """Whether we may still write; asked right before each write. False once the lease may have run out."""
        return self.leadership.holds(clock.monotonic())


@asynccontextmanager
async def open_kube(settings: Settings) -> AsyncIterator[KubeClient]:
    """The way to Kubernetes.

    Raises:
        BadInput: there is no usable configuration.
    """
    kube = settings.kube
    async with KubeClient(
        KubeClientSettings(
            kubeconfig=kube.kubeconfig, context=kube.context, qps=kube.qps, concurrency=kube.concurrency
        ),
        calling=counted(calling),
    ) as client:
        yield client


@asynccontextmanager
async def open_slurm(settings: Settings) -> AsyncIterator[dict[str, SlurmApi]]:
    """The way to each cluster's Slurm."""
    clients: dict[str, SlurmApi] = {cluster.name: _slurm(cluster) for cluster in settings.clusters}
    try:
        yield clients
    finally:
        for client in clients.values():
            await client.close()


def _slurm(cluster: ClusterSettings) -> SlurmRest:
    key = Path(cluster.key_file).expanduser()
    tokens = KeyTokens(key, cluster.user) if cluster.key_file else FileTokens(cluster.token_file, cluster.user)

    def count(method: str, route: str, seconds: float, answered: bool) -> None:
        CALLS.labels(cluster.name, method, route, str(answered).lower()).observe(seconds)

    return SlurmRest(Transport(cluster.url, tokens, on_call=count, calling=calling), cluster=cluster.name)


def nats_address(settings: Settings) -> NatsAddress:
    """Where NATS is: as set, or the server of a standalone with our data directory.

    Raises:
        BadInput: neither.
    """
    if settings.nats.url:
        return NatsAddress(settings.nats.url, settings.nats.user, settings.nats.password_file)
    found = embedded_address(settings.data_path)
    if found is None:
        raise BadInput([f"nats.url: is empty, and no `lockstep standalone` runs with data_dir {settings.data_path}"])
    return found


@asynccontextmanager
async def open_bus(
    settings: Settings,
    name: str,
    *,
    address: NatsAddress | None = None,
    on_error: Callable[[str], None] = lambda _: None,
) -> AsyncIterator[Connection]:
    """The connection to NATS; waits until there is one. The caller runs `Connection.run`.

    `on_error` is called with the error of each try that fails.

    Raises:
        BadInput: there is no address.
    """
    address = address or nats_address(settings)
    outage = Outage(structlog.get_logger(), "NATS", url=address.url)

    def lost(error: str) -> None:
        NATS_UP.set(0)
        outage.down(error)

    def back(_: float) -> None:
        NATS_UP.set(1)
        outage.up()

    files = settings.nats if settings.nats.url else NatsSettings()
    connection = await connect(
        address.url,
        name=f"lockstep-{name}",
        creds_file=files.creds_file,
        user=address.user,
        password_file=address.password_file,
        ca_file=files.ca_file,
        cert_file=files.cert_file,
        key_file=files.key_file,
        on_error=on_error,
        on_lost=lost,
        on_back=back,
    )
    NATS_UP.set(1)
    try:
        yield connection
    finally:
        await connection.close()
