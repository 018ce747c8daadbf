"""Real slurmrestds sit the exam: Slurm 26.05 and 24.11 from Debian's packages, each with three real slurmds.

Needs root. The clusters are small ones of their own, with their own folders and ports, beside any lab that is up.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.base.clock import now
from lockstep.contracts.events import JobEnded, JobEvent
from lockstep.slurm.client import SlurmRest
from lockstep.slurm.errors import Unreachable
from lockstep.slurm.hostlist import compress, expand
from lockstep.slurm.tokens import KeyTokens
from lockstep.slurm.transport import Transport
from lockstep.slurm_poller.jobs import Runs
from tests.contract.slurm_exam import WORDS, Desk, SlurmExam, drained, eventually
from tests.lab import paths
from tests.lab.processes import Processes
from tests.lab.slurm import Ports, Slurm

HOME = Path("/var/lib/lockstep-exam")
PORTS = {
    "26.05": Ports(slurmctld=14817, slurmrestd=14820, proxy=14821, slurmd=14900),
    "24.11": Ports(slurmctld=15817, slurmrestd=15820, proxy=15821, slurmd=15900),
}
NAMES = ["gpu-8", "gpu-9", "gpu-10"]


class RealYard:
    """Jobs and reservations by Slurm's own commands."""

    def __init__(self, slurm: Slurm) -> None:
        """Of this cluster."""
        self._slurm = slurm

    async def start_job(self, node: str) -> int:
        """A batch job of two CPUs on this node."""
        return await asyncio.to_thread(self._slurm.sbatch, "sleep 600", "-n2", "-w", node)

    async def reserve(self, name: str, nodes: list[str]) -> None:
        """A maintenance reservation that starts in a minute, so that it keeps nobody's job away."""
        when = ["StartTime=now+60", "Duration=10", "Users=root", "Flags=MAINT,IGNORE_JOBS"]
        command = ["create", "reservation", f"ReservationName={name}", f"Nodes={','.join(nodes)}", *when]
        await asyncio.to_thread(self._slurm.scontrol, *command)

    async def unreserve(self, name: str) -> None:
        """Its end."""
        await asyncio.to_thread(self._slurm.scontrol, "delete", f"ReservationName={name}")


