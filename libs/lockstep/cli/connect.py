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
from lockstep.bus.connection import Connection
from lockstep.kube.client import KubeClient
from lockstep.kube.settings import KubeClientSettings
from lockstep.kube.transport import Transport
from lockstep.runtime.load import CONFIG, PREFIX, load
from lockstep.runtime.ports import nats_address, open_bus, open_kube, open_slurm
from lockstep.runtime.settings import NatsSettings, Settings
from lockstep.slurm.port import SlurmApi

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
        self._slurm: dict[str, SlurmApi] | None = None

    @classmethod
    def of(cls, args: Namespace) -> "Reach":
        """As the options and the environment say.

        Raises:
            BadInput: with every fault of the settings.
        """
        return cls(settings_of(args))

    async def __aenter__(self) -> Self:
        """Connects to nothing yet. While it is open, libraries keep quiet: what matters is raised."""
        silence = logging.NullHandler()
        logging.getLogger().addHandler(silence)
        self._stack.callback(logging.getLogger().removeHandler, silence)
        self._stack.callback(structlog.configure, **structlog.get_config())
        quiet = structlog.make_filtering_bound_logger(logging.ERROR)
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
            self._kube = await self._stack.enter_async_context(open_kube(self.settings))
        return self._kube

    async def raw(self) -> Transport:
        """The same API server, for the few requests that only this command makes."""
        if self._raw is None:
            kube = self.settings.kube
            access = KubeClientSettings(kubeconfig=kube.kubeconfig, context=kube.context)
            self._raw = await self._stack.enter_async_context(Transport(access))
        return self._raw

    async def slurm(self, cluster: str) -> SlurmApi:
        """One Slurm cluster.

        Raises:
            BadInput: the settings do not say where its slurmrestd is.
        """
        if self._slurm is None:
            self._slurm = await self._stack.enter_async_context(open_slurm(self.settings))
        if cluster not in self._slurm:
            raise BadInput([f"cluster {cluster!r}: where its slurmrestd is, say the settings; give them with --config"])
        return self._slurm[cluster]

    async def bus(self) -> Connection:
        """NATS.

        Raises:
            Retry: no address is known, or it does not answer in time.
        """
        if self._bus is None:
            try:
                address = nats_address(self.settings)
            except BadInput as e:
                raise Retry("no NATS address is known") from e
            try:
                async with asyncio.timeout(PATIENCE_S):
                    opening = open_bus(self.settings, "cli", address=address)
                    self._bus = await self._stack.enter_async_context(opening)
                    self._bus.insists = False
            except (TimeoutError, OSError) as e:
                raise Retry(f"NATS at {address.url} does not answer") from e
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
            nats=_nats_at(env.get(f"{PREFIX}NATS_URL", ""), f"{PREFIX}NATS_URL"),
            data_dir=env.get(f"{PREFIX}DATA_DIR", known.data_dir),
        )
    kube = msgspec.structs.replace(
        settings.kube,
        kubeconfig=args.kubeconfig or settings.kube.kubeconfig,
        context=args.context or settings.kube.context,
    )
    nats = _nats_at(args.nats, "--nats") if args.nats else settings.nats
    return msgspec.structs.replace(settings, kube=kube, nats=nats)


def _nats_at(url: str, option: str) -> NatsSettings:
    try:
        return msgspec.convert({"url": url}, NatsSettings)
    except msgspec.ValidationError as e:
        raise BadInput([f"{option} {url!r}: want nats://host:port, several with commas, without a password"]) from e
