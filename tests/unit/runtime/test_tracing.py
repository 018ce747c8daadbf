"""Spans: whose they are, what they continue, what goes along with a message and a request."""

import asyncio
import gc
import sys
from collections.abc import Iterator

import pytest
from opentelemetry.trace import INVALID_SPAN, SpanKind, StatusCode

from lockstep.base.calls import Request, Untold
from lockstep.runtime import tracing
from lockstep.runtime.settings import TracingSettings
from lockstep.runtime.tracing import (
    Step,
    calling,
    current_traceparent,
    link,
    sending,
    setup_tracing,
    span,
    step,
    steps,
    trace_as,
)
from tests.spans import Spans, header_of, is_child, kept_spans, links_of

FACT = "lockstep.fact.slurm.node.main.gpu-1"
POST = Request("POST", "http://slurm:6820", "/slurm/v0.0.45/nodes/", "/slurm/v0.0.45/nodes/")


@pytest.fixture(name="spans")
def _spans() -> Iterator[Spans]:
    """What has ended in this test."""
    with kept_spans() as spans:
        yield spans


def test_a_span_continues_the_trace_that_came_with_the_message(spans: Spans) -> None:
    """The next service's span is the child of the sender's."""
    with span("watch"):
        sent = current_traceparent()
    assert current_traceparent() == ""
    with span("decide", parent=sent, links=[sent, "nonsense"]):
        pass
    first, second = spans.all
    assert is_child(second, first)
    assert links_of(second) == [first.context.span_id]


def test_a_broken_traceparent_starts_a_new_trace(spans: Spans) -> None:
    """It comes from outside."""
    with span("decide", parent="00-zz"):
        pass
    assert spans.all[0].parent is None


def test_an_error_marks_the_span_and_goes_on(spans: Spans) -> None:
    """The trace shows where it failed; what the error says is bounded and on one line."""
    with pytest.raises(ValueError, match="no"), span("write"):
        raise ValueError("no\n" + "x" * 1_000)
    (failed,) = spans.all
    assert failed.status.status_code is StatusCode.ERROR
    assert failed.status.description is not None
    assert len(failed.status.description) == 200
    assert "\n" not in failed.status.description
    assert failed.attributes == {"error.type": "ValueError"}


def test_text_from_outside_is_bounded_in_a_span_too(spans: Spans) -> None:
    """A reason may be long and may hold anything; what is empty is left out."""
    with span("decide", attributes={"lockstep.words": "a\nb" + "x" * 10_000, "lockstep.why_not": ""}):
        pass
    shown = spans.all[0].attributes
    assert shown is not None
    assert list(shown) == ["lockstep.words"]
    assert str(shown["lockstep.words"]).startswith("a b")
    assert len(str(shown["lockstep.words"])) == tracing.MAX_VALUE


async def test_each_service_of_a_process_has_its_own_name(spans: Spans) -> None:
    """As in `lockstep standalone`: a flow that goes through two of them shows both."""

    async def serve(service: str, parent: str) -> str:
        trace_as(service)
        with span(service, parent=parent):
            return current_traceparent()

    async with asyncio.TaskGroup() as group:
        first = await group.create_task(serve("pod-watcher", ""))
        await group.create_task(serve("drain", first))
    services = {one.name: one.resource.attributes["service.name"] for one in spans.all}
    assert services == {"pod-watcher": "lockstep-pod-watcher", "drain": "lockstep-drain"}
    assert is_child(spans["drain"], spans["pod-watcher"])


def test_steps_side_by_side_are_traces_of_their_own(spans: Spans) -> None:
    """A thousand workers in one round are a thousand flows; each says where it goes on."""
    each = {"gpu-1": Step("decide"), "gpu-2": Step("decide", links=["00-" + "1" * 32 + "-" + "2" * 16 + "-01"])}
    with steps(lambda: each) as traces:
        assert current_traceparent() == ""
        assert spans.all == []
    one, other = spans.all
    assert {f"{s.context.trace_id:032x}" for s in (one, other)} == {t.split("-")[1] for t in traces.values()}
    assert len(traces) == 2


