"""Because of which event each thing came about that the drain service tells. Pure."""

import msgspec

from lockstep.contracts.events import (
    DrainEvent,
    Event,
    ForeignDrainRespected,
    HoldPlaced,
    HoldReleased,
)
from lockstep.contracts.facts import SITE, Desired, HoldView, KubeHold, KubeNode, KubePod, SlurmNode
from lockstep.drain.model import Decision
from lockstep.fleet.facts import CauseOf, FactKey
from lockstep.fleet.worker import Worker


def source_of(hold: HoldView, worker: Worker) -> FactKey | None:
    """What a hold is read from: its id says where it lives. None for a reservation, which begins and ends by time."""
    where, _, rest = hold.id.partition("/")
    match where:
        case "hold":
            return KubeHold, worker.cluster, rest
        case "pod" | "pod-cordon":
            return KubePod, worker.cluster, rest
        case "slurm":
            return SlurmNode, worker.cluster, worker.name
        case "reservation":
            return None
        case _:
            return KubeNode, SITE, rest.partition("/")[0]


def explained(decision: Decision, worker: Worker, cause_of: CauseOf) -> Decision:
    """The decision, each of its events with its cause.

    A hold came and went because of what it is read from; an expired one because of nothing but time, and why a Hold
    resource was deleted nobody says. A drain went on because of what Slurm showed; where that is not known, because of
    what was decided before.
    """
    events = [_explained(event, worker, cause_of) for event in decision.events]
    return msgspec.structs.replace(decision, events=events)


def _explained(event: Event, worker: Worker, cause_of: CauseOf) -> Event:
    if event.cause_id:
        return event
    cause = ""
    match event:
        case HoldPlaced() | HoldReleased() | ForeignDrainRespected():
            source = source_of(event.hold, worker)
            is_told = source is not None and not (isinstance(event, HoldReleased) and source[0] is KubeHold)
            cause = cause_of(source) if is_told else ""
        case DrainEvent():
            slurm = cause_of((SlurmNode, worker.cluster, worker.name))
            cause = slurm or cause_of((Desired, worker.cluster, worker.name))
    return msgspec.structs.replace(event, cause_id=cause) if cause else event
