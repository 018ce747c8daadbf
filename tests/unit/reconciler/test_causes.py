"""Because of which event a write came about."""

import pytest

from lockstep.contracts.events import (
    DrainActed,
    DrainLifted,
    DrainSet,
    Event,
    HoldReasserted,
    ProtectionOff,
    ProtectionOn,
    WriteRefused,
)
from lockstep.contracts.facts import Desired, SlurmNode, Wrote
from lockstep.fleet.facts import FactKey
from lockstep.reconciler.causes import because, explained
from lockstep.reconciler.hands import Done
from tests.builders import CLUSTER, NAME, NOW, OURS, a_desired, a_view, a_worker

WORKER = a_worker(desired=a_desired(a_view()))
WROTE = Wrote(cluster=CLUSTER, name=NAME, words=OURS)


def cause_of(*keys: FactKey) -> str:
    """What is wanted came from a step of the drain, what Slurm shows from a change there; the newest is the pod's."""
    return {Desired: "step", SlurmNode: "change"}[keys[0][0]] if len(keys) == 1 else "newest"


WHY = because(WORKER, cause_of)


@pytest.mark.parametrize(
    ("event", "cause"),
    [
        (DrainSet(id="e", at=NOW, worker=WORKER.ref, words=OURS), "step"),
        (DrainLifted(id="e", at=NOW, worker=WORKER.ref), "step"),
        (DrainActed(id="e", at=NOW, worker=WORKER.ref, act="cancel", jobs=[1]), "step"),
        (WriteRefused(id="e", at=NOW, worker=WORKER.ref, write="requeue", error="no"), "step"),
        (ProtectionOff(id="e", at=NOW, worker=WORKER.ref), "step"),
        (ProtectionOn(id="e", at=NOW, worker=WORKER.ref), "newest"),
        (HoldReasserted(id="e", at=NOW, worker=WORKER.ref, words=OURS, holds=["hold/slurm/dimm"]), "change"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Event) else "",
)
def test_a_write_names_what_asked_for_it(event: Event, cause: str) -> None:
    """The drain's last step; somebody's resume; whatever came last for a pod that is new or back."""
    (told,) = explained(Done(events=[event]), WHY).events
    assert told.cause_id == cause


def test_what_was_written_names_the_event_that_tells_of_it() -> None:
    """What a reading then shows came about because of that."""
    event = DrainSet(id="set-1", at=NOW, worker=WORKER.ref, words=OURS)
    done = explained(Done(wrote=WROTE, events=[event]), WHY)
    assert done.wrote is not None
    assert done.wrote.cause == "set-1"


def test_a_write_that_was_not_needed_hands_on_what_asked_for_it() -> None:
    """The node was so already, and no event tells of it."""
    done = explained(Done(wrote=WROTE), WHY)
    assert done.wrote is not None
    assert done.wrote.cause == "step"