def test_a_message_is_sent_by_a_producer_and_handled_by_a_consumer(spans: Spans) -> None:
    """In the words of the conventions for messaging; the header names the producer."""
    with span("slurm changed"), sending(FACT, "") as header:
        pass
    with step(lambda: Step("decide", header, subject=FACT)):
        pass
    sent, handled = spans["publish slurm.node"], spans["decide"]
    assert is_child(sent, spans["slurm changed"])
    assert is_child(handled, sent)
    assert (sent.kind, handled.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    common = {
        "messaging.system": "nats",
        "messaging.destination.name": FACT,
        "messaging.destination.template": "lockstep.fact.slurm.node.{scope}.{identity}",
    }
    assert sent.attributes == common | {"messaging.operation.name": "publish", "messaging.operation.type": "send"}
    assert handled.attributes == common | {"messaging.operation.name": "process", "messaging.operation.type": "process"}


def test_a_message_goes_on_in_the_trace_that_is_named_for_it(spans: Spans) -> None:
    """Several flows are published in one call."""
    with span("one"):
        named_for_it = current_traceparent()
    with span("other"), sending(FACT, named_for_it):
        pass
    assert is_child(spans["publish slurm.node"], spans["one"])


def test_what_belongs_to_no_flow_begins_none(spans: Spans) -> None:
    """A heartbeat, a poll, the renewal of a lease."""
    with sending("lockstep.fact.source.health._site.kube", "") as header, calling(POST) as call:
        assert (header, dict(call.headers)) == ("", {})
    assert spans.all == []


def test_a_request_is_a_clients_span_and_lets_the_server_continue_it(spans: Spans) -> None:
    """With what the conventions want, and neither query nor token."""
    with span("drain-node"), calling(POST) as call:
        call.answered(200)
    request = spans["POST /slurm/v0.0.45/nodes/"]
    assert request.kind is SpanKind.CLIENT
    assert call.headers == {"traceparent": header_of(request)}
    assert request.attributes == {
        "http.request.method": "POST",
        "server.address": "slurm",
        "server.port": 6820,
        "url.path": "/slurm/v0.0.45/nodes/",
        "url.template": "/slurm/v0.0.45/nodes/",
        "http.response.status_code": 200,
    }


def test_a_refusal_and_a_silence_mark_the_request(spans: Spans) -> None:
    """The one by its status, the other by the error."""
    with span("drain-node"), calling(POST) as call:
        call.answered(503)
    with pytest.raises(TimeoutError), span("drain-node"), calling(POST):
        raise TimeoutError
    refused, silent = (one for one in spans.all if one.kind is SpanKind.CLIENT)
    assert (refused.status.status_code, silent.status.status_code) == (StatusCode.ERROR, StatusCode.ERROR)
    assert refused.attributes is not None
    assert refused.attributes["error.type"] == "503"
    assert silent.attributes is not None
    assert silent.attributes["error.type"] == "TimeoutError"


def test_a_span_can_be_linked_to_what_another_one_did_for_it(spans: Spans) -> None:
    """A write that was sent together with others' is a part of one flow only."""
    with span("write to Slurm"):
        shared = current_traceparent()
    with span("drain-node"):
        link(shared)
        link("")
    assert links_of(spans["drain-node"]) == [spans["write to Slurm"].context.span_id]


def test_a_flow_that_is_not_sampled_is_not_sampled_anywhere() -> None:
    """Whoever begins it decides; the header says so to all who continue it, so that no trace has holes."""
    with kept_spans(sample=0.0) as here, span("watch"), sending(FACT, "") as header:
        assert header.endswith("-00")
    with kept_spans() as there, span("decide", parent=header):
        pass
    assert here.all == there.all == []


def test_without_an_endpoint_there_are_no_spans() -> None:
    """Not even objects: the same nothing is handed out each time, and nobody is asked what it would say."""

    def never() -> dict[str, Step]:
        raise AssertionError("asked for")

    assert setup_tracing(TracingSettings(), "drain")() is None
    with steps(never) as traces, step(never) as current, sending(FACT, "00-1-2-01") as header, calling(POST) as call:  # type: ignore[arg-type]
        assert (traces, current, header, current_traceparent()) == ({}, INVALID_SPAN, "", "")
        assert isinstance(call, Untold)
    before = sys.getallocatedblocks()
    for _ in range(1_000):
        with span("decide"), sending(FACT, ""):
            pass
    assert sys.getallocatedblocks() - before < 100


async def test_a_hundred_flows_at_once_keep_their_traces_apart(spans: Spans) -> None:
    """Each message carries its own context through the loop."""
    queue: asyncio.Queue[tuple[int, str]] = asyncio.Queue()

    async def send(number: int) -> None:
        with span(f"send-{number}"):
            await asyncio.sleep(0)
            await queue.put((number, current_traceparent()))

    async def handle(number: int, parent: str) -> None:
        with span(f"handle-{number}", parent=parent):
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        for number in range(100):
            group.create_task(send(number))
        for _ in range(100):
            group.create_task(handle(*await queue.get()))
    gc.collect(0)
    by_name = {one.name: one for one in spans.all}
    for number in range(100):
        sent, handled = by_name[f"send-{number}"], by_name[f"handle-{number}"]
        assert is_child(handled, sent)
    assert len({one.context.trace_id for one in by_name.values()}) == 100
