"""Logs, set up in one place: one line per event, to standard error; each names the trace that it is part of."""

import logging
import re
import sys
from collections.abc import MutableMapping
from typing import Any

import msgspec
import structlog
from opentelemetry import trace

from lockstep.base.clock import monotonic
from lockstep.base.text import one_line
from lockstep.runtime.settings import LogSettings, Settings

KEYS = frozenset(
    {
        "actions", "after_s", "attempt", "because", "cause_id", "cluster", "code", "count", "depth", "epoch", "error",
        "event", "event_id", "field", "happened", "hold", "job", "kind", "level", "name", "namespace", "node", "of",
        "parser", "path", "pid", "pod", "reason", "request", "restarts", "service", "source", "stream", "subject",
        "task", "timestamp", "took_ms", "trace_id", "type", "url", "user", "verdict", "version", "was", "worker",
        "workers", "write",
    }
)  # fmt: skip
"""The keys of log lines. A test rejects others, so that one thing has one name everywhere."""

MAX_VALUE = 500
TRACE_ID = "{trace_id}"
_TRACEPARENT = re.compile(r"00-(?P<trace_id>[0-9a-f]{32})-[0-9a-f]{16}-(?P<flags>[0-9a-f]{2})")

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
    if context.trace_flags.sampled:
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


def traced_as(traceparent: str) -> dict[str, str]:
    """The field that leads from a line, logged outside of its span, to the trace; nothing where none was kept."""
    trace_id = _kept(traceparent)
    return {"trace_id": trace_id} if trace_id else {}


def trace_link(settings: Settings, traceparent: str) -> str:
    """Where people see this trace, by the setting `tracing.ui`; empty where none is set or the trace was not kept."""
    trace_id = _kept(traceparent)
    return settings.tracing.ui.replace(TRACE_ID, trace_id) if trace_id else ""


def _kept(traceparent: str) -> str:
    """The trace's number; empty for one that was not sampled, and for what is no traceparent."""
    found = _TRACEPARENT.fullmatch(traceparent)
    return found["trace_id"] if found and int(found["flags"], 16) & trace.TraceFlags.SAMPLED else ""
