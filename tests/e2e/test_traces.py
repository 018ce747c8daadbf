"""One flow is one trace, as the real Jaeger shows it."""

from collections.abc import Iterator

import pytest

from tests.e2e.site import Site, eventually
from tests.lab.jaeger import Jaeger, Span
from tests.lab.lab import Lab
from tests.lab.lockstep import Lockstep

SERVICES = {"lockstep-pod-watcher", "lockstep-drain", "lockstep-reconciler", "lockstep-slurm-poller"}


@pytest.fixture(scope="module", params=["separate", "standalone"], name="traced")
def _traced(lab: Lab, running: Lockstep, request: pytest.FixtureRequest) -> Iterator[Lockstep]:
    """Lockstep with its traces going to Jaeger: each service a process, or all in one."""
    lab.jaeger.up()
    running.stop()
    lockstep = Lockstep(lab, separate=request.param == "separate", settings={"tracing": dict(lab.jaeger.settings)})
    lockstep.up()
    yield lockstep
    lockstep.stop()
    running.up()
    lab.jaeger.down()


@pytest.fixture(name="site")
def _site(lab: Lab, traced: Lockstep) -> Iterator[Site]:
    """Both systems quiet and in step before the test, and put back in order after it."""
    site = Site(lab, traced)
    site.settle()
    yield site
    site.reset()


def traces(jaeger: Jaeger, worker: str) -> dict[str, list[Span]]:
    """The traces in which something was decided about a worker, the oldest first."""
    return {spans[0].trace: spans for spans in jaeger.find("lockstep-drain", {"lockstep.worker": worker})}


def flow(jaeger: Jaeger, worker: str, progress: str, but: set[str]) -> list[Span]:
    """The whole trace, none of `but`, in which a drain came so far; waits until nothing is added to it any more."""

    def found() -> str:
        return next(
            (t for t, spans in traces(jaeger, worker).items() if t not in but and _reached(spans, progress)), ""
        )

    try:
        trace = eventually(f"a trace of {worker} up to {progress}", found, 20, 0.3)
    except AssertionError as e:
        e.add_note("\n".join(f"{t}{' before' * (t in but)}\n{described(s)}" for t, s in traces(jaeger, worker).items()))
        raise
    size = 0

    def complete() -> list[Span]:
        nonlocal size
        spans = jaeger.trace(trace)
        before, size = size, len(spans)
        return spans if size == before else []

    return eventually("nothing is added", complete, 20, 2.5)


def _reached(spans: list[Span], progress: str) -> bool:
    return any(span.tags.get("lockstep.progress") == progress for span in spans)


def described(spans: list[Span]) -> str:
    """For a failure: what is in a trace."""
    return "\n".join(f"{s.start:.3f} {s.service:24} {s.kind:9} {s.id} <- {s.parent or '-':16} {s.name}" for s in spans)


def above(span: Span, spans: list[Span]) -> list[Span]:
    """A span, what it is a part of or follows from, and so on."""
    by_id = {each.id: each for each in spans}
    chain = [span]
    while chain[-1].parent:
        chain.append(by_id[chain[-1].parent])
    return chain


def test_a_cordon_is_one_trace_through_all_services(site: Site) -> None:
    """From the watch to the pod's condition, in causal order, without a hole, and without a secret."""
    jaeger = site.lab.jaeger
    before = set(traces(jaeger, "gpu-1"))
    host = site.cordon("gpu-1")
    eventually("drained and let go", lambda: site.slurm("gpu-1").drained and not site.protected("gpu-1"), 20)
    spans = flow(jaeger, "gpu-1", "drained", before)
    shown = described(spans)

    assert {span.service for span in spans} == SERVICES, shown
    ids = {span.id: span for span in spans}
    assert len(ids) == len(spans)
    roots = [span for span in spans if not span.parent]
    assert [(root.service, root.name) for root in roots] == [("lockstep-pod-watcher", "kubernetes changed")], shown
    assert roots[0].tags["k8s.node.name"] == host
    assert {span.parent for span in spans} - ids.keys() == {""}, shown
    assert all(span.start >= ids[span.parent].start for span in spans if span.parent), shown

    (post,) = (s for s in spans if s.tags.get("http.request.method") == "POST" and "/nodes/" in s.tags["url.path"])
    assert (post.service, post.kind, post.tags["http.response.status_code"]) == ("lockstep-reconciler", "client", 200)
    names = [(each.service.removeprefix("lockstep-"), each.name) for each in reversed(above(post, spans))]
    assert names == [
        ("pod-watcher", "kubernetes changed"),
        ("pod-watcher", "publish kube.node"),
        ("drain", "decide"),
        ("drain", "publish drain.desired"),
        ("reconciler", "drain-node"),
        ("reconciler", "write to Slurm"),
        ("reconciler", post.name),
    ]
    echo = next(span for span in spans if span.name == "slurm changed")
    assert above(echo, spans)[1].name in {"drain-node", "publish drain.desired"}, shown  # read before the answer, too
    patches = [s for s in spans if s.tags.get("http.request.method") == "PATCH"]
    condition = next(s for s in patches if s.tags["url.path"] == "/api/v1/namespaces/slurm/pods/gpu-1/status")
    assert above(condition, spans)[1].name == "show-state", shown
    assert any(echo in above(span, spans) for span in spans if span.name == "decide"), shown
    assert any(s.tags["url.path"] == f"/api/v1/nodes/{host}/status" for s in patches), shown
    uid = site.uid("gpu-1")
    assert {s.tags["k8s.pod.uid"] for s in spans if s.tags.get("k8s.pod.uid")} == {uid}

    text = jaeger.text(spans[0].trace)
    key = site.lab.slurm.key_file.read_bytes()
    for secret in (key.decode(errors="replace").strip(), key.hex(), "eyJ", "Bearer", "X-SLURM", "PRIVATE KEY"):
        assert secret not in text
    why = site.lockstep.cli("why", "gpu-1")
    assert f"{jaeger.url}/trace/{spans[0].trace}" in why


def test_a_drain_that_waits_for_a_job_is_continued_by_a_trace_that_links_back(site: Site) -> None:
    """Its trace ends where it waits. What comes of the job's end is another flow that names the first."""
    jaeger = site.lab.jaeger
    job = site.job("gpu-2")
    before = set(traces(jaeger, "gpu-2"))
    site.cordon("gpu-2")
    eventually("DRAIN", lambda: site.slurm("gpu-2").drained)
    first = flow(jaeger, "gpu-2", "draining", before)
    assert site.protected("gpu-2")

    site.cancel(job)
    eventually("let go", lambda: not site.protected("gpu-2"), 30)
    then = flow(jaeger, "gpu-2", "drained", before | {first[0].trace})
    assert (then[0].service, then[0].name) == ("lockstep-slurm-poller", "slurm changed"), described(then)
    drained = next(span for span in then if span.tags.get("lockstep.progress") == "drained")
    let_go = next(span for span in then if span.name == "unprotect")
    for span in (then[0], drained, let_go):
        assert first[0].trace in span.links, f"{span}\n{described(then)}"
    assert not _reached(jaeger.trace(first[0].trace), "drained")
