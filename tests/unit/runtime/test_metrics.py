"""What is counted, and how it is shown to Prometheus."""

import aiohttp
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from lockstep.contracts.events import EVENT_TYPES, RequestAccepted, RequestRefused, SourceBack
from lockstep.contracts.subjects import tag_of
from lockstep.runtime import metrics
from lockstep.runtime.health import Health
from lockstep.runtime.settings import HealthSettings
from tests.builders import NOW

OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
"""What Prometheus says that it accepts."""


async def scraped(accept: str) -> tuple[str, str]:
    """Content type and text of /metrics, for who accepts that."""
    async with (
        Health().serving(HealthSettings(port=0)) as url,
        aiohttp.ClientSession(headers={"Accept": accept}) as session,
        session.get(url + "/metrics") as answer,
    ):
        return answer.headers["Content-Type"], await answer.text()


def exemplars(text: str, leg: str) -> set[str]:
    """The traces that the leg's exemplars name."""
    samples = [s for f in text_string_to_metric_families(text) if f.name == "lockstep_leg_seconds" for s in f.samples]
    return {s.exemplar.labels["trace_id"] for s in samples if s.labels["leg"] == leg and s.exemplar}


async def test_a_leg_in_a_sampled_trace_leads_to_it() -> None:
    """The exemplar is the trace of the current span, in OpenMetrics for who accepts it."""
    tracer = TracerProvider(sampler=ALWAYS_ON).get_tracer("test")
    with tracer.start_as_current_span("reconcile") as span:
        metrics.observe_leg("traced", 0.2)
    kind, text = await scraped(OPENMETRICS)

    assert kind.startswith("application/openmetrics-text")
    assert exemplars(text, "traced") == {f"{span.get_span_context().trace_id:032x}"}


async def test_a_leg_that_was_told_of_later_leads_to_the_trace_that_came_along() -> None:
    """Such as that of the write which a reading shows."""
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    metrics.observe_leg("later", 0.2, traceparent=f"00-{trace_id}-b7ad6b7169203331-01")

    assert exemplars((await scraped(OPENMETRICS))[1], "later") == {trace_id}


@pytest.mark.parametrize("traceparent", ["", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00", "nonsense"])
async def test_a_leg_that_nobody_traced_leads_nowhere(traceparent: str) -> None:
    """A link to a trace that was not kept would be a dead one."""
    tracer = TracerProvider(sampler=ALWAYS_OFF).get_tracer("test")
    with tracer.start_as_current_span("reconcile"):
        metrics.observe_leg("untraced", 0.2, traceparent=traceparent)

    assert exemplars((await scraped(OPENMETRICS))[1], "untraced") == set()


async def test_who_does_not_accept_openmetrics_gets_the_older_text() -> None:
    """Without exemplars, which it does not know."""
    metrics.observe_leg("plain", 0.2, traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    kind, text = await scraped("*/*")

    assert kind.startswith("text/plain; version=0.0.4")
    assert 'lockstep_leg_seconds_count{leg="plain"}' in text
    assert "0af7651916cd43dd8448eb211c80319c" not in text


async def test_an_event_that_has_not_happened_yet_counts_zero() -> None:
    """Else the first one would not be seen as an increase."""
    _, text = await scraped("")

    assert {
        tag_of(kind) for kind in EVENT_TYPES if f'lockstep_events_total{{type="{tag_of(kind)}"}}' not in text
    } == set()


def test_an_event_is_counted_by_its_type() -> None:
    """Whatever it is about."""
    series = metrics.EVENTS.labels("source.back.v1")
    before = series._value.get()
    metrics.count_event(SourceBack(id="1", at=NOW, source="kube", of="_site"))

    assert series._value.get() == before + 1


def test_an_answered_request_is_counted_by_its_verb() -> None:
    """A verb that nobody here knows comes from outside and is no label."""
    said = [("hold", "accepted"), ("release", "refused"), ("other", "refused")]
    before = [metrics.REQUESTS.labels(*labels)._value.get() for labels in said]
    request = {"id": "1", "at": NOW, "cluster": "main", "request": "r-1", "by": "ops"}
    metrics.count_event(RequestAccepted(verb="hold", **request))  # type: ignore[arg-type]
    metrics.count_event(RequestRefused(verb="release", fault="no", **request))  # type: ignore[arg-type]
    metrics.count_event(RequestRefused(verb="rm -rf", fault="no", **request))  # type: ignore[arg-type]

    assert [metrics.REQUESTS.labels(*labels)._value.get() for labels in said] == [count + 1 for count in before]
