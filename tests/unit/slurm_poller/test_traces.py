"""Which flow a change of a Slurm node belongs to."""

from typing import Any

import pytest

from lockstep.base import clock
from lockstep.contracts.facts import SlurmNode
from lockstep.slurm_poller.traces import Traces
from tests.builders import OURS, a_desired, a_slurm_node, a_table, a_view, wrote_drain, wrote_undrain

WROTE, WANTED, BEGAN = (f"00-{number:032x}-{number:016x}-01" for number in (1, 2, 3))
IDLE = a_slurm_node("IDLE")
DRAINED = a_slurm_node("IDLE+DRAIN", reason=OURS)
BUSY = a_slurm_node("MIXED+DRAIN", reason=OURS)
FOREIGN = a_slurm_node("IDLE+DRAIN", reason="admin: bad DIMM")


def traces(*, wrote: Any = None, desired: Any = None) -> Traces:
    """What is known of our writes and of what is wanted; both just now."""
    table = a_table()
    if wrote is not None:
        table.apply(wrote)
    if desired is not None:
        table.apply(desired)
        table.flows.note(desired, WANTED, 1)
    return Traces(table)


@pytest.mark.parametrize(
    ("before", "after", "parent"),
    [
        pytest.param(IDLE, DRAINED, WROTE, id="our words appear"),
        pytest.param(None, DRAINED, WROTE, id="they are there at the first look"),
        pytest.param(IDLE, a_slurm_node("DOWN+DRAIN", reason=f"{OURS} [was: Not responding]"), WROTE, id="kept behind"),
        pytest.param(BUSY, DRAINED, "", id="the job has ended under our words"),
        pytest.param(IDLE, FOREIGN, "", id="an administrator's drain"),
        pytest.param(IDLE, a_slurm_node("ALLOCATED"), "", id="a job has begun"),
        pytest.param(DRAINED, IDLE, "", id="somebody has resumed it"),
    ],
)
def test_the_first_sight_of_a_drain_of_ours_belongs_to_the_flow_that_wrote_it(
    before: SlurmNode | None, after: SlurmNode, parent: str
) -> None:
    """And nothing else does: it begins a flow, linked to the one in which the drain began."""
    known = traces(
        wrote=wrote_drain(traceparent=WROTE, read_at=clock.now()),
        desired=a_desired(a_view(), traceparent=BEGAN),
    )
    step = known.step(before, after)
    assert step.parent == parent
    assert step.links == [BEGAN]
    assert step.attributes == {"lockstep.cluster": "main", "lockstep.worker": "gpu-7"}


def test_the_first_sight_of_an_undrain_belongs_to_the_flow_that_wrote_it() -> None:
    """Nothing is held any more, so there is nothing to link to."""
    known = traces(wrote=wrote_undrain(traceparent=WROTE, read_at=clock.now()), desired=a_desired())
    step = known.step(DRAINED, IDLE)
    assert (step.parent, step.links) == (WROTE, [])


def test_a_node_that_is_read_before_the_news_of_the_write_follows_what_was_wanted() -> None:
    """Between the answer and the fact about it lie some milliseconds."""
    known = traces(desired=a_desired(a_view(), words=OURS, read_at=clock.now()))
    assert known.step(IDLE, DRAINED).parent == WANTED


def test_a_write_of_long_ago_is_not_continued() -> None:
    """Another replica may read the whole cluster for the first time."""
    known = traces(wrote=wrote_drain(traceparent=WROTE), desired=a_desired(a_view(), words=OURS))
    assert known.step(None, DRAINED).parent == ""
