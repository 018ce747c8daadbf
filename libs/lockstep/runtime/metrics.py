"""All metrics, and what /metrics says of each. Labels are bounded: services, kinds, clusters; never workers or users.

(But for the owners of holds, of which the most frequent are named; see `gauges`.) `docs/metrics.md` is made from here.
"""

from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics

from lockstep.contracts.events import EVENT_TYPES, Event, RequestAccepted, RequestRefused
from lockstep.contracts.requests import REQUEST_TYPES
from lockstep.contracts.subjects import tag_of

disable_created_metrics()  # type: ignore[no-untyped-call]  # they double what is stored, and nobody asks for them

REGISTRY = CollectorRegistry()
ProcessCollector(namespace="lockstep", registry=REGISTRY)

_FAST = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_COARSE = (0.005, 0.025, 0.1, 0.5, 2.5, 10, 30)
_PROPAGATOR = TraceContextTextMapPropagator()

# How a service works

HANDLED = Counter(
    "lockstep_handled",
    "Looks at a worker or a Kubernetes node, by what came of them: ok, or retry",
    ["service", "verdict"],
    registry=REGISTRY,
)
LEG = Histogram(
    "lockstep_leg_seconds",
    "Seconds that one leg of a flow took: read-to-fact, fact-to-decision, decision-to-write, write-to-answer,"
    " write-to-seen; exemplars carry the trace_id",
    ["leg"],
    buckets=_FAST,
    registry=REGISTRY,
)
QUEUE_DEPTH = Gauge(
    "lockstep_queue_depth", "Workers and Kubernetes nodes that wait to be looked at", ["service"], registry=REGISTRY
)
LEADING = Gauge(
    "lockstep_leading", "1 while this process may act as that service, else 0", ["service"], registry=REGISTRY
)
RESTARTS = Counter(
    "lockstep_restarts",
    "Times that a service of this process failed and was started anew",
    ["service"],
    registry=REGISTRY,
)
EVENTS = Counter(
    "lockstep_events", "Events published, by type; the stream has acknowledged them", ["type"], registry=REGISTRY
)
REQUESTS = Counter(
    "lockstep_requests",
    "Requests of others that were answered, by verb (other: one that this version does not know) and answer: accepted,"
    " refused",
    ["verb", "answer"],
    registry=REGISTRY,
)
WRITES = Counter(
    "lockstep_writes",
    "Writes of the reconciler to Slurm and Kubernetes, by kind and answer: ok, conflict (it is decided anew), busy,"
    " refused, unanswered (it may have been done)",
    ["write", "answer"],
    registry=REGISTRY,
)

# The sources

SOURCE_AGE = Gauge(
    "lockstep_source_age_seconds",
    "Seconds since the source was last complete, as this process knows; slurm.job is read only while a node drains",
    ["source", "of"],
    registry=REGISTRY,
)
SOURCE_UP = Gauge(
    "lockstep_source_up", "1 while the source can be read, 0 while it is told lost", ["source", "of"], registry=REGISTRY
)
POLL = Histogram(
    "lockstep_poll_seconds",
    "Seconds spent waiting for Slurm in one reading; the rate of the sum is the share of time",
    ["cluster"],
    buckets=_COARSE,
    registry=REGISTRY,
)
POLL_INTERVAL = Gauge(
    "lockstep_poll_interval_seconds",
    "Seconds from one reading of Slurm to the next, as now chosen",
    ["cluster"],
    registry=REGISTRY,
)
CALLS = Histogram(
    "lockstep_slurm_call_seconds",
    "Seconds of requests to slurmrestd, by route and by whether an answer came",
    ["cluster", "method", "route", "answered"],
    buckets=_COARSE,
    registry=REGISTRY,
)

KUBE_REQUESTS = Counter(
    "lockstep_kube_requests",
    "Requests to the API server, by route without names and by HTTP status; none: no answer",
    ["method", "route", "code"],
    registry=REGISTRY,
)
KUBE_CALLS = Histogram(
    "lockstep_kube_call_seconds",
    "Seconds from a request to the API server to the head of its answer",
    ["method"],
    buckets=_COARSE,
    registry=REGISTRY,
)

