import pytest

from tests.deploy.cases import BAD, GOOD
from tests.lab.build import HELM, build


@pytest.fixture(scope="session", autouse=True)
def helm() -> None:
    """Helm is there; the first time it is built, in some minutes, which needs Go."""
    build(HELM)


@pytest.fixture(params=GOOD)
def case(request: pytest.FixtureRequest) -> str:
    """Each case of good values, by name."""
    name: str = request.param
    return name


@pytest.fixture(params=BAD)
def bad(request: pytest.FixtureRequest) -> str:
    """Each case of wrong values, by name."""
    name: str = request.param
    return name
