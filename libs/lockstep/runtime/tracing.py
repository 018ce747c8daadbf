"""Traces: one flow through all services is one trace. Where none are sent, nothing of this makes a span.

Each service has a provider of its own, so that a process with several of them shows each by its name; all share one
exporter, which never waits for anybody and is never waited for.
"""

import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from importlib.metadata import version
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from opentelemetry import trace
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import INVALID_SPAN, Link, Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from lockstep.base.calls import Call, Request, untold
from lockstep.base.text import one_line
from lockstep.runtime.exporter import exporting
from lockstep.runtime.settings import TracingSettings

K = TypeVar("K")

MAX_VALUE = 500
SHUTDOWN_S = 3.0
"""So long what is left is sent at the end of the process."""

_PROPAGATOR = TraceContextTextMapPropagator()
_SAMPLED = TraceFlags.SAMPLED
_UNSENT: AbstractContextManager[str] = nullcontext("")
_NO_SPAN: AbstractContextManager[Span] = nullcontext(INVALID_SPAN)
_NO_STEPS: AbstractContextManager[Mapping[Any, str]] = nullcontext({})


class Step(NamedTuple):
    """What a service does at one thing, as a span shows it."""

    name: str
    parent: str = ""
    """The traceparent that came with what is handled; without one, the current span is the parent, if any."""
    links: Sequence[str] = ()
    """Traceparents of other flows that have to do with it."""
    attributes: Mapping[str, Any] = {}
    subject: str = ""
    """The message that woke it: its span is a consumer's."""


class _Tracing:
    """The providers of one process."""

    def __init__(self, settings: TracingSettings, processor: SpanProcessor) -> None:
        self._sampler = ParentBased(TraceIdRatioBased(settings.sample))
        self._processor = processor
        self._tracers: dict[str, Tracer] = {}

    def tracer(self, service: str) -> Tracer:
        if service not in self._tracers:
            about = {
                SERVICE_NAME: f"lockstep-{service}",
                SERVICE_VERSION: version("slurm-lockstep"),
                SERVICE_INSTANCE_ID: f"{socket.gethostname()}-{os.getpid()}",
            }
            resource = Resource.create(about)
            provider = TracerProvider(sampler=self._sampler, resource=resource, shutdown_on_exit=False)
            provider.add_span_processor(self._processor)
            self._tracers[service] = provider.get_tracer("lockstep", version("slurm-lockstep"))
        return self._tracers[service]


_TRACING: ContextVar[_Tracing | None] = ContextVar("_TRACING", default=None)
_TRACER: ContextVar[Tracer | None] = ContextVar("_TRACER", default=None)


def setup_tracing(
    settings: TracingSettings, service: str, *, processor: SpanProcessor | None = None
) -> Callable[[], None]:
    """Sends spans to the endpoint, if there is one. Returns what sends the rest and ends it, within `SHUTDOWN_S`.

    Holds for the current context and for the tasks that are started from it.
    """
    if processor is None:
        if not settings.endpoint:
            return lambda: None
        processor = exporting(settings.endpoint, service)
    _TRACING.set(_Tracing(settings, processor))
    trace_as(service)

    def shutdown() -> None:
        ending = threading.Thread(target=processor.shutdown, daemon=True)
        ending.start()
        ending.join(SHUTDOWN_S)

    return shutdown


def trace_as(service: str) -> None:
    """The current task, and those that it starts, belong to this service."""
    if (tracing := _TRACING.get()) is not None:
        _TRACER.set(tracing.tracer(service))


def is_traced() -> bool:
    """Whether spans are made at all."""
    return _TRACER.get() is not None


def span(
    name: str, *, parent: str = "", links: Sequence[str] = (), attributes: Mapping[str, Any] | None = None
) -> AbstractContextManager[Span]:
    """A span in which the block runs, and which is the current one there; an error marks it and goes on."""
    return step(lambda: Step(name, parent, links, attributes or {}))


def step(what: Callable[[], Step]) -> AbstractContextManager[Span]:
    """As `span`; a step that a message woke is its consumer. `what` is called only where spans are made."""
    tracer = _TRACER.get()
    return _NO_SPAN if tracer is None else _current(tracer, what())


def steps(each: Callable[[], Mapping[K, Step]]) -> AbstractContextManager[Mapping[K, str]]:
    """A span for each, none of them the current one, all as long as the block; gives their traceparents.

    `each` is called only where spans are made; so empty means nothing else than that there are none.
    """
    tracer = _TRACER.get()
    return _NO_STEPS if tracer is None else _side_by_side(tracer, each())


def sending(subject: str, parent: str) -> AbstractContextManager[str]:
    """The sending of one message within the trace of `parent`, or else of the current span; gives its traceparent.

    What belongs to no trace (a heartbeat) begins none.
    """
    tracer = _TRACER.get()
    if tracer is None or not (parent or trace.get_current_span().get_span_context().is_valid):
        return _UNSENT
    return _sending(tracer, subject, parent)


