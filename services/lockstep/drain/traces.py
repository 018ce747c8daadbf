"""Which flow a decision belongs to, and where a drain that lasts for hours keeps the flow that began it."""

import msgspec

from lockstep.base import clock
from lockstep.drain.handlers import Decided
from lockstep.drain.model import Decision
from lockstep.fleet.flows import Flows, attributes_of, facts_about
from lockstep.runtime.tracing import Step

NAME = "decide"


def step(decided: Decided, flows: Flows) -> Step:
    """The span of one decision: it follows the newest fact that it was made on, and links to what else it used."""
    worker, desired = decided.worker, decided.decision.desired
    before = worker.desired
    used = (fact for fact in facts_about(worker) if fact is not before)
    origin = flows.origin(used, clock.now(), began=before.traceparent if before else "")
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
