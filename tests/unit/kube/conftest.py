"""A fake API server, and a client that talks to it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from lockstep.kube.client import KubeClient
from lockstep.kube.settings import KubeClientSettings
from tests.fakes.kube import FakeKube

MakeClient = Callable[..., Awaitable[KubeClient]]


@pytest.fixture
async def api() -> AsyncIterator[FakeKube]:
    """An API server in the process."""
    async with FakeKube() as fake:
        yield fake


@pytest.fixture
async def make_client(api: FakeKube, tmp_path: Path) -> AsyncIterator[MakeClient]:
    """Makes clients with other settings; all are closed at the end."""
    made: list[KubeClient] = []

    async def make(*, user: dict[str, str] | None = None, **settings: Any) -> KubeClient:
        path = api.kubeconfig(tmp_path, **(user or {}))
        client = KubeClient(KubeClientSettings(kubeconfig=path, **settings), random=Random(7))
        made.append(await client.__aenter__())
        return client

    yield make
    for client in made:
        await client.__aexit__(None, None, None)


@pytest.fixture
async def kube(make_client: MakeClient) -> KubeClient:
    """A client with ordinary settings."""
    return await make_client()
