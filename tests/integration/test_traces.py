"""One flow is one trace through all services and a real NATS; Kubernetes, Slurm and the collector are fakes."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from lockstep.base.clock import monotonic
from lockstep.bus.ask import ask
from lockstep.bus.connection import connect
from lockstep.contracts.hold import HoldSpec, WorkerSelector
from lockstep.contracts.requests import HoldRequest
from tests.fakes.collector import Collector, Span, collecting, dead, hanging
from tests.fakes.nats import NatsWithUsers, nats_with_users
from tests.integration.whole import Site, whole

SERVICES = {"lockstep-pod-watcher", "lockstep-drain", "lockstep-reconciler", "lockstep-slurm-poller"}
ASKED = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
ALLOW = [{"user": "ops", "verbs": ["hold"], "clusters": ["main"]}]


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NatsWithUsers]:
    """A real NATS."""
    async with nats_with_users(tmp_path / "nats") as running:
        yield running


@pytest.fixture
def collector() -> Iterator[Collector]:
    """Where the spans go."""
    with collecting() as running:
        yield running


@pytest.fixture
async def site(tmp_path: Path, server: NatsWithUsers, collector: Collector) -> AsyncIterator[Site]:
    """Two workers, and all services in one process."""
    ours = server.of("lockstep")
    nats = {"url": ours.url, "user": ours.user, "password_file": ours.password_file}
    tracing = {"endpoint": collector.url, "ui": "http://jaeger/trace/{trace_id}"}
    async with whole(tmp_path, workers=2, nats=nats, tracing=tracing, requests={"allow": ALLOW}) as site:
        yield site


async def flow(collector: Collector, is_it: Callable[[Span], object]) -> list[Span]:
    """The trace of the span of which that is true, when nothing has been added for longer than spans are kept back."""
    end = monotonic() + 20
    size = -1
    while True:
        found = next((span.trace for span in list(collector.spans) if is_it(span)), "")
        spans = collector.trace(found)
        if found and len(spans) == size:
            return spans
        size = len(spans)
        assert monotonic() < end, [(span.service, span.name) for span in collector.spans]
        await asyncio.sleep(1.5)


def check(spans: list[Span], *, outside: str = "") -> None:
    """No parent is missing (but the one that is not ours), and nothing begins before what it follows from."""
    ids = {span.id: span for span in spans}
    assert {span.parent for span in spans} - ids.keys() == {outside}
    assert all(span.start >= ids[span.parent].start for span in spans if span.parent in ids)


def cordon(site: Site, name: str) -> None:
    """As kubectl does."""
    fields = [{"manager": "kubectl-cordon", "fieldsV1": {"f:spec": {"f:unschedulable": {}}}}]
    site.kube.put("nodes", name, spec={"unschedulable": True}, metadata={"managedFields": fields})


def let_go(span: Span) -> bool:
    """The pod of the first worker may be evicted."""
    return span.name == "unprotect" and span.attributes["lockstep.worker"] == "gpu-1"


def secrets(site: Site) -> list[str]:
    """What must not be anywhere."""
    return [site.slurm.key.decode(), "Bearer", "mine", "eyJ", "X-SLURM", "password"]


async def test_a_request_goes_on_from_whoever_asked_to_the_pod_that_may_go(
    site: Site, server: NatsWithUsers, collector: Collector
) -> None:
    """One trace from the client's own span over NATS, Kubernetes and Slurm; both servers are told of it."""
    ops = server.of("ops")
    connection = await connect(ops.url, name="ops", user=ops.user, password_file=ops.password_file)
    spec = HoldSpec(workers=WorkerSelector(names=["gpu-1"]), reason="DIMM B2")
    await ask(connection, HoldRequest(id="r-1", cluster="main", spec=spec), "ops", traceparent=ASKED)
    await connection.close()

    spans = await flow(collector, let_go)
    assert {span.trace for span in spans} == {ASKED[3:35]}
    assert {span.service for span in spans} == SERVICES
    check(spans, outside=ASKED[36:52])

    named = {span.name: span for span in spans}
    placed, seen = named["request"], named["kubernetes changed"]
    assert placed.parent == ASKED[36:52]
    assert next(span for span in spans if span.name == "kubernetes changed").parent == placed.id
    post = named["POST /slurm/v0.0.45/nodes/"]
    assert f"00-{post.trace}-{post.id}-01" in {headers.get("traceparent") for headers in site.slurm.headers}
    patch = named["PATCH /api/v1/namespaces/{namespace}/pods/{name}/status"]
    assert f"00-{patch.trace}-{patch.id}-01" in site.kube.traces
    assert seen.attributes["lockstep.cluster"] == "main"
    text = json.dumps(collector.spans)
    assert [secret for secret in secrets(site) if secret in text] == []
    assert f"Trace: http://jaeger/trace/{post.trace}\n" in (await site.run("why", "gpu-1")).out


async def test_what_ends_a_drain_later_is_a_trace_of_its_own_that_links_back(site: Site, collector: Collector) -> None:
    """The job's end is what somebody did then; the decision and the letting go name the flow that waited."""
    job = site.slurm.start_job(["gpu-1"])
    await site.until("gpu-1", phase="busy")
    cordon(site, "host-1")
    await site.until("gpu-1", progress="draining")
    first = await flow(collector, lambda span: span.name == "drain-node")
    check(first)
    assert first[0].name == "kubernetes changed"

    site.slurm.end_job(job)
    then = await flow(collector, let_go)
    check(then)
    assert (then[0].name, then[0].service) == ("slurm changed", "lockstep-slurm-poller")
    assert then[0].trace != first[0].trace
    drained = next(span for span in then if span.attributes.get("lockstep.progress") == "drained")
    gone = next(span for span in then if let_go(span))
    assert [first[0].trace in span.links for span in (then[0], drained, gone)] == [True, True, True]


@pytest.mark.parametrize("away", [dead, hanging])
async def test_a_collector_that_is_away_fails_and_delays_nothing(
    tmp_path: Path, away: Callable[[], AbstractContextManager[str]]
) -> None:
    """The drain is done, the process ends in good order, and the log says it once."""
    log = tmp_path / "log"
    with away() as endpoint:
        async with whole(tmp_path, workers=1, tracing={"endpoint": endpoint}) as site:
            cordon(site, "host-1")
            await site.until("gpu-1", progress="drained", protected=False)
            async with asyncio.timeout(20):
                while "Trace collector" not in log.read_text():
                    await asyncio.sleep(0.1)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    said = [line["event"] for line in lines if line["event"].startswith("Trace collector")]
    assert said == ["Trace collector stopped answering"]
    assert [line for line in lines if line["level"] == "error"] == []
