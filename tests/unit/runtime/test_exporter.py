"""Nobody waits for whoever takes the traces."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import monotonic

import pytest
import structlog
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from lockstep.runtime import exporter, tracing
from lockstep.runtime.exporter import Quiet
from lockstep.runtime.settings import LogSettings, TracingSettings
from lockstep.runtime.telemetry import setup_logging
from lockstep.runtime.tracing import setup_tracing, span
from tests.spans import kept_spans

MANY = 20_000
"""More than are kept."""


class Collector(BaseHTTPRequestHandler):
    """Takes spans and remembers their services and names."""

    taken: list[tuple[str, str]]

    def do_POST(self) -> None:
        """A batch."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        for group in ExportTraceServiceRequest.FromString(body).resource_spans:
            service = next(a.value.string_value for a in group.resource.attributes if a.key == "service.name")
            self.taken += [(service, one.name) for scope in group.scope_spans for one in scope.spans]
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@contextmanager
def collecting() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """A collector's address, and what it has taken."""
    taken: list[tuple[str, str]] = []
    handler = type("Taking", (Collector,), {"taken": taken})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", taken
        server.shutdown()
        thread.join()


@contextmanager
def dead() -> Iterator[str]:
    """An address at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    yield f"http://127.0.0.1:{port}"


@contextmanager
def hanging() -> Iterator[str]:
    """An address that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


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
    with collecting() as (endpoint, taken):
        end = setup_tracing(TracingSettings(endpoint=endpoint), "drain")
        with span("decide"):
            pass
        end()
        assert taken == [("lockstep-drain", "decide")]


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
