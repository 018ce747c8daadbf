"""Which write of ours a change of a Slurm node shows."""

from collections.abc import Callable
from typing import Any

import pytest

from lockstep.contracts.facts import Desired, SlurmNode, Wrote, worker_key
from lockstep.fleet.facts import FactKey
from lockstep.slurm_poller.causes import Echoes
from tests.builders import (
    CLUSTER,
    NAME,
    OURS,
    a_desired,
    a_slurm_node,
    a_table,
    a_view,
    ago,
    wrote_drain,
    wrote_undrain,
)

IDLE = a_slurm_node("IDLE")
DRAINED = a_slurm_node("IDLE+DRAIN", reason=OURS)
BUSY = a_slurm_node("MIXED+DRAIN", reason=OURS)
FOREIGN = a_slurm_node("IDLE+DRAIN", reason="bad DIMM")
SET = wrote_drain(cause="drain-set")
LIFTED = wrote_undrain(cause="drain-lifted")
HELD = a_desired(a_view())
HELD_ANEW = a_desired(a_view(), episode=2)
FREE = a_desired()
READ_SINCE = a_slurm_node("IDLE", read_at=ago(5))
"""Later than `SET` was answered."""


def asked(*keys: FactKey) -> str:
    """The event that the newest desired state came from."""
    assert keys in {((kind, CLUSTER, NAME),) for kind in (Desired, Wrote)}
    return "asked" if keys[0][0] is Desired else ""


@pytest.mark.parametrize(
    ("known", "before", "after", "cause"),
    [
        pytest.param([SET, HELD], IDLE, DRAINED, "drain-set", id="our DRAIN appears"),
        pytest.param([SET, HELD], BUSY, DRAINED, "drain-set", id="a job ends under our DRAIN"),
        pytest.param([HELD], IDLE, DRAINED, "asked", id="our DRAIN is read before the news of it"),
        pytest.param([LIFTED, HELD], IDLE, DRAINED, "asked", id="the news is that of the write before"),
        pytest.param([LIFTED, FREE], DRAINED, IDLE, "drain-lifted", id="our UNDRAIN appears"),
        pytest.param([SET, FREE], DRAINED, IDLE, "asked", id="our UNDRAIN is read before the news of it"),
        pytest.param([SET, HELD], DRAINED, IDLE, "", id="somebody resumes what a hold keeps out"),
        pytest.param([SET, HELD], IDLE, FOREIGN, "", id="an administrator's drain"),
        pytest.param([LIFTED, FREE], IDLE, a_slurm_node("ALLOCATED"), "", id="a job begins on a free worker"),
        pytest.param([LIFTED, FREE], FOREIGN, IDLE, "", id="an administrator lifts her own drain"),
        pytest.param([], None, DRAINED, "", id="nothing is known"),
    ],
)
def test_a_change_names_the_write_that_it_shows(
    known: list[Any], before: SlurmNode | None, after: SlurmNode, cause: str
) -> None:
    """And none where somebody else, or a job, is what changed it."""
    assert Echoes(a_table(*known), told(known)).of(before, after) == cause


def test_a_write_that_the_stream_has_not_told_is_not_named_yet() -> None:
    """In one process the table has it before its event is there; until then, what asked for it stands in its place."""
    assert Echoes(a_table(SET, HELD), asked).of(IDLE, DRAINED) == "asked"


@pytest.mark.parametrize(
    ("known", "before", "after"),
    [
        pytest.param([HELD], IDLE, DRAINED, id="the first DRAIN"),
        pytest.param([LIFTED, HELD], IDLE, DRAINED, id="the news is that of the write before"),
        pytest.param([SET, HELD, READ_SINCE], IDLE, DRAINED, id="somebody resumed it, and it is set again"),
        pytest.param([SET, HELD], DRAINED, a_slurm_node("IDLE+DRAIN", reason=OURS + "!"), id="other words"),
        pytest.param([LIFTED, FREE], IDLE, DRAINED, id="the hold has ended meanwhile"),
        pytest.param([SET, FREE], DRAINED, IDLE, id="our UNDRAIN"),
        pytest.param([SET, HELD_ANEW], DRAINED, IDLE, id="our UNDRAIN, and another hold has come meanwhile"),
    ],
)
def test_a_write_that_shows_before_it_is_told_is_awaited(known: list[Any], before: SlurmNode, after: SlurmNode) -> None:
    """Its news is on its way, for our words come and go by our writes alone."""
    assert Echoes(a_table(*known), told(known)).is_early(before, after)


@pytest.mark.parametrize(
    ("known", "before", "after"),
    [
        pytest.param([SET, HELD], IDLE, DRAINED, id="our DRAIN was told"),
        pytest.param([LIFTED, FREE], DRAINED, IDLE, id="our UNDRAIN was told"),
        pytest.param([SET, HELD], DRAINED, IDLE, id="somebody resumes what a hold keeps out"),
        pytest.param([HELD], IDLE, FOREIGN, id="an administrator's drain"),
        pytest.param([SET, FREE], DRAINED, FOREIGN, id="an administrator's words over ours"),
        pytest.param([LIFTED, FREE], FOREIGN, IDLE, id="an administrator lifts her own drain"),
        pytest.param([HELD], BUSY, DRAINED, id="a job ends under our DRAIN"),
        pytest.param([], DRAINED, IDLE, id="nobody has asked for anything"),
        pytest.param([HELD], None, DRAINED, id="a node that nobody knew"),
    ],
)
def test_nothing_else_is_awaited(known: list[Any], before: SlurmNode | None, after: SlurmNode) -> None:
    """What others did is told at once, and so is what changes under our DRAIN."""
    assert not Echoes(a_table(*known), told(known)).is_early(before, after)


def told(known: list[Any]) -> Callable[..., str]:
    """The stream has told the writes as well."""
    writes = {(Wrote, *worker_key(fact)): fact.cause for fact in known if isinstance(fact, Wrote)}
    return lambda *keys: next((writes[key] for key in keys if key in writes), "") or asked(*keys)