# NATS

NATS_UP = Gauge("lockstep_nats_up", "1 while connected to NATS, else 0", registry=REGISTRY)
NATS_STUCK = Gauge(
    "lockstep_nats_stuck_seconds",
    "Seconds for which NATS has answered and stored nothing that this process published; 0: it stores",
    registry=REGISTRY,
)
LAG = Gauge(
    "lockstep_consumer_lag_messages",
    "Messages that the stream had at its last check (every 2 s) and this process has not taken in yet",
    ["service", "stream"],
    registry=REGISTRY,
)
STREAM_BYTES = Gauge("lockstep_stream_bytes", "Bytes that the stream takes", ["stream"], registry=REGISTRY)
STREAM_LIMIT = Gauge(
    "lockstep_stream_limit_bytes",
    "Bytes that the stream may take before it drops its oldest messages",
    ["stream"],
    registry=REGISTRY,
)
STREAM_USED = Gauge(
    "lockstep_stream_used_ratio", "Share of its limit that the stream takes, 0 to 1", ["stream"], registry=REGISTRY
)
STREAM_MESSAGES = Gauge("lockstep_stream_messages", "Messages in the stream", ["stream"], registry=REGISTRY)
STREAM_LAST = Gauge(
    "lockstep_stream_last_sequence",
    "Number of the newest message that the stream ever took",
    ["stream"],
    registry=REGISTRY,
)

# The fleet: told only by the process that acts as the drain service, so that a sum over all processes counts once

WORKERS = Gauge(
    "lockstep_workers", "Workers by phase in Slurm; each is in one", ["cluster", "phase"], registry=REGISTRY
)
HOLDS = Gauge(
    "lockstep_holds",
    "Standing holds, one for each worker that they keep out; the rarer owners are one: other",
    ["cluster", "class", "owner"],
    registry=REGISTRY,
)
DRAINS = Gauge(
    "lockstep_drains",
    "Held workers by progress: waiting (Slurm does not show DRAIN yet), draining, overdue, drained",
    ["cluster", "progress"],
    registry=REGISTRY,
)
PODS = Gauge(
    "lockstep_pods",
    "Live worker pods by protection from eviction: protected, open (may be evicted), missing (should be protected)",
    ["cluster", "protection"],
    registry=REGISTRY,
)

# What is posted to HTTP endpoints

FORWARDED = Counter(
    "lockstep_forwarded",
    "Events for an endpoint of `forward` by outcome: posted, failed (a try; it is tried again), dead (a dead letter),"
    " missed (the stream dropped them before)",
    ["endpoint", "outcome"],
    registry=REGISTRY,
)
FORWARD_AGE = Gauge(
    "lockstep_forward_age_seconds",
    "Seconds since the oldest event that an endpoint has not taken was read",
    ["endpoint"],
    registry=REGISTRY,
)

_OTHER = "other"
_VERBS = frozenset(tag_of(kind).rpartition(".")[0] for kind in REQUEST_TYPES)

for _kind in EVENT_TYPES:
    EVENTS.labels(tag_of(_kind))
for _verb in [*_VERBS, _OTHER]:
    REQUESTS.labels(_verb, "accepted")
    REQUESTS.labels(_verb, "refused")


def count_event(event: Event) -> None:
    """Counts an event that the stream has acknowledged, and the request that it answers."""
    EVENTS.labels(tag_of(type(event))).inc()
    if isinstance(event, RequestAccepted | RequestRefused):
        verb = event.verb if event.verb in _VERBS else _OTHER
        REQUESTS.labels(verb, "accepted" if isinstance(event, RequestAccepted) else "refused").inc()


def observe_leg(leg: str, seconds: float, *, traceparent: str = "") -> None:
    """One leg took so long. Its exemplar is the trace of `traceparent`, or else the current one, if it is sampled."""
    context = _PROPAGATOR.extract({"traceparent": traceparent}) if traceparent else None
    span = trace.get_current_span(context).get_span_context()
    exemplar = {"trace_id": trace.format_trace_id(span.trace_id)} if span.trace_flags.sampled else None
    LEG.labels(leg).observe(max(seconds, 0.0), exemplar)
