"""Drain and undrain: each name is done, refused or unknown, and what may have been done is not said again."""

import asyncio
import json

import pytest

from lockstep.slurm import states
from lockstep.slurm.client import SlurmRest
from lockstep.slurm.errors import Busy, NoSuchNode, Refused, Unreachable
from tests.fakes.slurm import NEW, OLD, Release
from tests.fakes.slurm_faults import Fault
from tests.fakes.slurmrestd import FakeSlurmrestd, fake_slurm
from tests.unit.slurm.conftest import WORDS, client_of


async def test_a_thousand_nodes_with_the_same_words_are_one_post() -> None:
    """And the body is a short host list."""
    names = [f"gpu-{number}" for number in range(1, 1001)]
    async with fake_slurm(*names) as fake:
        client = client_of(fake, total_s=5)
        assert (await client.drain(names, WORDS)).done == names
        assert fake.posted == [{"name": ["gpu-[1-1000]"], "state": ["DRAIN"], "reason": WORDS}]
        await client.undrain(names)
        assert fake.posted[1] == {"name": ["gpu-[1-1000]"], "state": ["UNDRAIN"]}
        await client.close()


@pytest.mark.parametrize("release", [NEW, OLD], ids=lambda release: release.name)
async def test_a_bulk_that_is_refused_for_one_is_sorted(release: Release) -> None:
    """The others are done; one that will not is told apart from one that is not there; nobody is asked twice."""
    async with fake_slurm("gpu-1", "gpu-2", "gpu-3", release=release) as fake:
        client = client_of(fake)
        await client.drain(list(fake.nodes), WORDS)
        fake.nodes["gpu-2"].flags.add("INVALID_REG")
        fake.posted.clear()
        outcome = await client.undrain(["gpu-1", "gpu-2", "gpu-3", "gone"])
        assert outcome.done == ["gpu-1", "gpu-3"]
        assert {name: type(error) for name, error in outcome.failed.items()} == {"gpu-2": Refused, "gone": NoSuchNode}
        assert [body["name"] for body in fake.posted] == [["gone,gpu-[1-3]"], ["gpu-2"]]
        await client.close()


async def test_one_that_failed_in_the_bulk_may_succeed_alone(fake: FakeSlurmrestd, slurm: SlurmRest) -> None:
    """A refusal of the whole, before anything was changed, is no refusal of each."""
    refusal = json.dumps({"errors": [{"error_number": 2028, "error": "Invalid node state specified"}]})
    fake.fail(Fault(on="POST nodes/", status=422, body=refusal))
    outcome = await slurm.drain(["gpu-1", "gpu-2"], WORDS)
    assert sorted(outcome.done) == ["gpu-1", "gpu-2"]
    assert outcome.failed == {}


async def test_a_vanished_node_is_asked_for_once(fake: FakeSlurmrestd, slurm: SlurmRest) -> None:
    """Deleted between our look and our write: one POST, and the answer that it is gone."""
    await slurm.node("gpu-1")
    del fake.nodes["gpu-1"]
    outcome = await slurm.drain(["gpu-1"], WORDS)
    assert isinstance(outcome.failed["gpu-1"], NoSuchNode)
    assert fake.count("POST nodes/") == 1


@pytest.mark.parametrize(
    "fault",
    [
        Fault(on="POST nodes/", after_acting=True, cut=True),
        Fault(on="POST nodes/", cut=True),
        Fault(on="POST nodes/", hang_s=1.0),
        Fault(on="POST nodes/", after_acting=True, status=502, body="<html>", content_type="text/html"),
        Fault(on="POST nodes/", after_acting=True, status=500, body="{}"),
    ],
    ids=["half an answer", "cut", "time-out", "a proxy's page", "no word"],
)
async def test_a_lost_answer_is_never_said_again(fake: FakeSlurmrestd, slurm: SlurmRest, fault: Fault) -> None:
    """The write may have been carried out (here it was), so the caller reads before it writes again."""
    fault.times = 1
    fake.fail(fault)
    with pytest.raises(Unreachable):
        await slurm.drain(["gpu-1"], WORDS)
    assert fake.count("POST nodes/") == 1
    await asyncio.sleep(0.6 if fault.hang_s else 0)
    assert states.is_drain("IDLE", (await slurm.node("gpu-1")).flags)


async def test_lost_while_looking_after_a_refused_bulk_is_unreachable(fake: FakeSlurmrestd, slurm: SlurmRest) -> None:
    """Nothing is reported as done or failed that was not seen."""
    fake.fail(Fault(on="GET nodes/", cut=True))
    with pytest.raises(Unreachable):
        await slurm.drain(["gpu-1", "gone"], WORDS)


async def test_lost_for_one_is_that_ones_failure(fake: FakeSlurmrestd, slurm: SlurmRest) -> None:
    """The others of the bulk are told as they are."""
    fake.nodes["gpu-2"].flags.add("INVALID_REG")
    await slurm.drain(["gpu-1", "gpu-2"], WORDS)
    fake.calls.clear()
    refusal = json.dumps({"errors": [{"error_number": 2028, "error": "Invalid node state specified"}]})
    fake.fail(Fault(on="POST nodes/", after_acting=True, status=422, body=refusal), Fault(on="POST nodes/", cut=True))
    outcome = await slurm.undrain(["gpu-1", "gpu-2"])
    assert outcome.done == ["gpu-1"]
    assert isinstance(outcome.failed["gpu-2"], Unreachable)


@pytest.mark.parametrize("reason", ["", "two\nlines", "x" * 257, " padded", "\x1b[31mred"])
async def test_a_reason_that_is_not_clean_is_not_sent(fake: FakeSlurmrestd, slurm: SlurmRest, reason: str) -> None:
    """Whoever calls has made it with `reasons`; anything else is a mistake of ours."""
    with pytest.raises(ValueError, match="clean reason"):
        await slurm.drain(["gpu-1"], reason)
    assert fake.posted == []


@pytest.mark.parametrize("name", ["all", "ALL", "gpu-[1-4]", "gpu-1,gpu-2", "", "gpu 1"])
async def test_a_name_that_stands_for_several_is_not_sent(fake: FakeSlurmrestd, slurm: SlurmRest, name: str) -> None:
    """Slurm reads "all" as every node and signs as lists."""
    with pytest.raises(ValueError, match="name"):
        await slurm.drain(["gpu-1", name], WORDS)
    assert fake.posted == []


async def test_nobody_to_drain_is_nothing_to_do(fake: FakeSlurmrestd, slurm: SlurmRest) -> None:
    """Slurm would call an empty list an error."""
    assert (await slurm.drain([], WORDS)).done == []
    assert fake.calls == []


async def test_busy_is_raised_with_its_time(fake: FakeSlurmrestd, slurm: SlurmRest) -> None:
    """429 and 503 say when to come back."""
    fake.fail(Fault(on="POST nodes/", status=429, headers={"Retry-After": "3"}), Fault(on="POST nodes/", status=503))
    with pytest.raises(Busy) as caught:
        await slurm.drain(["gpu-1"], WORDS)
    assert caught.value.after_s == 3.0
    with pytest.raises(Busy):
        await slurm.drain(["gpu-1"], WORDS)


async def test_a_job_that_may_not_be_requeued_is_refused(fake: FakeSlurmrestd, slurm: SlurmRest) -> None:
    """Slurm's own refusal, in its words."""
    with pytest.raises(Refused, match="disabled"):
        await slurm.requeue(fake.start_job(["gpu-1"], can_requeue=False))
