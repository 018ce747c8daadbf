"""The writer reads before it writes: what changed since the decision is left alone."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from lockstep.base.errors import Retry
from lockstep.contracts.facts import SlurmNode
from lockstep.reconciler.writer import SlurmWriter
from lockstep.slurm.errors import Busy, Refused, Unreachable
from lockstep.slurm.port import NodeList, Outcome
from tests.builders import OURS, a_slurm_node


class Recorder:
    """A Slurm that shows these nodes and remembers what is written.

    An answer may be lost, a name refused, or (`turns`) each first, third… request fail.
    """

    def __init__(
        self,
        *nodes: SlurmNode,
        lost: bool = False,
        refused: str = "",
        turns: bool = False,
        unreadable: bool = False,
    ) -> None:
        self._nodes = {node.name: node for node in nodes}
        self._lost, self._refused, self._turns, self._unreadable = lost, refused, turns, unreadable
        self.asked = 0
        self.meanwhile: dict[str, SlurmNode] = {}
        """What somebody else does while the first write is on its way."""
        self.posts: list[tuple[str, tuple[str, ...]]] = []

    async def node(self, name: str) -> SlurmNode:
        """One node."""
        self._take_turns()
        return self._nodes[name]

    async def nodes(self, *, since: int = 0) -> NodeList:
        """All nodes."""
        self._take_turns()
        return NodeList(nodes=list(self._nodes.values()), last_update=1)

    async def drain(self, names: list[str], reason: str) -> Outcome:
        """Remembers the DRAIN."""
        return self._post(reason, names)

    async def undrain(self, names: list[str]) -> Outcome:
        """Remembers the UNDRAIN."""
        return self._post("UNDRAIN", names)

    def _take_turns(self) -> None:
        self.asked += 1
        if self._unreadable:
            raise Unreachable("no answer")
        if self._turns and self.asked % 2:
            raise Busy("slurmrestd is busy", status=503)

    def _post(self, what: str, names: list[str]) -> Outcome:
        self._take_turns()
        self.posts.append((what, tuple(sorted(names))))
        self._nodes |= self.meanwhile
        if self._lost:
            raise Unreachable("no answer")
        bad = {name: Refused(["invalid"]) for name in names if name == self._refused}
        return Outcome(done=[name for name in names if name not in bad], failed=bad)


@asynccontextmanager
async def writing(slurm: Recorder) -> AsyncIterator[SlurmWriter]:
    """A writer that runs."""
    writer = SlurmWriter(slurm)  # type: ignore[arg-type]
    async with asyncio.TaskGroup() as group:
        task = group.create_task(writer.run())
        yield writer
        task.cancel()


async def test_what_is_due_together_is_one_request() -> None:
    """A hundred workers with the same words are one POST; other words are another."""
    names = [f"gpu-{number}" for number in range(100)]
    slurm = Recorder(*(a_slurm_node("IDLE", name=name) for name in names))
    async with writing(slurm) as writer:
        answers = await asyncio.gather(*(writer.drain(name, OURS if name != "gpu-7" else OURS + "!") for name in names))

    assert all(answer.wrote for answer in answers)
    assert sorted(len(names) for _, names in slurm.posts) == [1, 99]


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        pytest.param("IDLE+DRAIN", "bad DIMM", id="somebody drained it"),
        pytest.param("IDLE+DRAIN", "", id="drained without a reason"),
        pytest.param("DOWN", "smoke", id="somebody set it down"),
        pytest.param("IDLE+FAIL", "soon", id="somebody set FAIL"),
        pytest.param("IDLE+FAIL", OURS, id="FAIL over our words"),
    ],
)
async def test_what_somebody_else_did_meanwhile_is_left_alone(state: str, reason: str) -> None:
    """Slurm would silently replace her reason: nothing is sent."""
    slurm = Recorder(a_slurm_node(state, name="gpu-7", reason=reason))
    async with writing(slurm) as writer:
        with pytest.raises(Retry, match="somebody else"):
            await writer.drain("gpu-7", OURS)

    assert slurm.posts == []


async def test_what_somebody_else_does_during_another_write_is_left_alone() -> None:
    """Each with words of its own is read when it is its turn, not when the first was."""
    slurm = Recorder(*(a_slurm_node("IDLE", name=name) for name in ("gpu-1", "gpu-2")))
    slurm.meanwhile["gpu-2"] = a_slurm_node("IDLE+DRAIN", name="gpu-2", reason="bad DIMM")
    async with writing(slurm) as writer:
        first, second = await asyncio.gather(
            writer.drain("gpu-1", f"{OURS}!"), writer.drain("gpu-2", OURS), return_exceptions=True
        )

    assert not isinstance(first, BaseException)
    assert isinstance(second, Retry)
    assert slurm.posts == [(f"{OURS}!", ("gpu-1",))]


async def test_a_slurm_that_cannot_be_read_is_asked_once_for_all() -> None:
    """Not once for each group, of which each might wait for its answer until it gives up."""
    slurm = Recorder(unreadable=True)
    async with writing(slurm) as writer:
        outcomes = await asyncio.gather(
            *(writer.drain(f"gpu-{number}", f"{OURS} {number}") for number in range(9)), return_exceptions=True
        )

    assert [type(outcome) for outcome in outcomes] == [Unreachable] * 9
    assert slurm.asked == 2


async def test_a_foreign_drain_is_never_lifted() -> None:
    """Also when it came between the decision and the write."""
    slurm = Recorder(a_slurm_node("IDLE+DRAIN", name="gpu-7", reason="bad DIMM"))
    async with writing(slurm) as writer:
        with pytest.raises(Retry, match="somebody else"):
            await writer.undrain("gpu-7")

    assert slurm.posts == []


@pytest.mark.parametrize("state", ["IDLE", "MIXED", "DOWN"])
async def test_a_node_without_drain_is_never_sent_undrain(state: str) -> None:
    """It would be marked as not responding for nothing."""
    slurm = Recorder(a_slurm_node(state, name="gpu-7"))
    async with writing(slurm) as writer:
        answer = await writer.undrain("gpu-7")

    assert not answer.wrote
    assert slurm.posts == []


async def test_what_is_so_already_is_not_written_again() -> None:
    """The answer says that nothing was written, so that no event tells of it."""
    slurm = Recorder(a_slurm_node("IDLE+DRAIN", name="gpu-7", reason=OURS))
    async with writing(slurm) as writer:
        answer = await writer.drain("gpu-7", OURS)

    assert not answer.wrote
    assert slurm.posts == []


async def test_one_bad_name_fails_alone() -> None:
    """The others of the batch are answered as done."""
    slurm = Recorder(a_slurm_node("IDLE", name="gpu-1"), a_slurm_node("IDLE", name="gpu-2"), refused="gpu-2")
    async with writing(slurm) as writer:
        good, bad = await asyncio.gather(
            writer.drain("gpu-1", OURS), writer.drain("gpu-2", OURS), return_exceptions=True
        )

    assert not isinstance(good, BaseException)
    assert isinstance(bad, Refused)


async def test_a_lost_answer_is_told_to_each_that_waited() -> None:
    """It may have been done: whoever asked must read before asking again."""
    slurm = Recorder(a_slurm_node("IDLE", name="gpu-1"), lost=True)
    async with writing(slurm) as writer:
        with pytest.raises(Unreachable):
            await writer.drain("gpu-1", OURS)

    assert len(slurm.posts) == 1


async def test_every_second_request_may_fail() -> None:
    """A good slurmrestd and a broken one take turns: the reading and the refused write are both said once more."""
    slurm = Recorder(a_slurm_node("IDLE", name="gpu-1"), turns=True)
    async with writing(slurm) as writer:
        answer = await writer.drain("gpu-1", OURS)

    assert answer.wrote
    assert slurm.posts == [(OURS, ("gpu-1",))]


async def test_whoever_waits_when_the_writer_ends_is_told() -> None:
    """Nobody waits for ever: not the one that was being gathered, nor one that comes later."""
    writer = SlurmWriter(Recorder(a_slurm_node("IDLE", name="gpu-1")))  # type: ignore[arg-type]
    async with asyncio.TaskGroup() as group:
        running = group.create_task(writer.run())
        asked = group.create_task(outcome(writer))
        await asyncio.sleep(0)
        running.cancel()

    assert await asked == "told"
    assert await outcome(writer) == "told"


async def outcome(writer: SlurmWriter) -> str:
    """What came of a drain."""
    try:
        async with asyncio.timeout(30):
            await writer.drain("gpu-1", OURS)
    except Retry:
        return "told"
    return "done"
