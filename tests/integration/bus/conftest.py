from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lockstep.bus.connection import Connection
from tests.fakes.nats import NatsServer, connected, nats_server


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    """A running server."""
    async with nats_server(tmp_path / "nats") as running:
        yield running


@pytest.fixture
async def connection(server: NatsServer) -> AsyncIterator[Connection]:
    """A watched connection to it."""
    async with connected(server.address) as one:
        yield one
