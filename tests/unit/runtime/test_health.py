"""Health over HTTP: who lives, what is missing, the metrics."""

from collections.abc import AsyncIterator

import aiohttp
import pytest

from lockstep.base.errors import Fatal
from lockstep.runtime.health import Health
from lockstep.runtime.metrics import NATS_UP
from lockstep.runtime.settings import HealthSettings

ANY_PORT = HealthSettings(port=0)


@pytest.fixture
async def health() -> AsyncIterator[tuple[Health, str]]:
    """One that serves."""
    one = Health()
    async with one.serving(ANY_PORT) as url:
        yield one, url


async def ask(url: str, path: str) -> tuple[int, str]:
    """Status and text."""
    async with aiohttp.ClientSession() as session, session.get(url + path) as answer:
        return answer.status, await answer.text()


async def test_a_process_without_faults_is_alive_and_ready(health: tuple[Health, str]) -> None:
    """Both say ok."""
    one, url = health
    one.beat("poll")
    one.need("nats", lambda: "")
    assert await ask(url, "/livez") == (200, "ok\n")
    assert await ask(url, "/readyz") == (200, "ok\n")


async def test_a_task_that_is_silent_for_too_long_is_named(health: tuple[Health, str]) -> None:
    """The process is then to be restarted."""
    one, url = health
    one.beat("poll", within_s=-1)
    one.beat("watch")
    status, text = await ask(url, "/livez")
    assert status == 503
    assert text.startswith("poll: no sign of life")
    assert "watch" not in text
    one.end("poll")
    assert (await ask(url, "/livez"))[0] == 200


async def test_what_is_missing_makes_it_not_ready_but_not_dead(health: tuple[Health, str]) -> None:
    """A restart would not bring NATS back."""
    one, url = health
    one.need("nats", lambda: "away for 7 s")
    assert await ask(url, "/readyz") == (503, "nats: away for 7 s\n")
    assert (await ask(url, "/livez"))[0] == 200


async def test_a_process_that_stops_is_not_ready(health: tuple[Health, str]) -> None:
    """It still lives."""
    one, url = health
    one.stopping = True
    assert await ask(url, "/readyz") == (503, "process: is stopping\n")
    assert (await ask(url, "/livez"))[0] == 200


async def test_metrics_are_brought_up_to_date_when_asked_for(health: tuple[Health, str]) -> None:
    """In Prometheus' text format."""
    one, url = health
    one.observe(lambda: NATS_UP.set(1))
    status, text = await ask(url, "/metrics")
    assert status == 200
    assert "lockstep_nats_up 1.0" in text


async def test_a_port_in_use_is_told_with_its_setting(health: tuple[Health, str]) -> None:
    """And ends the process."""
    port = int(health[1].rpartition(":")[2])
    with pytest.raises(Fatal, match=r"health\.host, health\.port"):
        async with Health().serving(HealthSettings(port=port)):
            pass
