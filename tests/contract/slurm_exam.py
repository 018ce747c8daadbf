"""The exam that every slurmrestd sits, fake or real: what the port promises, asked over HTTP.

A class that inherits `SlurmExam` provides the fixture `desk`. Each test leaves the nodes undrained and without jobs.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

import pytest

from lockstep.base.clock import monotonic
from lockstep.contracts.facts import SlurmJob, SlurmNode
from lockstep.slurm import states
from lockstep.slurm.client import SlurmRest
from lockstep.slurm.errors import Denied, NoSuchNode, Refused
from lockstep.slurm.tokens import KeyTokens, Tokens
from lockstep.slurm.transport import Transport

T = TypeVar("T")

WORDS = 'lockstep: ops@example.com: ECC=3 gpu=1 [x] "y" äöü ✓, ticket 4711'
PATIENCE_S = 20.0


class Yard(Protocol):
    """What is done to Slurm beside the port."""

    async def start_job(self, node: str) -> int:
        """Submit a job that runs on this node for minutes."""
        ...

    async def reserve(self, name: str, nodes: list[str]) -> None:
        """Create a maintenance reservation."""
        ...

    async def unreserve(self, name: str) -> None:
        """Delete it."""
        ...


@dataclass(kw_only=True)
class Desk:
    """One slurmrestd to examine."""

    url: str
    tokens: Tokens
    nodes: list[str]
    """At least three, idle."""
    yard: Yard
    stranger: Tokens
    """Tokens of a user without rights."""

    def client(self, tokens: Tokens | None = None) -> SlurmRest:
        """A client of its own."""
        return SlurmRest(Transport(self.url, tokens or self.tokens), cluster="exam")


async def eventually(ask: Callable[[], Awaitable[T]], so: Callable[[T], bool]) -> T:
    """The first answer that is so, asked for again until then."""
    end = monotonic() + PATIENCE_S
    while not so(seen := await ask()):
        assert monotonic() < end, f"still {seen!r}"
        await asyncio.sleep(0.1)
    return seen


def drained(node: SlurmNode) -> bool:
    """The node has DRAIN."""
    return states.is_drain(node.base, node.flags)


def settled(node: SlurmNode) -> bool:
    """The node is idle, answers, and has no DRAIN."""
    return states.phase_of(node.base, node.flags) is states.NodePhase.IDLE and node.boot_time is not None


class SlurmExam:
    """The questions."""

    @pytest.fixture
    async def slurm(self, desk: Desk) -> AsyncIterator[SlurmRest]:
        """A client; afterwards Slurm is as it was."""
        client = desk.client()
        yield client
        for job in await self._jobs(client):
            with contextlib.suppress(Refused):
                await client.cancel(job.job_id)
        listed = await self._nodes(client)
        if left := [name for name in desk.nodes if drained(listed[name])]:
            await client.undrain(left)
        await eventually(lambda: self._nodes(client), lambda now: all(settled(now[name]) for name in desk.nodes))
        await client.close()

    async def _nodes(self, client: SlurmRest) -> dict[str, SlurmNode]:
        listed = await client.nodes()
        assert listed is not None
        return {node.name: node for node in listed.nodes}

    async def _jobs(self, client: SlurmRest) -> list[SlurmJob]:
        listed = await client.jobs()
        assert listed is not None
        return listed.jobs

    async def test_says_who_answers(self, slurm: SlurmRest) -> None:
        """Release, parser and cluster are known, and the controller is up."""
        answer = await slurm.ping()
        assert answer.version[:2].isdigit()
        assert answer.parser.startswith("v0.0.4")
        assert answer.cluster
        assert answer.controllers_up == 1

    async def test_lists_every_node(self, slurm: SlurmRest, desk: Desk) -> None:
        """All nodes are there with what they are and have."""
        listed = await self._nodes(slurm)
        assert set(desk.nodes) <= set(listed)
        node = listed[desk.nodes[0]]
        assert settled(node)
        assert node.gres == "gpu:h100:8"
        assert node.features == ["worker"]
        assert node.partitions == ["train"]
        assert node.slurmd_start is not None
        assert node == await slurm.node(node.name)

    async def test_drains_and_keeps_the_words(self, slurm: SlurmRest, desk: Desk) -> None:
        """DRAIN stands with exactly our words, and says when and by whom."""
        name = desk.nodes[0]
        outcome = await slurm.drain([name], WORDS)
        assert outcome.done == [name]
        assert not outcome.failed
        node = await slurm.node(name)
        assert drained(node)
        assert node.reason == WORDS
        assert node.reason_by == "slurm"
        assert node.reason_at is not None

    async def test_drain_over_drain_replaces_the_words(self, slurm: SlurmRest, desk: Desk) -> None:
        """Slurm keeps one reason: the last. Who must not be overwritten is the caller's care."""
        name = desk.nodes[0]
        await slurm.drain([name], "lockstep: a: first")
        await slurm.drain([name], "lockstep: b: second")
        assert (await slurm.node(name)).reason == "lockstep: b: second"

    async def test_undrain_clears_the_reason_and_quiets_the_node_for_a_moment(
        self, slurm: SlurmRest, desk: Desk
    ) -> None:
        """After UNDRAIN there is no reason, and slurmd is not heard of (nor its boot time known) until it answers."""
        name = desk.nodes[0]
        before = await slurm.node(name)
        await slurm.drain([name], WORDS)
        assert (await slurm.undrain([name])).done == [name]
        node = await slurm.node(name)
        assert not drained(node)
        assert (node.reason, node.reason_by, node.reason_at) == ("", "", None)
        assert not states.is_responding(node.base, node.flags)
        assert node.boot_time is None
        after = await eventually(lambda: slurm.node(name), settled)
        assert after.slurmd_start == before.slurmd_start

    async def test_bulk_with_an_unknown_name_does_the_others(self, slurm: SlurmRest, desk: Desk) -> None:
        """Each name is in exactly one of done and failed, and what is done really is."""
        outcome = await slurm.drain([*desk.nodes, "nosuch"], WORDS)
        assert sorted(outcome.done) == sorted(desk.nodes)
        assert {name: type(error) for name, error in outcome.failed.items()} == {"nosuch": NoSuchNode}
        listed = await self._nodes(slurm)
        assert all(drained(listed[name]) and listed[name].reason == WORDS for name in desk.nodes)
        lifted = await slurm.undrain(["nosuch", *desk.nodes])
        assert sorted(lifted.done) == sorted(desk.nodes)
        assert list(lifted.failed) == ["nosuch"]

    async def test_an_unknown_node_is_an_answer(self, slurm: SlurmRest) -> None:
        """Read or written by itself, a name that Slurm does not know is told from a failure."""
        with pytest.raises(NoSuchNode):
            await slurm.node("nosuch")
        outcome = await slurm.drain(["nosuch"], WORDS)
        assert not outcome.done
        assert isinstance(outcome.failed["nosuch"], NoSuchNode)

    async def test_the_name_for_everybody_is_refused(self, slurm: SlurmRest) -> None:
        """Slurm would drain the whole cluster for a node called "all"."""
        for name in ("all", "ALL"):
            with pytest.raises(ValueError, match="every node"):
                await slurm.drain([name], WORDS)
        assert not any(drained(node) for node in (await self._nodes(slurm)).values())

    async def test_unchanged_nodes_are_none_and_changed_ones_are_not_missed(self, slurm: SlurmRest, desk: Desk) -> None:
        """None only while nothing changes; a drain after the stamp is in the next answer, whatever the release."""
        listed = await slurm.nodes()
        assert listed is not None
        await asyncio.sleep(1.1)
        quiet = await slurm.nodes(since=listed.last_update + 1)
        stamp = quiet.last_update if quiet else listed.last_update
        await slurm.drain([desk.nodes[1]], WORDS)
        changed = await slurm.nodes(since=stamp)
        assert changed is not None
        assert [node.name for node in changed.nodes if drained(node)] == [desk.nodes[1]]

    async def test_a_running_job_holds_its_node(self, slurm: SlurmRest, desk: Desk) -> None:
        """The job is listed with its node, and a drain of it leaves the node busy until the job is gone."""
        name = desk.nodes[0]
        job_id = await desk.yard.start_job(name)
        (job,) = await eventually(lambda: self._jobs(slurm), lambda jobs: [j for j in jobs if j.nodes] != [])
        assert (job.job_id, job.nodes, job.partition, job.user) == (job_id, [name], "train", "root")
        assert job.can_requeue
        assert job.start is not None
        await slurm.drain([name], WORDS)
        node = (await self._nodes(slurm))[name]
        assert states.phase_of(node.base, node.flags) is states.NodePhase.DRAINING
        assert node.alloc_cpus > 0
        await slurm.cancel(job_id)
        await eventually(lambda: self._jobs(slurm), lambda jobs: not jobs)
        freed = await eventually(
            lambda: self._nodes(slurm),
            lambda now: states.phase_of(now[name].base, now[name].flags) is states.NodePhase.DRAINED,
        )
        assert freed[name].alloc_cpus == 0
        with pytest.raises(Refused):
            await slurm.cancel(job_id)

    async def test_unchanged_jobs_are_none_never_all_gone(self, slurm: SlurmRest, desk: Desk) -> None:
        """The empty list with a warning that Slurm sends for "unchanged" does not read as "no jobs"."""
        await desk.yard.start_job(desk.nodes[0])
        await eventually(lambda: self._jobs(slurm), bool)
        listed = await slurm.jobs()
        assert listed is not None
        assert len(listed.jobs) == 1
        await asyncio.sleep(2.1)
        stamp = listed.last_update + 2
        assert await slurm.jobs(since=stamp) is None

    async def test_requeues_where_slurm_can(self, slurm: SlurmRest, desk: Desk) -> None:
        """A requeued job leaves its node; a Slurm whose REST cannot do it refuses and the job runs on."""
        job_id = await desk.yard.start_job(desk.nodes[0])
        await eventually(lambda: self._jobs(slurm), bool)
        if (await slurm.ping()).parser == "v0.0.45":
            await slurm.requeue(job_id)
            await eventually(lambda: self._jobs(slurm), lambda jobs: not jobs)
        else:
            with pytest.raises(Refused, match="requeue"):
                await slurm.requeue(job_id)
            assert [job.job_id for job in await self._jobs(slurm)] == [job_id]

    async def test_an_unknown_job_is_refused(self, slurm: SlurmRest) -> None:
        """Slurm hides that failure in a 200; the port does not."""
        with pytest.raises(Refused):
            await slurm.cancel(999_999)
        with pytest.raises(Refused):
            await slurm.requeue(999_999)

    async def test_shows_maintenance_reservations(self, slurm: SlurmRest, desk: Desk) -> None:
        """A reservation is listed with its nodes, its times and that it is for maintenance."""
        nodes = sorted(desk.nodes[:2])
        await desk.yard.reserve("upkeep", nodes)
        try:
            (found,) = await slurm.reservations()
            assert (found.name, sorted(found.nodes), found.maintenance) == ("upkeep", nodes, True)
            assert found.start is not None
            assert found.end is not None
            assert found.start < found.end
        finally:
            await desk.yard.unreserve("upkeep")
        assert await slurm.reservations() == []

    async def test_lists_the_nodes_of_each_partition(self, slurm: SlurmRest, desk: Desk) -> None:
        """The partition's host list is written out."""
        assert set(desk.nodes) <= set((await slurm.partitions())["train"])

    async def test_a_wrong_key_is_denied(
        self, slurm: SlurmRest, desk: Desk, tmp_path_factory: pytest.TempPathFactory
    ) -> None:
        """Whatever status this Slurm gives it, it is the token that is wrong, and its text is in no error."""
        key = tmp_path_factory.mktemp("key") / "key"
        key.write_bytes(b"the key of another cluster altogether")
        other = desk.client(KeyTokens(key))
        try:
            with pytest.raises(Denied) as caught:
                await other.nodes()
            assert "eyJ" not in str(caught.value)
        finally:
            await other.close()

    async def test_a_user_without_rights_changes_nothing(self, slurm: SlurmRest, desk: Desk) -> None:
        """Slurm's refusal of the user is told from a refusal of the request."""
        other = desk.client(desk.stranger)
        try:
            with pytest.raises(Denied):
                await other.drain([desk.nodes[0]], WORDS)
        finally:
            await other.close()
        assert not drained(await slurm.node(desk.nodes[0]))
