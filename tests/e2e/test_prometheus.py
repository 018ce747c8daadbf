"""A real Prometheus watches Lockstep on the lab: what it counts is what the fleet does."""

from collections.abc import Iterator

import pytest

from lockstep.base import clock
from tests.e2e.site import WORKERS, Site, eventually
from tests.lab.lab import Lab
from tests.lab.lockstep import SERVICES, Lockstep
from tests.lab.prometheus import Prometheus
from tests.observability.__main__ import DASHBOARDS

NOWHERE = {"tracing": {"endpoint": "http://127.0.0.1:9"}}
"""Flows are sampled, so that there are exemplars; where the traces go does not matter here."""
LEGS = ("read-to-fact", "fact-to-decision", "decision-to-write", "write-to-answer", "write-to-seen")
MOST_SERIES = 500
"""Of one process."""
RARE = "> 0"
"""A query that ends so shows nothing while nothing of that kind happened."""


@pytest.fixture(name="traced")
def _traced(lab: Lab, running: Lockstep) -> Iterator[Lockstep]:
    """Lockstep with its flows sampled."""
    running.stop()
    traced = Lockstep(lab, separate=True, settings=NOWHERE)
    traced.up()
    yield traced
    traced.stop()
    running.up()


@pytest.fixture(name="prometheus")
def _prometheus(lab: Lab, traced: Lockstep) -> Iterator[Prometheus]:
    """One that scrapes every service."""
    lab.prometheus.up(traced.addresses)
    yield lab.prometheus
    lab.prometheus.stop()


def test_prometheus_counts_what_the_fleet_does(traced: Lockstep, prometheus: Prometheus, site: Site) -> None:
    """Every service is scraped, each worker is counted once, and a cordon shows with the trace of its flow."""
    began = clock.now().timestamp()
    eventually("all targets are up", lambda: set(prometheus.targets().values()) == {"up"})
    assert len(prometheus.targets()) == len(traced.names)
    eventually("the fleet", lambda: prometheus.value("sum(lockstep_workers)") == len(WORKERS))
    eventually("leaders", lambda: prometheus.value("sum(lockstep_leading)") == len(traced.names))
    assert prometheus.value('sum(lockstep_pods{protection="protected"})') == len(WORKERS)

    host = site.cordon("gpu-1")
    eventually("a worker is drained", lambda: prometheus.value('sum(lockstep_workers{phase="drained"})') == 1)
    eventually("proven drained", lambda: prometheus.value('sum(lockstep_drains{progress="drained"})') == 1)
    assert prometheus.value("sum(lockstep_workers)") == len(WORKERS)
    assert prometheus.value('sum(lockstep_holds{class="cordon"})') == 1
    eventually("every panel shows something", lambda: not silent(prometheus))

    site.kubectl("uncordon", host)
    eventually("no drain", lambda: prometheus.value("sum(lockstep_drains)") == 0)
    for leg in LEGS:
        seen = prometheus.exemplars(f'lockstep_leg_seconds_bucket{{leg="{leg}"}}', began, clock.now().timestamp())
        assert seen, leg
        assert all(len(each["trace_id"]) == 32 for each in seen)
    assert (prometheus.value("max(scrape_samples_scraped)") or 0) < MOST_SERIES
    assert {name for name, state in prometheus.alerts().items() if state == "firing"} == set()


def test_a_cordon_is_one_line_for_whoever_sees_it(site: Site) -> None:
    """In the watcher's log as the node's, in the poller's as the worker's; decisions and writes have a line each."""
    logs = {service: site.lockstep.process(service) for service in SERVICES}
    since = {service: site.lockstep.log_end(name) for service, name in logs.items()}
    host = site.cordon("gpu-2")
    eventually("proven drained, and let go", lambda: not site.protected("gpu-2"))
    lines = {service: site.lockstep.log_lines(name, since[service]) for service, name in logs.items()}

    assert [line["happened"] for line in lines["pod-watcher"] if line.get("node") == host] == [["node.cordoned.v1"]]
    seen = [line["happened"] for line in lines["slurm-poller"] if line.get("worker") == "main/gpu-2"]
    assert len(seen) == 1
    assert "slurm-node.state-changed.v1" in seen[0]
    decided = [line["actions"] for line in lines["drain"] if line.get("worker") == "main/gpu-2"]
    assert decided[-1] == "drained"
    assert [line["actions"][0] for line in lines["reconciler"] if "DrainNode" in line.get("actions", ())] == [
        "DrainNode"
    ]


def silent(prometheus: Prometheus) -> list[str]:
    """The queries of our dashboards that show nothing, though they should."""
    queries = [query.expr for dashboard in DASHBOARDS.values() for query in dashboard.queries()]
    return [expr for expr in queries if not expr.endswith(RARE) and not prometheus.query(filled_in(expr))]


def filled_in(expression: str) -> str:
    """A panel's query with Grafana's variables filled in."""
    return expression.replace("$__rate_interval", "5m").replace("$cluster", ".*")
