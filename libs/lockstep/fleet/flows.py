"""In which trace the newest fact about each thing arose, and which of them the next step continues. Pure.

A flow goes on in its trace while each step follows the one before within `CONTINUES`. What continues it later (a job
has ended after hours) is a trace of its own with a link back.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from lockstep.contracts.facts import Fact, KubeHold, KubeNode, KubePod, SlurmNode
from lockstep.contracts.subjects import fact_subject
from lockstep.fleet.worker import Worker

CONTINUES = timedelta(seconds=30)
MAX_FLOWS = 50_000
"""Traces that are remembered; those that were told longest ago are forgotten first."""
MAX_LINKS = 16
_HOLD = "hold/"


class Flow(NamedTuple):
    """The trace in which a fact arose."""

    sequence: int
    """The fact's, in the stream."""
    subject: str
    traceparent: str
    at: datetime | None
    """When the fact was read."""


class Origin(NamedTuple):
    """What a step follows from."""

    traceparent: str = ""
    """Of its parent; empty: the step begins a trace."""
    subject: str = ""
    """The fact that woke it."""
    links: Sequence[str] = ()
    """Traceparents of other flows that have to do with it."""


class Flows:
    """The traces of the newest facts. Empty where nobody traces."""

    def __init__(self) -> None:
        self._flows: dict[str, Flow] = {}

    def note(self, fact: Fact, traceparent: str, sequence: int) -> None:
        """Takes in the trace of a fact that is the newest of its subject; empty: it arose in none."""
        if not traceparent and not self._flows:
            return
        subject = fact_subject(fact)
        self._flows.pop(subject, None)
        if traceparent:
            self._flows[subject] = Flow(sequence, subject, traceparent, fact.read_at)
            if len(self._flows) > MAX_FLOWS:
                del self._flows[next(iter(self._flows))]

    def clear(self) -> None:
        """Forgets everything."""
        self._flows.clear()

    def of(self, facts: Iterable[Fact | None]) -> list[Flow]:
        """The traces of these facts, the newest first."""
        if not self._flows:
            return []
        found = (self._flows.get(fact_subject(fact)) for fact in facts if fact is not None)
        return sorted((flow for flow in found if flow is not None), reverse=True)

    def newest(self, worker: Worker) -> str:
        """The traceparent of the newest fact about a worker, however old; empty if there is none."""
        return next((flow.traceparent for flow in self.of(facts_about(worker))), "")

    def origin(
        self, facts: Iterable[Fact | None], now: datetime, *, first: Fact | None = None, began: str = ""
    ) -> Origin:
        """What a step that rests on these facts continues.

        Args:
            facts: what it was decided on; the newest of them woke it.
            now: the time.
            first: the fact that is its cause, if that is recent, whatever else is newer.
            began: the traceparent of the flow that it may end after hours.
        """
        recent = [flow for flow in self.of(facts) if is_recent(flow.at, now)]
        cause = next((f for f in self.of([first]) if is_recent(f.at, now)), recent[0] if recent else None)
        links = others(
            cause.traceparent if cause else "", [*([began] if began else []), *(f.traceparent for f in recent)]
        )
        return Origin(cause.traceparent, cause.subject, links) if cause else Origin(links=links)


def is_recent(at: datetime | None, now: datetime) -> bool:
    """Whether what follows a step of that time belongs to the same trace."""
    return at is not None and now - at <= CONTINUES


def others(parent: str, traceparents: Iterable[str]) -> list[str]:
    """One traceparent of each other trace, at most `MAX_LINKS`."""
    found: dict[str, str] = {}
    for traceparent in traceparents:
        found.setdefault(trace_id_of(traceparent), traceparent)
    found.pop(trace_id_of(parent), None)
    found.pop("", None)
    return list(found.values())[:MAX_LINKS]


def trace_id_of(traceparent: str) -> str:
    """The trace's number; empty for what is no traceparent."""
    parts = traceparent.split("-")
    return parts[1] if len(parts) == 4 else ""


def facts_about(worker: Worker) -> Iterator[Fact]:
    """All facts that a decision about a worker rests on, also the Holds that it was kept out by and that are gone."""
    yield from filter(None, (worker.slurm, worker.pod, worker.node, worker.desired, worker.wrote))
    yield from worker.other_pods
    yield from worker.holds
    yield from worker.reservations
    for view in worker.desired.holds if worker.desired else []:
        namespace, _, name = view.id.removeprefix(_HOLD).partition("/")
        if view.id.startswith(_HOLD):
            yield KubeHold(cluster=worker.cluster, namespace=namespace, name=name)


def attributes_of(what: Fact | Worker) -> dict[str, str]:
    """Whom a span is about, in the words of OpenTelemetry's conventions and, where they have none, in ours."""
    match what:
        case Worker(cluster=cluster, name=name, pod=pod):
            shown = {"lockstep.cluster": cluster, "lockstep.worker": name, "k8s.node.name": what.node_name}
            return shown | (_pod(pod) if pod else {})
        case KubePod(cluster=cluster, worker=name, node=node):
            return {"lockstep.cluster": cluster, "lockstep.worker": name, "k8s.node.name": node, **_pod(what)}
        case SlurmNode(cluster=cluster, name=name):
            return {"lockstep.cluster": cluster, "lockstep.worker": name}
        case KubeNode(name=name):
            return {"k8s.node.name": name}
        case KubeHold(cluster=cluster, namespace=namespace, name=name):
            return {"lockstep.cluster": cluster, "lockstep.hold": name, "k8s.namespace.name": namespace}
        case _:
            return {}


def _pod(pod: KubePod) -> dict[str, str]:
    return {"k8s.namespace.name": pod.namespace, "k8s.pod.name": pod.name, "k8s.pod.uid": pod.uid}
