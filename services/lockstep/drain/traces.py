"""Which flow a decision belongs to, and where a drain that lasts for hours keeps the flow that began it."""

import msgspec

from lockstep.base import clock
from lockstep.drain.handlers import Decided
from lockstep.drain.model import Decision
from lockstep.fleet.flows import Flows, attributes_of, facts_about
from lockstep.runtime.tracing import Step

NAME = "decide"


def step(decided: Decided, flows: Flows) -> Step:
    """The span of one decision, which links to what else it was made on.

    Which holds stand follows the newest fact. How far a drain is follows Slurm: what Kubernetes shows then is our own
    word, which may be told late and as a part of the flow before.
    """
    worker, desired = decided.worker, decided.decision.desired
    before = worker.desired
    used = (fact for fact in facts_about(worker) if fact is not before)
    first = worker.slurm if before and before.holds == desired.holds else None
    origin = flows.origin(used, clock.now(), first=first, began=before.traceparent if before else "")
    attributes = {
        **attributes_of(worker),
        "lockstep.progress": desired.progress,
        "lockstep.words": desired.words,
        "lockstep.why_not": desired.why_not,
        "lockstep.holds": [hold.id for hold in desired.holds],
    }
    return Step(NAME, origin.traceparent, origin.links, attributes, origin.subject)


def begun_in(decision: Decision, traceparent: str) -> Decision:
    """The decision with the trace in which the drain began, if it begins now."""
    desired = decision.desired
    if not traceparent or desired.traceparent or not desired.holds:
        return decision
    return msgspec.structs.replace(decision, desired=msgspec.structs.replace(desired, traceparent=traceparent))
