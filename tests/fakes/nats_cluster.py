"""Three real nats-servers that keep the streams together; any of them can be killed and frozen."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from lockstep.bus.connection import Connection
from lockstep.runtime.embedded import HOST, NatsAddress, _free_port
from lockstep.runtime.recovery import until_done
from tests.fakes.nats import NatsServer, connected

SECRET = "one-secret"


class Member(NatsServer):
    """One of them. Routes lead to the others, whether they run or not."""

    def __init__(self, folder: Path, route: int, routes: Sequence[int]) -> None:
        super().__init__(folder)
        self.name = folder.name
        self._route, self._routes = route, routes

    def _write_files(self) -> None:
        (self._dir / "nats.password").write_text(SECRET)
        super()._write_files()
        routes = ", ".join(f'"nats://{HOST}:{port}"' for port in self._routes)
        cluster = f'cluster {{ name: three, listen: "{HOST}:{self._route}", routes: [{routes}] }}'
        with (self._dir / "nats.conf").open("a") as config:
            config.write(f"server_name: {self.name}\n{cluster}\n")


class Cluster:
    """The members by name."""

    def __init__(self, members: Sequence[Member]) -> None:
        self.members = {member.name: member for member in members}

    def started(self, first: int) -> list[Member]:
        """The first so many."""
        return list(self.members.values())[:first]

    @property
    def address(self) -> NatsAddress:
        """All of them."""
        first, *others = [member.address for member in self.members.values()]
        return first._replace(url=",".join([first.url, *(one.url for one in others)]))

    async def agreed(self) -> None:
        """Waits until they have chosen who leads JetStream."""
        async with connected(self.address, streams=()) as connection:
            await until_done(partial(connection.call, "INFO", timeout_s=0.5))

    async def leader(self, connection: Connection, stream: str) -> Member:
        """Who leads that stream now, as the servers say."""
        info = await connection.call(f"STREAM.INFO.{stream}")
        return self.members[info["cluster"]["leader"]]


@asynccontextmanager
async def nats_cluster(folder: Path, *, first: int = 3) -> AsyncIterator[Cluster]:
    """Three, of which the `first` run and agree when the context begins; others that are started join them."""
    routes = [_free_port() for _ in range(3)]
    known = [routes[: max(first, n + 1)] for n in range(3)]
    cluster = Cluster([Member(folder / f"nats-{n}", routes[n], known[n]) for n in range(3)])
    try:
        await asyncio.gather(*(member.start() for member in cluster.started(first)))
        await cluster.agreed()
        yield cluster
    finally:
        for member in cluster.members.values():
            if member.pid is not None:
                member.pause(False)
        await asyncio.gather(*(member.stop() for member in cluster.members.values()))
