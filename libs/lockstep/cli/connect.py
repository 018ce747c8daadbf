"""The systems that one command talks to. Each is connected to when it is first asked for, and closed at the end."""

import asyncio
import logging
import os
import sys
from argparse import Namespace
from collections.abc import Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

import msgspec
import structlog

from lockstep.base.errors import BadInput, Retry
from lockstep.bus.connection import Connection, connect
from lockstep.kube.client import KubeClient
from lockstep.kube.settings import KubeClientSettings
from lockstep.kube.transport import Transport
from lockstep.runtime.embedded import embedded_address
from lockstep.runtime.load import CONFIG, PREFIX, load
from lockstep.runtime.settings import ClusterSettings, NatsSettings, Settings
from lockstep.slurm.client import SlurmRest
from lockstep.slurm.tokens import FileTokens, KeyTokens
from lockstep.slurm.transport import Transport as SlurmTransport

PATIENCE_S = 3.0
"""For NATS to answer; then the command goes on without."""


class Reach:
    """What a command can reach. An async context manager."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._stack = AsyncExitStack()
        self._kube: KubeClient | None = None
        self._raw: Transport | None = None
        self._bus: Connection | None = None
        self._slurm: dict[str, SlurmRest] = {}

    @classmethod
    def of(cls, args: Namespace) -> "Reach":
        """As the options and the environment say.

        Raises:
            BadInput: with every fault of the settings.
        """
        return cls(settings_of(args))

    async def __aenter__(self) -> Self:
        """Connects to nothing yet. Libraries keep quiet: what matters is raised."""
        logging.getLogger().addHandler(logging.NullHandler())
        quiet = structlog.make_filtering_bound_logger(40)
        structlog.configure(wrapper_class=quiet, logger_factory=structlog.PrintLoggerFactory(sys.stderr))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Closes what was opened."""
        await self._stack.aclose()

    async def kube(self) -> KubeClient:
        """Kubernetes.

        Raises:
            BadInput: there is no usable kubeconfig.
        """
        if self._kube is None:
            self._kube = await self._stack.enter_async_context(KubeClient(self.kube_access))
        return self._kube

    async def raw(self) -> Transport:
        """The same API server, for the few requests that only this command makes."""
        if self._raw is None:
            self._raw = await self._stack.enter_async_context(Transport(self.kube_access))
        return self._raw

    @property
    def kube_access(self) -> KubeClientSettings:
        """How Kubernetes is reached."""
        kube = self.settings.kube
        return KubeClientSettings(
            kubeconfig=kube.kubeconfig, context=kube.context, qps=kube.qps, concurrency=kube.concurrency, connect_s=3.0
        )

    async def slurm(self, cluster: str) -> SlurmRest:
        """One Slurm cluster.

        Raises:
            BadInput: the settings do not say where its slurmrestd is.
        """
        if cluster not in self._slurm:
            wanted = next((c for c in self.settings.clusters if c.name == cluster), None)
            if wanted is None:
                raise BadInput([f"cluster {cluster!r}: Slurm is asked through the settings; give them with --config"])
            client = slurm_client(wanted)
            self._stack.push_async_callback(client.close)
            self._slurm[cluster] = client
        return self._slurm[cluster]

    async def bus(self) -> Connection:
        """NATS.

        Raises:
            Retry: no address is known, or it does not answer in time.
        """
        if self._bus is None:
            nats = nats_of(self.settings)
            if not nats.url:
                raise Retry("no NATS address is known")
            try:
                async with asyncio.timeout(PATIENCE_S):
                    self._bus = await connect(
                        nats.url,
                        name="lockstep-cli",
                        creds_file=nats.creds_file,
                        user=nats.user,
                        password_file=nats.password_file,
                    )
            except (TimeoutError, OSError) as e:
                raise Retry(f"NATS at {nats.url} does not answer") from e
            self._stack.push_async_callback(self._bus.close)
        return self._bus


def settings_of(args: Namespace, env: Mapping[str, str] | None = None) -> Settings:
    """The settings, from the file if one is named, with the command's options laid over.

    Without a file no clusters are known; they are then found on Kubernetes or in the facts.

    Raises:
        BadInput: with every fault.
    """
    env = os.environ if env is None else env
    if args.config or env.get(CONFIG) or any(name.startswith(f"{PREFIX}CLUSTERS_") for name in env):
        settings = load(args.config, env)
    else:
        known = Settings(clusters=[])
        settings = msgspec.structs.replace(
            known,
            nats=NatsSettings(url=env.get(f"{PREFIX}NATS_URL", "")),
            data_dir=env.get(f"{PREFIX}DATA_DIR", known.data_dir),
        )
    kube = msgspec.structs.replace(
        settings.kube,
        kubeconfig=args.kubeconfig or settings.kube.kubeconfig,
        context=args.context or settings.kube.context,
    )
    nats = _nats_at(args.nats) if args.nats else settings.nats
    return msgspec.structs.replace(settings, kube=kube, nats=nats)


def _nats_at(url: str) -> NatsSettings:
    try:
        return msgspec.convert({"url": url}, NatsSettings)
    except msgspec.ValidationError as e:
        raise BadInput([f"--nats {url!r}: want nats://host:port, several with commas, without a password"]) from e


def nats_of(settings: Settings) -> NatsSettings:
    """Where NATS is: as set, else the server that a `lockstep standalone` of this user started."""
    if settings.nats.url:
        return settings.nats
    address = embedded_address(settings.data_path)
    return NatsSettings() if address is None else NatsSettings(**address._asdict())


def slurm_client(cluster: ClusterSettings) -> SlurmRest:
    """The client of one cluster."""
    tokens = (
        KeyTokens(cluster.key_file, cluster.user) if cluster.key_file else FileTokens(cluster.token_file, cluster.user)
    )
    return SlurmRest(SlurmTransport(cluster.url, tokens), cluster=cluster.name)
