"""Services of a test's own, and a process that runs them with an embedded NATS server and reaches nothing else."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from lockstep.contracts.facts import SlurmNode
from lockstep.runtime.ports import Ports
from lockstep.runtime.process import Process, Service


def poller(run: Callable[[Ports], Awaitable[None]]) -> Service:
    """A service that writes facts of Slurm."""
    return Service(name="slurm-poller", family="slurm", run=run)


def node(base: str) -> SlurmNode:
    """A Slurm node."""
    return SlurmNode(cluster="main", name="gpu-1", base=base)


@asynccontextmanager
async def running(process: Process, *services: Service) -> AsyncIterator[asyncio.Task[None]]:
    """The process runs inside the context."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(process.run(services, embedded=True))
        try:
            yield task
        finally:
            task.cancel()
