from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from lockstep.kube.client import KubeClient
from tests.contract.kube_site import Site
from tests.integration.control_plane import ControlPlane, control_plane
from tests.integration.kube.real_kube import RealYard, settings


@pytest.fixture(scope="package")
def plane() -> Iterator[ControlPlane]:
    """A control plane."""
    with control_plane() as plane:
        yield plane


@pytest.fixture(scope="package")
def token(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The token of a service account with just the rights that the client needs."""
    path = tmp_path_factory.mktemp("exam") / "token"
    path.write_text(plane.user("exam"))
    return path


@pytest.fixture
async def site(plane: ControlPlane, token: Path, tmp_path: Path) -> AsyncIterator[Site]:
    """The real API server."""
    async with KubeClient(settings(plane, tmp_path, token, page=3)) as kube:
        yield Site(kube=kube, yard=RealYard(plane.kube), namespace="slurm")
