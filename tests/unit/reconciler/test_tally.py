"""What came of each write is counted, and how long Slurm's took until they showed."""

from datetime import timedelta
from typing import Any, get_args

import pytest

from lockstep.base import clock
from lockstep.base.errors import Retry
from lockstep.contracts.hold import DrainPolicy
from lockstep.kube import errors as kube
from lockstep.reconciler.hands import Done
from lockstep.reconciler.model import DrainNode, EndJob, NodeAction, Protect, WorkerAction
from lockstep.reconciler.tally import ANSWERS, counted, seen
from lockstep.runtime.metrics import LEG, WRITES
from lockstep.slurm import errors as slurm
from tests.builders import OURS, a_slurm_node, a_table, wrote_drain, wrote_undrain

PROTECT = Protect(namespace="slurm", pod="gpu-7", uid="pod-1", because="it is busy")
DRAIN = DrainNode(words=OURS, because="a hold")
END = EndJob(job_id=7, act=DrainPolicy.REQUEUE, because="the drain's policy")


def count(write: str, answer: str) -> float:
    """How often that came of it so far."""
    return float(WRITES.labels(write, answer)._value.get())


def observed(leg: str) -> float:
    """How many times the leg was taken so far."""
    samples = [s for family in LEG.collect() for s in family.samples if s.name.endswith("_count")]
    return sum(s.value for s in samples if s.labels["leg"] == leg)


async def result(of: Done | Exception | None) -> Any:
    """A write that ends so."""
    if isinstance(of, Exception):
        raise of
    return of


@pytest.mark.parametrize(
    ("action", "write", "of", "answer"),
    [
        (PROTECT, "protect", Done(), "ok"),
        (PROTECT, "protect", kube.Conflict("another version"), "conflict"),
        (PROTECT, "protect", kube.NotFound("no pod"), "conflict"),
        (PROTECT, "protect", Retry("the pod is another one by now"), "conflict"),
        (PROTECT, "protect", kube.Denied("403"), "refused"),
        (PROTECT, "protect", kube.Invalid("422"), "refused"),
        (PROTECT, "protect", kube.Busy("429"), "busy"),
        (DRAIN, "drain-node", slurm.Unreachable("time-out"), "unanswered"),
        (DRAIN, "drain-node", slurm.Refused(["no"]), "refused"),
        (END, "end-job", Done(refused=True), "refused"),
    ],
)
async def test_a_write_is_counted_by_what_came_of_it(
    action: WorkerAction, write: str, of: Done | Exception, answer: str
) -> None:
    """An error goes on to whoever asked for the write."""
    before = {each: count(write, each) for each in ANSWERS}
    if isinstance(of, Exception):
        with pytest.raises(type(of)):
            await counted(action, result(of))
    else:
        assert await counted(action, result(of)) is of

    assert {each: count(write, each) - before[each] for each in ANSWERS} == {each: each == answer for each in ANSWERS}


def test_each_write_says_zero_before_it_first_happens() -> None:
    """Else the first refusal would not be seen as an increase."""
    shown = {s.labels["write"] for family in WRITES.collect() for s in family.samples}
    assert len(shown) == len(get_args(WorkerAction) + get_args(NodeAction))


async def test_a_write_to_slurm_is_a_leg_of_its_flow() -> None:
    """A label on a pod is none."""
    before = observed("write-to-answer")
    await counted(PROTECT, result(Done()))
    assert observed("write-to-answer") == before
    await counted(DRAIN, result(Done()))
    assert observed("write-to-answer") == before + 1


AGO = clock.now() - timedelta(seconds=1)
FREE, HELD = a_slurm_node("IDLE"), a_slurm_node("IDLE+DRAIN", reason=OURS)
FOREIGN = a_slurm_node("IDLE+DRAIN", reason="bad DIMM")


@pytest.mark.parametrize(
    ("wrote", "before", "after", "shows"),
    [
        pytest.param(wrote_drain(drained_at=AGO), FREE, HELD, True, id="our drain shows"),
        pytest.param(wrote_undrain(undrained_at=AGO), HELD, FREE, True, id="our undrain shows"),
        pytest.param(wrote_drain(drained_at=AGO), FREE, FOREIGN, False, id="somebody else's drain"),
        pytest.param(wrote_drain(drained_at=AGO), HELD, FREE, False, id="somebody resumed it"),
        pytest.param(wrote_drain(drained_at=AGO), HELD, HELD, False, id="it showed before"),
        pytest.param(wrote_drain(drained_at=AGO), None, HELD, False, id="first seen after a start"),
        pytest.param(None, FREE, HELD, False, id="we wrote nothing"),
    ],
)
def test_a_write_counts_as_seen_when_the_next_reading_shows_it(
    wrote: Any, before: Any, after: Any, shows: bool
) -> None:
    """And nothing else that a reading shows does."""
    known = observed("write-to-seen")
    seen(a_table(after, *([wrote] if wrote else [])))(before, after)

    assert observed("write-to-seen") == known + shows
