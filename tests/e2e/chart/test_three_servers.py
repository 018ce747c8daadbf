"""Three NATS servers, of which one may be lost."""

import asyncio
import time
from collections.abc import Iterator

import nats
import pytest
from nats.js.api import StreamInfo

from tests.e2e.guard import Guard, in_step
from tests.e2e.site import Site, eventually
from tests.lab.helm import NAMESPACE
from tests.lab.installed import PERSON, Installed
from tests.lab.lab import Lab


@pytest.fixture(scope="module", name="three")
def _three(lab: Lab) -> Iterator[Site]:
    """A release with three servers from its first day."""
    installed = Installed(lab)
    installed.stop()
    installed.install({"nats": {"replicas": 3}})
    site = Site(lab, installed)
    site.settle()
    yield site
    site.reset()
    installed.stop()


def stream(installed: Installed, name: str) -> StreamInfo:
    """What NATS says of a stream."""

    async def ask() -> StreamInfo:
        client = await nats.connect(installed.nats_url, user=PERSON, password=installed.password(PERSON))
        try:
            return await client.jetstream().stream_info(name)
        finally:
            await client.close()

    return asyncio.run(ask())


@pytest.mark.parametrize("name", ["LOCKSTEP_FACTS", "LOCKSTEP_EVENTS"])
def test_the_server_that_leads_a_stream_may_die(three: Site, name: str) -> None:
    """In the middle of a drain: the others have all that was acknowledged, and the services go on with them."""
    installed = three.lockstep
    assert isinstance(installed, Installed)
    before = stream(installed, name)
    assert before.config.num_replicas == 3
    assert before.cluster is not None
    with Guard(three).watching() as guard:
        job = three.job("gpu-1")
        host = three.cordon("gpu-1")
        eventually("DRAIN", lambda: three.slurm("gpu-1").drained)
        guard.stays("gpu-1")
        three.kubectl("-n", NAMESPACE, "delete", "pod", str(before.cluster.leader), "--force", "--grace-period=0")
        began = time.monotonic()
        three.cordon("gpu-2")
        eventually("DRAIN of another", lambda: three.slurm("gpu-2").drained, 15)
        print(f"drained {time.monotonic() - began:.1f} s after the leader of {name} was killed")
        three.cancel(job)
        eventually("let go", lambda: not in_step(three)["gpu-1"].protected)
        guard.may_return("gpu-1")
        three.unschedulable(host, value=False)
        three.unschedulable(three.host("gpu-2"), value=False)
        in_step(three)
    after = stream(installed, name)
    assert after.state.last_seq >= before.state.last_seq
    assert not three.events(since="5m", kind="fleet.gap-found")
    eventually("three servers again", lambda: len(stream(installed, name).cluster.replicas or ()) == 2, 60, 1)
