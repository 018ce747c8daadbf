"""Services of a test's own, and a process that runs them with an embedded NATS server and reaches nothing else."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from lockstep.contracts.facts import SlurmNode
from lockstep.runtime.ports import Ports
from lockstep.runtime.process import Process, Service
from lockstep.runtime.settings import ClusterSettings, HealthSettings, KubeSettings, LeaseSettings, Settings

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


@asynccontextmanager
async def running(process: Process, *services: Service) -> AsyncIterator[asyncio.Task[None]]:
    """The process runs inside the context."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(process.run(services, embedded=True))
        try:
            yield task
        finally:
            task.cancel()
