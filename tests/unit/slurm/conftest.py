"""A fake Slurm of four nodes, and clients of it that do not wait long."""

from collections.abc import AsyncIterator

import pytest

from lockstep.slurm.client import SlurmRest
from lockstep.slurm.transport import Transport
from tests.fakes.slurmrestd import FakeSlurmrestd, fake_slurm

WORDS = "lockstep: ops: swap"

# Keeps pytest-asyncio from making a loop at its first test that nobody closes (Python before 3.12).


@pytest.fixture(name="fake")
async def _fake() -> AsyncIterator[FakeSlurmrestd]:
    """A new Slurm with four nodes."""
    async with fake_slurm("gpu-1", "gpu-2", "gpu-3", "gpu-4") as fake:
        yield fake


@pytest.fixture(name="slurm")
async def _slurm(fake: FakeSlurmrestd) -> AsyncIterator[SlurmRest]:
    """Its client."""
    client = client_of(fake)
    yield client
    await client.close()


def client_of(fake: FakeSlurmrestd, *, total_s: float = 0.5) -> SlurmRest:
    """A client that does not wait long."""
    return SlurmRest(Transport(fake.url, fake.tokens(), total_s=total_s), cluster="main")
