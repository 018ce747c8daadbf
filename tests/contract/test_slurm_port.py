"""The fake slurmrestd keeps what the real one does: it sits the same exam, as both releases."""

from collections.abc import AsyncIterator

import pytest

from tests.contract.slurm_exam import Desk, SlurmExam
from tests.fakes.slurm import NEW, OLD, Release
from tests.fakes.slurmrestd import FakeSlurmrestd, fake_slurm


class FakeYard:
    """Jobs and reservations of the fake."""

    def __init__(self, slurm: FakeSlurmrestd) -> None:
        """Of this fake."""
        self._slurm = slurm

    async def start_job(self, node: str) -> int:
        """A job on this node."""
        return self._slurm.start_job([node])

    async def reserve(self, name: str, nodes: list[str]) -> None:
        """A maintenance reservation."""
        self._slurm.reservations[name] = nodes

    async def unreserve(self, name: str) -> None:
        """Its end."""
        del self._slurm.reservations[name]


class TestFake(SlurmExam):
    """The exam on the fake."""

    @pytest.fixture(params=[NEW, OLD], ids=lambda release: release.name)
    async def desk(self, request: pytest.FixtureRequest) -> AsyncIterator[Desk]:
        """The fake as one of the releases."""
        release: Release = request.param
        async with fake_slurm("gpu-1", "gpu-2", "gpu-3", release=release) as slurm:
            yield Desk(
                url=slurm.url,
                tokens=slurm.tokens(),
                nodes=list(slurm.nodes),
                yard=FakeYard(slurm),
                stranger=slurm.tokens("researcher"),
            )