@pytest.fixture(scope="module", params=["26.05", "24.11"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Slurm]:
    """A cluster of this release with idle nodes."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("STATE", "RUN", "LOGS"):
            patch.setattr(paths, name, HOME / name.lower())
        paths.prepare()
        processes = Processes(paths.STATE, paths.LOGS)
        name = f"exam-{request.param.partition('.')[0]}"
        slurm = Slurm(processes, request.param, name, ports=PORTS[request.param], address="127.0.0.1")
        slurm.down()
        try:
            slurm.up()
            slurm.add_slurmds(NAMES)
            yield slurm
        finally:
            slurm.down()


@pytest.fixture
def desk(cluster: Slurm) -> Desk:
    """The real slurmrestd, through the lab's proxy."""
    return Desk(
        url=cluster.url,
        tokens=KeyTokens(cluster.key_file),
        nodes=NAMES,
        yard=RealYard(cluster),
        stranger=KeyTokens(cluster.key_file, "researcher"),
    )


class TestReal(SlurmExam):
    """The exam on real daemons."""


async def test_a_lost_answer_may_have_been_carried_out(cluster: Slurm, desk: Desk) -> None:
    """With slurmctld away nothing is known. Back again: what stands is read, not guessed."""
    client = desk.client()
    try:
        await client.ping()
        await asyncio.to_thread(cluster.processes.kill, f"slurmctld-{cluster.cluster}")
        with pytest.raises(Unreachable):
            await client.drain(NAMES, WORDS)
        with pytest.raises(Unreachable):
            await client.nodes()
        with pytest.raises(Unreachable):
            await client.node(NAMES[0])
    finally:
        await asyncio.to_thread(cluster.processes.restart, f"slurmctld-{cluster.cluster}")
    await eventually(lambda: _names_or_none(client), lambda names: names is not None and set(NAMES) <= set(names))
    listed = await client.nodes()
    assert listed is not None
    assert not any(drained(node) for node in listed.nodes)
    await client.close()


async def test_every_parser_of_the_release_says_the_same(cluster: Slurm, desk: Desk) -> None:
    """One node read through each data parser that this slurmrestd and we have in common is one fact."""
    facts = []
    for parser in ("v0.0.42", "v0.0.43", "v0.0.44", "v0.0.45") if cluster.version == "26.05" else ("v0.0.42",):
        client = SlurmRest(Transport(cluster.url, desk.tokens), cluster="exam")
        client._versions._current = parser
        facts.append(await client.node(NAMES[0]))
        await client.close()
    assert facts == [facts[0]] * len(facts)


@pytest.mark.parametrize(
    "text", ["gpu-[01-03,7],b[0-1]_c[0-1],x", "x[1-3]-y", "n[099-101]", "n[9-11]", "a[01,1,02,2,9-10],b"]
)
def test_host_lists_mean_what_slurm_means(cluster: Slurm, text: str) -> None:
    """Written out by us and by Slurm, a list gives the same names, and Slurm reads what we write."""
    assert expand(text) == cluster.scontrol("show", "hostnames", text).split()
    assert sorted(cluster.scontrol("show", "hostnames", compress(expand(text))).split()) == sorted(expand(text))


async def test_a_node_names_the_reservation_that_it_is_under(cluster: Slurm, desk: Desk) -> None:
    """From its start to its end; one that begins later is not named yet."""
    client = desk.client()
    when = ["duration=10", "users=root", "flags=IGNORE_JOBS"]
    cluster.scontrol("create", "reservation=told", "starttime=now", "nodes=gpu-8", *when)
    cluster.scontrol("create", "reservation=later", "starttime=now+600", "nodes=gpu-9", *when)
    try:
        await eventually(lambda: client.node("gpu-8"), lambda node: node.reservation == "told")
        assert (await client.node("gpu-9")).reservation == ""
    finally:
        for name in ("told", "later"):
            cluster.scontrol("delete", f"reservation={name}")
    await eventually(lambda: client.node("gpu-8"), lambda node: node.reservation == "")
    await client.close()


async def test_what_happens_to_jobs_is_told_once(cluster: Slurm, desk: Desk) -> None:
    """A task of an array that is put back, one that is cancelled, and a job that ends by itself."""
    client, runs, told = desk.client(), Runs("exam"), list[JobEvent]()

    async def look() -> list[tuple[str, int]]:
        answer = await client.jobs()
        assert answer is not None
        told.extend(runs.events(answer, now(), facts={}))
        return [(type(event).__name__, event.job_id) for event in told]

    async def until(*events: tuple[str, int]) -> None:
        await eventually(look, lambda seen: set(events) <= set(seen))

    await look()
    array = cluster.sbatch("sleep 600", "--array=0-1", "--requeue", "-n1")
    await eventually(look, lambda seen: len({job_id for _, job_id in seen if job_id >= array}) == 2)
    first, second = sorted({event.job_id for event in told if event.job_id >= array})
    assert array in {first, second}
    cluster.scontrol("requeue", str(first))
    cluster.scancel(second)
    short = cluster.sbatch("sleep 1", "-n1")
    await until(("JobRequeued", first), ("JobEnded", second), ("JobStarted", short), ("JobEnded", short))
    cluster.scancel(first)
    for _ in range(3):
        seen = await look()
    await client.close()
    told = [event for event in told if event.job_id >= array]

    assert sorted(seen) == sorted(set(seen))
    assert {job_id: event.states[:1] for event in told if (job_id := event.job_id) and isinstance(event, JobEnded)} == {
        second: ["CANCELLED"],
        short: ["COMPLETED"],
    }
    assert len({event.id for event in told}) == len(told) == 6


async def _names_or_none(client: SlurmRest) -> list[str] | None:
    try:
        listed = await client.nodes()
    except Unreachable:
        return None
    return [node.name for node in listed.nodes] if listed else None
