"""A collector of traces on a port of its own: takes OTLP over HTTP, and gives the spans as data."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Span(NamedTuple):
    """A span as it was sent. Times are nanoseconds."""

    trace: str
    id: str
    parent: str
    """Empty: it began the trace."""
    links: list[str]
    """The traces that it links to."""
    service: str
    name: str
    start: int
    attributes: dict[str, Any]


class Collector(NamedTuple):
    """Where it is, and what it was given so far."""

    url: str
    spans: list[Span]

    def trace(self, trace_id: str) -> list[Span]:
        """The spans of one trace, the earliest first."""
        return sorted((span for span in self.spans if span.trace == trace_id), key=lambda span: span.start)


class _Taking(BaseHTTPRequestHandler):
    spans: ClassVar[list[Span]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        for group in ExportTraceServiceRequest.FromString(body).resource_spans:
            service = _attributes(group.resource.attributes)["service.name"]
            self.spans += [_span(each, service) for scope in group.scope_spans for each in scope.spans]
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Says nothing."""


def _span(span: Any, service: str) -> Span:
    return Span(
        trace=span.trace_id.hex(),
        id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        links=[link.trace_id.hex() for link in span.links],
        service=service,
        name=span.name,
        start=span.start_time_unix_nano,
        attributes=_attributes(span.attributes),
    )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return [_value(each) for each in value.array_value.values] if kind == "array_value" else getattr(value, kind)


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector that takes everything inside the context."""
    spans: list[Span] = []
    handler = type("Taking", (_Taking,), {"spans": spans})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield Collector(f"http://127.0.0.1:{server.server_port}", spans)
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
