"""Nobody waits for whoever takes the traces."""

import json
from collections.abc import Iterator
from time import monotonic

import pytest
import structlog
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from lockstep.runtime import exporter, tracing
from lockstep.runtime.exporter import Quiet
from lockstep.runtime.settings import LogSettings, TracingSettings
from lockstep.runtime.telemetry import setup_logging
from lockstep.runtime.tracing import setup_tracing, span
from tests.fakes.collector import collecting, dead, hanging
from tests.spans import kept_spans

MANY = 20_000
"""More than are kept."""


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Everything a hundred times faster; traces and logs are as they were after the test."""
    monkeypatch.setattr(exporter, "EVERY_MS", 20)
    monkeypatch.setattr(exporter, "SEND_WITHIN_S", 0.1)
    monkeypatch.setattr(tracing, "SHUTDOWN_S", 0.5)
    with kept_spans():
        yield
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def test_spans_arrive_under_the_name_of_their_service() -> None:
    """Also those that had not been sent when the process ended."""
    with collecting() as collector:
        end = setup_tracing(TracingSettings(endpoint=collector.url), "drain")
        with span("decide"):
            pass
        end()
        assert [(one.service, one.name) for one in collector.spans] == [("lockstep-drain", "decide")]


@pytest.mark.parametrize("away", [dead, hanging])
def test_a_collector_that_is_away_neither_delays_nor_fails_anybody_and_is_told_once(
    away: type, capsys: pytest.CaptureFixture[str]
) -> None:
    """Spans beyond what is kept are dropped, and the end of the process is not held up."""
    setup_logging(LogSettings(format="json"), "drain")
    with away() as endpoint:
        end = setup_tracing(TracingSettings(endpoint=endpoint), "drain")
        for _ in range(MANY):
            with span("decide"):
                pass
        began = monotonic()
        end()
        assert monotonic() - began < 2 * tracing.SHUTDOWN_S
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(line["event"], line["level"]) for line in lines] == [("Trace collector stopped answering", "warning")]
    assert (lines[0]["url"], lines[0]["service"]) == (endpoint, "drain")


class Fickle(SpanExporter):
    """Says what the test says."""

    def __init__(self) -> None:
        self.result = SpanExportResult.SUCCESS

    def export(self, spans: list[ReadableSpan]) -> SpanExportResult:  # type: ignore[override]
        """As told."""
        return self.result


def test_an_outage_of_the_collector_is_two_lines(capsys: pytest.CaptureFixture[str]) -> None:
    """One when it begins, one when it ends; however many batches are lost."""
    setup_logging(LogSettings(format="json"), "drain")
    inner = Fickle()
    quiet = Quiet(inner, "http://collector:4318", "drain")
    for result in (SpanExportResult.SUCCESS, *[SpanExportResult.FAILURE] * 5, *[SpanExportResult.SUCCESS] * 2):
        inner.result = result
        assert quiet.export([]) is result
    lines = [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()]
    assert lines == ["Trace collector stopped answering", "Trace collector answers again"]
