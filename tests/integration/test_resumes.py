"""Somebody resumes in Slurm what is held, or drains what is freed, before any reading has shown our own write.

`eventually` waits 10 s: the next reading tells. The sweep, which looks at everybody, comes every 30 s.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fakes.slurm_faults import Fault
from tests.integration.test_sources import cordon, eventually
from tests.integration.whole import Site, whole

READ = "GET nodes/"


@pytest.fixture(name="site")
async def _site(tmp_path: Path) -> AsyncIterator[Site]:
    async with whole(tmp_path, workers=1) as site:
        yield site


async def unread(site: Site) -> None:
    """From now on a reading of all nodes is on its way, and shows none of what follows."""
    before = site.slurm.count(READ)
    site.slurm.fail(Fault(on=READ, hang_s=2))
    await eventually(lambda: site.slurm.count(READ) > before)


async def test_a_resume_that_comes_before_the_drain_was_read_is_drained_again(site: Site) -> None:
    """Nothing that is read changes: the worker was in service before the drain, and is after it."""
    node = site.slurm.nodes["gpu-1"]
    await unread(site)
    cordon(site.kube, "host-1")
    await eventually(lambda: "DRAIN" in node.flags)
    node.flags.discard("DRAIN")
    node.reason = ""

    await eventually(lambda: "DRAIN" in node.flags)
    told = (await site.run("events", "--since", "1m", "-o", "json")).out
    assert "hold.reasserted.v1" in told


async def test_a_freed_worker_that_slurm_shows_drained_by_us_again_is_freed_again(site: Site) -> None:
    """As after a slurmctld that was killed and has forgotten the UNDRAIN."""
    node = site.slurm.nodes["gpu-1"]
    cordon(site.kube, "host-1")
    await site.until("gpu-1", phase="drained")
    words = node.reason
    await unread(site)
    site.kube.put("nodes", "host-1", spec={"unschedulable": False})
    await eventually(lambda: "DRAIN" not in node.flags)
    node.flags.add("DRAIN")
    node.reason = words

    await eventually(lambda: "DRAIN" not in node.flags)
