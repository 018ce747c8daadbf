"""Real promtool and Prometheus on what we serve, and on the rules and dashboards that ask for it."""

import asyncio
import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from lockstep.base import clock
from lockstep.runtime import metrics
from lockstep.runtime.gauges import Census
from lockstep.runtime.health import Health
from lockstep.runtime.settings import HealthSettings
from tests.builders import POLICY, a_desired, a_pod, a_slurm_node, a_table, a_view
from tests.lab import packages
from tests.lab.packages import FOR_TESTS
from tests.lab.processes import Processes
from tests.lab.prometheus import RULES, Prometheus
from tests.observability.__main__ import DASHBOARDS

TESTS = sorted((RULES.parent / "tests").glob("*.yaml"))
TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture(scope="module", autouse=True)
def _installed() -> None:
    """The Debian package, where it is not there yet."""
    packages.install(packages.FOR_TESTS)


@pytest.fixture(name="census")
def _census() -> Iterator[Census]:
    """A fleet of three: idle, held and drained, busy without protection."""
    facts = [a_slurm_node("IDLE", name="a"), a_slurm_node("IDLE+DRAIN", name="b"), a_slurm_node("MIXED", name="c")]
    pod = a_pod(name="c", worker="c", protected=False)
    census = Census(a_table(*facts, a_desired(a_view(), name="b", progress="drained"), pod), POLICY)
    yield census
    census.forget()


def promtool(*arguments: str, given: str = "") -> "subprocess.CompletedProcess[str]":
    """Run it."""
    command = [FOR_TESTS["prometheus"], *arguments]
    return subprocess.run(command, input=given, capture_output=True, text=True, check=False, timeout=60)


async def test_promtool_finds_nothing_amiss_in_our_metrics(census: Census) -> None:
    """Names, units and help texts are as Prometheus' conventions want them."""
    health = Health()
    health.observe(census.show)
    metrics.observe_leg("read-to-fact", 0.1)
    async with (
        health.serving(HealthSettings(port=0)) as url,
        aiohttp.ClientSession() as session,
        session.get(url + "/metrics") as answer,
    ):
        text = await answer.text()
    checked = promtool("check", "metrics", given=text)

    assert "lockstep_workers" in text
    assert (checked.stdout, checked.stderr, checked.returncode) == ("", "", 0)


def test_promtool_finds_nothing_amiss_in_our_rules() -> None:
    """Every expression and every template is understood."""
    checked = promtool("check", "rules", str(RULES))
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.stem)
def test_an_alert_fires_when_it_should_and_not_otherwise(path: Path) -> None:
    """With the words that somebody reads at night."""
    tested = promtool("test", "rules", str(path))
    assert tested.returncode == 0, tested.stdout + tested.stderr


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_query_of_a_dashboard_is_understood(name: str, tmp_path: Path) -> None:
    """With Grafana's own variables filled in."""
    rules = [{"record": f"test:{i}", "expr": filled_in(q.expr)} for i, q in enumerate(DASHBOARDS[name].queries())]
    file = tmp_path / "rules.yaml"
    file.write_text(json.dumps({"groups": [{"name": name, "rules": rules}]}))
    checked = promtool("check", "rules", "--lint=none", str(file))

    assert rules
    assert checked.returncode == 0, checked.stderr


async def test_a_real_prometheus_takes_all_of_it(census: Census, tmp_path: Path) -> None:
    """It scrapes OpenMetrics with exemplars, sums the fleet, and has our rules."""
    processes = Processes(tmp_path / "state", tmp_path / "logs")
    (tmp_path / "logs").mkdir()
    prometheus = Prometheus(processes, tmp_path / "prometheus", free_port())
    health = Health()
    health.observe(census.show)
    began = clock.now().timestamp()
    metrics.observe_leg("write-to-seen", 0.2, traceparent=f"00-{TRACE}-b7ad6b7169203331-01")
    try:
        async with health.serving(HealthSettings(port=0)) as url:
            target = url.removeprefix("http://")
            await asyncio.to_thread(prometheus.up, [target])
            async with asyncio.timeout(30):
                while await asyncio.to_thread(prometheus.value, "sum(lockstep_workers)") is None:
                    await asyncio.sleep(0.2)

            def ask() -> tuple[object, ...]:
                held = prometheus.value('sum(lockstep_drains{progress="drained"})')
                unprotected = prometheus.value('sum(lockstep_pods{protection="missing"})')
                of_leg = 'lockstep_leg_seconds_bucket{leg="write-to-seen"}'
                seen = {"trace_id": TRACE} in prometheus.exemplars(of_leg, began - 60, began + 600)
                return prometheus.value("sum(lockstep_workers)"), held, unprotected, seen, prometheus.targets()

            found = await asyncio.to_thread(ask)
            alerts = await asyncio.to_thread(prometheus.alerts)
    finally:
        processes.stop_all(timeout_s=5)
    assert found == (3, 1, 1, True, {target: "up"})
    assert len(alerts) == len(TESTS)


def filled_in(expression: str) -> str:
    """A panel's query with Grafana's variables filled in."""
    return expression.replace("$__rate_interval", "5m").replace("$cluster", ".*")


def free_port() -> int:
    """One that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
