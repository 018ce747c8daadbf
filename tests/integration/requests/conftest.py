from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.fakes.nats import NatsWithUsers, nats_with_users
from tests.integration.whole import Site, whole

ALLOW = [
    {"user": "ops", "verbs": ["hold", "release", "cancel-drain"], "clusters": ["main"]},
    {"user": "lockstep", "verbs": ["hold", "release"], "clusters": ["*"], "override": True},
]


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="server")
async def _server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[NatsWithUsers]:
    async with nats_with_users(tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="site")
async def _site(server: NatsWithUsers, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    ours = server.of("lockstep")
    nats = {"url": ours.url, "user": ours.user, "password_file": ours.password_file}
    async with whole(tmp_path_factory.mktemp("site"), nats=nats, requests={"allow": ALLOW}) as site:
        yield site
