"""Because of which event a write came about. Pure."""

import msgspec

from lockstep.contracts.events import DrainLifted, DrainSet, Event, HoldReasserted, ProtectionOn
from lockstep.contracts.facts import Desired, SlurmNode
from lockstep.fleet.facts import CauseOf, FactKey, key_of
from lockstep.fleet.worker import Worker
from lockstep.reconciler.hands import Done


class Because(msgspec.Struct, frozen=True, kw_only=True):
    """Why something is written on a worker now, by what it is."""

    wanted: str
    """The last step of the drain or hold that asks for it."""
    shown: str
    """What Slurm shows: somebody's resume is why a hold is asserted again."""
    appeared: str
    """The newest of all that is known: a pod is protected when it registers, and when a hold has ended."""


def because(worker: Worker, cause_of: CauseOf) -> Because:
    """Why this worker is written on, as far as it is known before the write."""
    desired: FactKey = (Desired, worker.cluster, worker.name)
    slurm: FactKey = (SlurmNode, worker.cluster, worker.name)
    pods = [key_of(worker.pod)] if worker.pod else []
    return Because(wanted=cause_of(desired), shown=cause_of(slurm), appeared=cause_of(desired, slurm, *pods))


def explained(done: Done, why: Because) -> Done:
    """The same with causes: each event has its own, and what was written has the event that tells of it."""
    events = [msgspec.structs.replace(event, cause_id=_cause(event, why)) for event in done.events]
    wrote = done.wrote
    if wrote is not None:
        told = next((event.id for event in events if isinstance(event, DrainSet | DrainLifted)), why.wanted)
        wrote = msgspec.structs.replace(wrote, cause=told)
    return msgspec.structs.replace(done, events=events, wrote=wrote)


def _cause(event: Event, why: Because) -> str:
    match event:
        case HoldReasserted():
            return why.shown or why.wanted
        case ProtectionOn():
            return why.appeared
        case _:
            return why.wanted
