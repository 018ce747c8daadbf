"""What is read of nodes and jobs: unchanged, unknown and unreachable are three things."""

import pytest
from structlog.testing import capture_logs

from lockstep.slurm.client import SlurmRest
from lockstep.slurm.errors import NoSuchNode, Unreachable
from tests.fakes.slurm import OLD, FakeNode
from tests.fakes.slurm_faults import Fault
from tests.fakes.slurmrestd import FakeSlurmrestd, fake_slurm
from tests.unit.slurm.conftest import WORDS, client_of


@pytest.mark.parametrize(
    "fault",
    [
        Fault(on="GET node/{name}", status=500, body='{"errors": [{"error_number": -1}]}'),
        Fault(on="GET node/{name}", status=200, body="{}"),
        Fault(on="GET node/{name}", status=200, body="<html>", content_type="text/html"),
        Fault(on="GET node/{name}", cut=True),
    ],
    ids=["error", "no nodes in it", "a page", "cut"],
)
async def test_a_failed_look_is_not_an_absent_node(fake: FakeSlurmrestd, slurm: SlurmRest, fault: Fault) -> None:
    """Only Slurm's own word makes a node unknown."""
    fault.times = 1
    fake.fail(fault)
    with pytest.raises(Unreachable):
        await slurm.node("gpu-1")


async def test_slurmctld_away_is_unreachable_for_all(fake: FakeSlurmrestd, slurm: SlurmRest) -> None:
    """Its absence reads neither as "no nodes" nor as "no jobs"."""
    fake.slurmctld_up = False
    for ask in (slurm.nodes, slurm.jobs, slurm.reservations, slurm.partitions):
        with pytest.raises(Unreachable):
            await ask()
    assert (await slurm.ping()).controllers_up == 0


@pytest.mark.parametrize("what", ["nodes", "jobs", "reservations", "partitions"])
async def test_an_answer_without_its_part_is_no_empty_list(fake: FakeSlurmrestd, slurm: SlurmRest, what: str) -> None:
    """A body that lacks the list says nothing."""
    fake.fail(Fault(on=f"GET {what}/", status=200, body='{"errors": [], "warnings": []}'))
    with pytest.raises(Unreachable):
        await getattr(slurm, what)()


async def test_a_node_name_cannot_leave_its_place_in_the_address(fake: FakeSlurmrestd, slurm: SlurmRest) -> None:
    """Signs of addresses in a name are part of the name."""
    with pytest.raises(NoSuchNode):
        await slurm.node("../jobs/?x=1#y")
    assert fake.calls[-1] == "GET node/{name}"


async def test_nodes_are_asked_for_without_flags(fake: FakeSlurmrestd, slurm: SlurmRest) -> None:
    """Naming one drops MIXED, and a busy node would read idle; jobs are asked for without what is on each core."""
    await slurm.nodes()
    await slurm.jobs()
    assert fake.queries["GET nodes/"] == {}
    assert fake.queries["GET jobs/"] == {"flags": "ALL"}


async def test_unchanged_is_asked_for_by_slurms_own_stamp(fake: FakeSlurmrestd, slurm: SlurmRest) -> None:
    """The query is what real daemons accept: whole Unix seconds."""
    fake.age("nodes", 10)
    listed = await slurm.nodes()
    assert listed is not None
    assert await slurm.nodes(since=listed.last_update) is None
    assert fake.queries["GET nodes/"] == {"update_time": str(listed.last_update)}


async def test_an_older_slurm_that_fails_on_the_stamp_gets_the_full_question() -> None:
    """Each answer is whole from the first time on; after two failures in a row it is not asked any more."""
    async with fake_slurm("gpu-1", release=OLD) as fake:
        client = client_of(fake)
        listed = await client.nodes()
        assert listed is not None
        with capture_logs() as logs:
            for _ in range(4):
                found = await client.nodes(since=listed.last_update - 100)
                assert found is not None
                assert [node.name for node in found.nodes] == ["gpu-1"]
        assert fake.count("GET nodes/") == 1 + 2 * 2 + 2
        assert len(logs) == 1
        await client.close()


async def test_one_failure_on_the_stamp_is_forgotten(fake: FakeSlurmrestd, slurm: SlurmRest) -> None:
    """A Slurm that was unwell for a moment goes on being asked whether anything changed."""
    fake.age("nodes", 10)
    listed = await slurm.nodes()
    assert listed is not None
    for _ in range(3):
        fake.fail(Fault(on="GET nodes/", status=500, body='{"errors": [{"error_number": -1}]}'))
        assert await slurm.nodes(since=listed.last_update) is not None
        assert await slurm.nodes(since=listed.last_update) is None


async def test_unchanged_jobs_are_none_and_no_jobs_are_none_left(fake: FakeSlurmrestd, slurm: SlurmRest) -> None:
    """An empty list with "no job changes" is None; one with "zero jobs" is the end of all jobs."""
    job_id = fake.start_job(["gpu-1"])
    fake.age("jobs", 10)
    listed = await slurm.jobs()
    assert listed is not None
    assert await slurm.jobs(since=listed.last_update) is None
    del fake.jobs[job_id]
    fake.touch("jobs")
    gone = await slurm.jobs(since=listed.last_update)
    assert gone is not None
    assert gone.jobs == []


async def test_only_jobs_that_hold_nodes_are_listed(fake: FakeSlurmrestd, slurm: SlurmRest) -> None:
    """Waiting and ended ones are history; completing ones still hold."""
    held = fake.start_job(["gpu-1", "gpu-2"])
    fake.jobs[fake.start_job(["gpu-3"])].states = ["CANCELLED"]
    completing = fake.start_job(["gpu-4"])
    fake.jobs[completing].states = ["TIMEOUT", "COMPLETING"]
    listed = await slurm.jobs()
    assert listed is not None
    assert [(job.job_id, job.nodes) for job in listed.jobs] == [(held, ["gpu-1", "gpu-2"]), (completing, ["gpu-4"])]


async def test_a_node_with_equals_signs_stops_nobody(fake: FakeSlurmrestd, slurm: SlurmRest) -> None:
    """Its reason is kept, and the next node is read and written in the same breath."""
    fake.nodes["gpu-1"] = FakeNode(name="gpu-1", flags={"DRAIN"}, reason='a=b=c [x] "y"')
    listed = await slurm.nodes()
    assert listed is not None
    assert listed.nodes[0].reason == 'a=b=c [x] "y"'
    assert (await slurm.drain(["gpu-2"], WORDS)).done == ["gpu-2"]
    assert fake.nodes["gpu-1"].reason == 'a=b=c [x] "y"'