def calling(request: Request) -> AbstractContextManager[Call]:
    """A request that is part of a trace: its span, and the header that lets the server continue it.

    What belongs to no trace (a poll, a lease) begins none.
    """
    tracer = _TRACER.get()
    if tracer is None or not trace.get_current_span().get_span_context().is_valid:
        return untold(request)
    return _calling(tracer, request)


def current_traceparent() -> str:
    """The W3C traceparent of the current span, to be sent along; empty outside of any."""
    return _traceparent_of(trace.get_current_span())


def link(traceparent: str) -> None:
    """Links the current span to what another one does for it."""
    context = _context_of(traceparent) if traceparent else None
    if context is not None:
        trace.get_current_span().add_link(context)


@contextmanager
def _current(tracer: Tracer, what: Step) -> Iterator[Span]:
    with _begun(tracer, what) as begun, trace.use_span(begun, record_exception=False, set_status_on_exception=False):
        yield begun


@contextmanager
def _side_by_side(tracer: Tracer, each: Mapping[K, Step]) -> Iterator[Mapping[K, str]]:
    with ExitStack() as stack:
        yield {key: _traceparent_of(stack.enter_context(_begun(tracer, what))) for key, what in each.items()}


@contextmanager
def _sending(tracer: Tracer, subject: str, parent: str) -> Iterator[str]:
    kind = _kind_of(subject)
    attributes = {**_messaging(subject), "messaging.operation.name": "publish", "messaging.operation.type": "send"}
    what = Step(f"publish {kind}", parent, (), attributes)
    with _begun(tracer, what, SpanKind.PRODUCER) as begun:
        yield _traceparent_of(begun)


@contextmanager
def _calling(tracer: Tracer, request: Request) -> Iterator[Call]:
    server = urlsplit(request.url)
    attributes = {
        "http.request.method": request.method,
        "server.address": server.hostname or request.url,
        **({"server.port": server.port} if server.port else {}),
        "url.path": request.path,
        "url.template": request.route,
    }
    what = Step(f"{request.method} {request.route}", "", (), attributes)
    with _begun(tracer, what, SpanKind.CLIENT) as begun:
        yield _Traced(begun)


class _Traced:
    """A request with a span."""

    def __init__(self, begun: Span) -> None:
        self._span = begun
        self.headers: Mapping[str, str] = {"traceparent": _traceparent_of(begun)}

    def answered(self, status: int) -> None:
        self._span.set_attribute("http.response.status_code", status)
        if status >= 400:
            self._span.set_attribute("error.type", str(status))
            self._span.set_status(Status(StatusCode.ERROR))


@contextmanager
def _begun(tracer: Tracer, what: Step, kind: SpanKind = SpanKind.INTERNAL) -> Iterator[Span]:
    """A span that lasts as long as the block. Its texts are bounded, for they come from outside."""
    attributes = dict(what.attributes)
    if what.subject:
        kind = SpanKind.CONSUMER
        attributes |= _messaging(what.subject)
        attributes |= {"messaging.operation.name": "process", "messaging.operation.type": "process"}
    begun = tracer.start_span(
        what.name,
        context=_PROPAGATOR.extract({"traceparent": what.parent}) if what.parent else None,
        kind=kind,
        links=[Link(at) for at in map(_context_of, what.links) if at is not None],
        attributes={k: one_line(v, limit=MAX_VALUE) if isinstance(v, str) else v for k, v in attributes.items() if v},
    )
    try:
        yield begun
    except Exception as error:
        begun.set_attribute("error.type", type(error).__name__)
        begun.set_status(Status(StatusCode.ERROR, one_line(str(error), limit=200)))
        raise
    finally:
        begun.end()


def _messaging(subject: str) -> dict[str, str]:
    """The attributes of a message on NATS; the last two tokens of a subject name whom it is about."""
    return {
        "messaging.system": "nats",
        "messaging.destination.name": subject,
        "messaging.destination.template": f"{subject.rsplit('.', 2)[0]}.{{scope}}.{{identity}}",
    }


def _kind_of(subject: str) -> str:
    return ".".join(subject.split(".")[2:-2])


def _traceparent_of(begun: Span) -> str:
    """With the sampling flag alone: Go servers refuse newer flags (OpenTelemetry 1.41, seen)."""
    at = begun.get_span_context()
    return f"00-{at.trace_id:032x}-{at.span_id:016x}-{at.trace_flags & _SAMPLED:02x}" if at.is_valid else ""


def _context_of(traceparent: str) -> SpanContext | None:
    context = trace.get_current_span(_PROPAGATOR.extract({"traceparent": traceparent})).get_span_context()
    return context if context.is_valid else None
