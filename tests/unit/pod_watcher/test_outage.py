"""An outage of the API server is told by whoever may still tell it, and its end by whoever may again."""

import asyncio
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from lockstep.contracts.events import SourceLost
from lockstep.pod_watcher import handlers
from lockstep.runtime.settings import LeaseSettings
from tests.unit.pod_watcher.as_read import AT
from tests.unit.pod_watcher.scene import Kube, Scene

pytestmark = pytest.mark.looptime

DURATION_S = LeaseSettings().duration_s
RENEW_S = DURATION_S / 5 * 1.2
"""Between two renewals of a lease, at most."""
RIGHT_S = DURATION_S - DURATION_S / 5
"""So long after its last renewal a leader may act."""
TO_PUBLISH_S = 1.5
"""Left to tell it on a busy machine."""


class Frozen(Kube):
    """Answers nothing while it is silent."""

    async def server_version(self) -> None:
        """As the port; hangs."""
        if self.silent:
            await asyncio.Event().wait()


@pytest.mark.parametrize("after_s", [x / 5 for x in range(20)])
@pytest.mark.parametrize("server", [Kube, Frozen])
async def test_it_is_told_before_the_lease_runs_out(
    monkeypatch: pytest.MonkeyPatch, server: type[Kube], after_s: float
) -> None:
    """The lease was renewed for the last time shortly or long before the server fell silent."""
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(handlers.clock, "now", lambda: AT + timedelta(seconds=loop.time()))
    scene = Scene()
    scene.kube = server()
    scene.watcher._kube = scene.kube  # type: ignore[assignment]
    async with scene.running():
        scene.kube.all_synced()
        await asyncio.sleep(10 + after_s)
        scene.kube.silent = True
        await asyncio.sleep(RIGHT_S - RENEW_S - TO_PUBLISH_S)
        assert [type(event) for event in scene.bus.happened] == [SourceLost]


async def test_who_may_no_longer_tell_its_end_does_not_say_it_either(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lease has run out in the outage: the successor tells it, and says it in the log."""
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(handlers.clock, "now", lambda: AT + timedelta(seconds=loop.time()))
    scene = Scene()
    with capture_logs() as logs:
        async with scene.running():
            scene.kube.all_synced()
            await asyncio.sleep(10)
            scene.kube.silent = True
            await asyncio.sleep(10)
            scene.bus.away = True
            scene.kube.silent = False
            await asyncio.sleep(10)
            assert [line["event"] for line in logs] == ["Kubernetes stopped answering"]
            scene.bus.away = False
            await asyncio.sleep(1)
    assert [line["event"] for line in logs] == ["Kubernetes stopped answering", "Kubernetes answers again"]
