"""Traces for tests: switched on for one test, and kept in memory."""

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from lockstep.runtime import tracing
from lockstep.runtime.settings import TracingSettings
from lockstep.runtime.tracing import setup_tracing


class Spans:
    """What has ended, by name."""

    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self._exporter = exporter

    @property
    def all(self) -> list[ReadableSpan]:
        """In the order in which they ended."""
        return list(self._exporter.get_finished_spans())

    def __getitem__(self, name: str) -> ReadableSpan:
        """The last of that name."""
        return {span.name: span for span in self.all}[name]

    def named(self, name: str) -> list[ReadableSpan]:
        """All of that name."""
        return [span for span in self.all if span.name == name]


@contextmanager
def kept_spans(service: str = "drain", *, sample: float = 1.0) -> Iterator[Spans]:
    """Traces are made inside the context."""
    before = tracing._TRACING.get(), tracing._TRACER.get()
    exporter = InMemorySpanExporter()
    setup_tracing(TracingSettings(sample=sample), service, processor=SimpleSpanProcessor(exporter))
    try:
        yield Spans(exporter)
    finally:
        tracing._TRACING.set(before[0])
        tracing._TRACER.set(before[1])


def parent_of(span: ReadableSpan) -> int:
    """The number of its parent."""
    assert span.parent is not None
    return span.parent.span_id


def is_child(span: ReadableSpan, of: ReadableSpan) -> bool:
    """Whether one continues the other, in the same trace."""
    return span.context.trace_id == of.context.trace_id and parent_of(span) == of.context.span_id


def header_of(span: ReadableSpan) -> str:
    """The traceparent that names it."""
    return f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-01"


def links_of(span: ReadableSpan) -> list[int]:
    """The numbers of the spans that it links to."""
    return [link.context.span_id for link in span.links]
