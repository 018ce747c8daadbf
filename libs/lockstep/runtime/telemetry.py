"""Logs, traces and metrics, all set up in one place; everything goes to standard error, OTLP and /metrics."""

import logging
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import structlog
from opentelemetry import trace
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import Link, Span, SpanContext, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from lockstep.base.clock import monotonic
from lockstep.base.text import one_line
from lockstep.runtime.settings import LogSettings, TracingSettings

KEYS = frozenset(
    {
        "actions", "after_s", "attempt", "because", "cause_id", "cluster", "code", "count", "depth", "epoch",
        "error", "event", "event_id", "field", "hold", "job", "kind", "level", "name", "namespace", "node", "of",
        "parser", "path", "pid", "pod", "reason", "restarts", "service", "source", "stream", "subject", "task",
        "timestamp", "took_ms", "trace_id", "type", "url", "verdict", "version", "was", "worker", "workers", "write",
        "happened",
    }
)  # fmt: skip
"""The keys of log lines. A test rejects others, so that one thing has one name everywhere."""

MAX_VALUE = 500
_TRACER = "lockstep"
_PROPAGATOR = TraceContextTextMapPropagator()

Fields = MutableMapping[str, Any]


def setup_logging(settings: LogSettings, service: str) -> None:
    """Sends one line per event to standard error: for people on a terminal, else JSON."""
    human = settings.format == "human" or (settings.format == "auto" and sys.stderr.isatty())
    level = getattr(logging, settings.level.upper())
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _add_trace,
            structlog.processors.format_exc_info,
            _bounded,
            structlog.dev.ConsoleRenderer() if human else structlog.processors.JSONRenderer(serializer=_json),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(service=service)
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(name)s: %(message)s")


def _json(fields: Any, **_: Any) -> str:
    return msgspec.json.encode(fields, enc_hook=str).decode()


def _bounded(_logger: Any, _method: str, fields: Fields) -> Fields:
    """Values come from outside: they are cut, and stay on their line. A traceback of ours keeps its lines."""
    for key, value in fields.items():
        if isinstance(value, str) and key != "exception":
            fields[key] = one_line(value, limit=MAX_VALUE)
    return fields


def _add_trace(_logger: Any, _method: str, fields: Fields) -> Fields:
    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        fields["trace_id"] = trace.format_trace_id(context.trace_id)
    return fields


class Outage:
    """Says once that something stopped answering, and once that it answers again."""

    def __init__(self, log: Any, what: str, *, failing_for_s: float | None = None, **fields: str) -> None:
        """`what` begins the two lines, such as "Slurm". With `failing_for_s` the first of them was said before."""
        self._log = log
        self._what = what
        self._fields = fields
        self._since = None if failing_for_s is None else monotonic() - failing_for_s

    @property
    def failing(self) -> bool:
        """Whether the last that was said is that it stopped."""
        return self._since is not None

    def down(self, error: object) -> None:
        """It does not answer. Said the first time only."""
        if self._since is None:
            self._since = monotonic()
            self._log.warning(f"{self._what} stopped answering", error=str(error), **self._fields)

    def up(self) -> float:
        """It answers. Said after an outage only. Returns the seconds that the outage took, or 0."""
        if self._since is None:
            return 0.0
        lasted = monotonic() - self._since
        self._since = None
        self._log.info(f"{self._what} answers again", after_s=round(lasted, 1), **self._fields)
        return lasted


def setup_tracing(
    settings: TracingSettings, service: str, *, processor: SpanProcessor | None = None
) -> Callable[[], None]:
    """Sends spans to the endpoint, if there is one. Returns what flushes and ends it; that blocks for seconds."""
    if not settings.endpoint and processor is None:
        return lambda: None
    sampler = ParentBased(TraceIdRatioBased(settings.sample))
    provider = TracerProvider(sampler=sampler, resource=Resource.create({SERVICE_NAME: f"lockstep-{service}"}))
    provider.add_span_processor(processor or BatchSpanProcessor(_exporter(settings.endpoint)))
    trace.set_tracer_provider(provider)

    def shutdown() -> None:
        provider.force_flush(5_000)
        provider.shutdown()

    return shutdown


def _exporter(endpoint: str) -> Any:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415  slow to import

    return OTLPSpanExporter(endpoint=endpoint.rstrip("/") + "/v1/traces", timeout=5)


@contextmanager
def span(
    name: str, *, parent: str = "", links: Sequence[str] = (), attributes: Mapping[str, Any] | None = None
) -> Iterator[Span]:
    """A span in which the block runs; an error marks it and goes on.

    `parent` is the traceparent that came with what is handled; without one, the current span is the parent, if any.
    `links` are traceparents of others that the decision used.
    """
    context = _PROPAGATOR.extract({"traceparent": parent}) if parent else None
    linked = [Link(at) for at in map(_context_of, links) if at is not None]
    shown = {k: one_line(v, limit=MAX_VALUE) if isinstance(v, str) else v for k, v in (attributes or {}).items()}
    tracer = trace.get_tracer(_TRACER)
    with tracer.start_as_current_span(
        name, context=context, links=linked, attributes=shown, record_exception=False, set_status_on_exception=False
    ) as current:
        try:
            yield current
        except Exception as error:
            current.set_status(Status(StatusCode.ERROR, one_line(str(error), limit=200)))
            raise


def current_traceparent() -> str:
    """The W3C traceparent of the current span, to be sent along; empty outside of any."""
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier)
    return carrier.get("traceparent", "")


def _context_of(traceparent: str) -> SpanContext | None:
    context = trace.get_current_span(_PROPAGATOR.extract({"traceparent": traceparent})).get_span_context()
    return context if context.is_valid else None
