"""What /metrics shows. Labels are bounded: services, kinds, clusters; never workers."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

REGISTRY = CollectorRegistry()

_FAST = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)

HANDLED = Counter(
    "lockstep_handled",
    "Jobs handled, by what came of them: ok, retry, rejected",
    ["service", "verdict"],
    registry=REGISTRY,
)
LEG = Histogram(
    "lockstep_leg_seconds",
    "Time of one leg of a flow: read-to-fact, fact-to-decision, decision-to-write, write-to-answer, write-to-seen",
    ["leg"],
    buckets=_FAST,
    registry=REGISTRY,
)
SOURCE_AGE = Gauge(
    "lockstep_source_age_seconds", "Since the source was last complete", ["source", "of"], registry=REGISTRY
)
QUEUE_DEPTH = Gauge("lockstep_queue_depth", "Workers that wait to be looked at", ["service"], registry=REGISTRY)
LEADING = Gauge("lockstep_leading", "1 while this process may act as that service", ["service"], registry=REGISTRY)
RESTARTS = Counter(
    "lockstep_restarts", "A service of this process failed and was started anew", ["service"], registry=REGISTRY
)
CALLS = Histogram(
    "lockstep_slurm_call_seconds",
    "Requests to slurmrestd",
    ["cluster", "method", "route", "answered"],
    buckets=_FAST,
    registry=REGISTRY,
)
NATS_UP = Gauge("lockstep_nats_up", "1 while connected to NATS", registry=REGISTRY)
