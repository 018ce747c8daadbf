"""Inputs: the lab (started once, attached to afterwards) and a Lockstep that runs on it. Nothing is mocked."""

import os
from collections.abc import Generator, Iterator
from contextlib import suppress

import pytest

from tests.e2e.site import Site
from tests.lab.installed import Installed
from tests.lab.lab import Lab
from tests.lab.lockstep import Lockstep

LAST_LINES = 40
"""Of each log, where a test has failed."""
OPS = {"user": "ops", "verbs": ["hold", "release", "cancel-drain"], "clusters": ["main"]}
"""What may be asked for over NATS, where the lab's server has no users: anybody may say that he is `ops`."""


@pytest.fixture(scope="session", name="lab")
def _lab() -> Iterator[Lab]:
    """The lab with three real kubelets; left running when somebody started it before the tests."""
    keep = bool(os.environ.get("LOCKSTEP_LAB_KEEP"))
    lab = Lab.up()
    yield lab
    if not keep:
        lab.down()


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--installed`: what the tests of the main job try is the chart, in pods."""
    parser.addoption("--installed", action="store_true")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Function) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What failed is shown with what Lockstep said last: its pods go with the lab."""
    report = yield
    sites = [each for each in getattr(item, "funcargs", {}).values() if isinstance(each, Site)]
    if report.failed and sites:
        with suppress(OSError, RuntimeError):
            report.sections.append(("Lockstep's logs", sites[0].lockstep.last_words(LAST_LINES)))
    return report


@pytest.fixture(scope="session", name="running")
def _running(lab: Lab, request: pytest.FixtureRequest) -> Iterator[Lockstep | Installed]:
    """Lockstep, each service in a process of its own; at the end nobody is held, for whoever uses the lab next.

    The chart may be gone by then; whoever tries it has a lab of her own.
    """
    installed = request.config.getoption("--installed")
    lockstep = Installed(lab) if installed else Lockstep(lab, separate=True, settings={"requests": {"allow": [OPS]}})
    lockstep.install()
    lockstep.up()
    yield lockstep
    if not installed:
        Site(lab, lockstep).settle()
        lockstep.stop()


@pytest.fixture(name="site")
def _site(lab: Lab, running: Lockstep | Installed) -> Iterator[Site]:
    """Both systems quiet and in step before the test, and put back in order after it."""
    site = Site(lab, running)
    site.settle()
    yield site
    site.reset()
