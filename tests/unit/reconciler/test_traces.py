"""Which flow a write belongs to, and how writes that are sent together stay parts of their flows."""

import asyncio

import pytest

from lockstep.base import clock
from lockstep.contracts.facts import Fact, NodeCondition
from lockstep.contracts.hold import Condition
from lockstep.contracts.subjects import fact_subject
from lockstep.fleet.flows import Flows
from lockstep.reconciler.hands import Hands
from lockstep.reconciler.model import DrainNode, ShowService, ShowState, UndrainNode, Unprotect, WorkerAction
from lockstep.reconciler.traces import on_node, on_worker
from lockstep.reconciler.writer import Answer, SlurmWriter
from lockstep.runtime.tracing import current_traceparent, span
from lockstep.slurm.port import Outcome, SlurmApi
from tests.builders import NOW, OURS, POLICY, a_desired, a_node, a_pod, a_slurm_node, a_view, a_worker
from tests.spans import header_of, is_child, kept_spans, links_of

WANTED, READ, POD, BEGAN = (f"00-{number:032x}-{number:016x}-01" for number in (1, 2, 3, 4))
DRAIN = DrainNode(words=OURS, because="a hold")
SHOW = ShowState(namespace="slurm", pod="gpu-7", uid="pod-1", conditions=[], because="IDLE+DRAIN")
LET_GO = Unprotect(namespace="slurm", pod="gpu-7", uid="pod-1", because="drained")


def flows_of(*each: tuple[Fact, str]) -> Flows:
    """The traces of these facts, in this order."""
    flows = Flows()
    for sequence, (fact, traceparent) in enumerate(each):
        flows.note(fact, traceparent, sequence)
    return flows


@pytest.mark.parametrize(
    ("action", "parent", "links"),
    [
        pytest.param(DRAIN, WANTED, [BEGAN, POD, READ], id="a drain follows what is wanted"),
        pytest.param(LET_GO, WANTED, [BEGAN, POD, READ], id="so does letting go"),
        pytest.param(SHOW, READ, [BEGAN, POD, WANTED], id="what a pod shows follows Slurm"),
    ],
)
def test_a_write_follows_its_cause_and_links_to_what_else_is_going_on(
    action: WorkerAction, parent: str, links: list[str]
) -> None:
    """Not simply the newest fact: a pod may have changed for another reason."""
    now = clock.now()
    wanted, read = a_desired(a_view(), traceparent=BEGAN, read_at=now), a_slurm_node("IDLE+DRAIN", read_at=now)
    worker = a_worker(slurm=read, desired=wanted, pod=(pod := a_pod(read_at=now)))
    step = on_worker(worker, action, flows_of((wanted, WANTED), (read, READ), (pod, POD)))
    assert (step.parent, step.links) == (parent, links)
    assert step.subject == fact_subject(read if action is SHOW else wanted)
    assert step.attributes["lockstep.because"] == action.because
    assert step.attributes["k8s.pod.uid"] == "pod-1"


def test_a_write_against_a_resume_follows_the_reading_that_showed_it() -> None:
    """What is wanted is wanted since yesterday."""
    wanted, read = a_desired(a_view(), traceparent=BEGAN), a_slurm_node(read_at=clock.now())
    flows = flows_of((wanted, WANTED), (read, READ))
    step = on_worker(a_worker(slurm=read, desired=wanted), DRAIN, flows)
    assert (step.parent, step.links) == (READ, [BEGAN])


def test_a_write_on_a_kubernetes_node_follows_what_is_wanted_of_its_workers() -> None:
    """It is one of theirs."""
    wanted = a_desired(a_view(), traceparent=BEGAN, read_at=clock.now())
    shown = NodeCondition(type="x", status="True")
    condition = Condition(type="x", status="False")
    action = ShowService(node="host-7", uid="node-1", shown=shown, condition=condition, because=OURS)
    step = on_node("host-7", [a_worker(desired=wanted)], action, flows_of((wanted, WANTED), (a_node(), POD)))
    assert (step.name, step.parent, step.links) == ("show-service", WANTED, [BEGAN])
    assert step.attributes == {"k8s.node.name": "host-7", "lockstep.because": OURS}


class Slurm:
    """Takes every write, and says in which trace it came."""

    def __init__(self) -> None:
        self.traces: list[str] = []

    async def node(self, name: str) -> object:
        """Idle."""
        return a_slurm_node(name=name)

    async def drain(self, names: list[str], reason: str) -> Outcome:
        """Done."""
        self.traces.append(current_traceparent())
        return Outcome(done=names)


async def written(slurm: Slurm, *names: str) -> None:
    """Drains them together, each in a flow of its own."""
    writer = SlurmWriter(slurm)  # type: ignore[arg-type]

    async def one(name: str) -> None:
        with span(name):
            await writer.drain(name, OURS)

    async with asyncio.TaskGroup() as group:
        running = group.create_task(writer.run())
        async with asyncio.TaskGroup() as wishes:
            for name in names:
                wishes.create_task(one(name))
        running.cancel()


async def test_a_write_of_one_flow_is_a_part_of_it() -> None:
    """Though another task sends it."""
    slurm = Slurm()
    with kept_spans() as spans:
        await written(slurm, "gpu-1")
    assert is_child(spans["write to Slurm"], spans["gpu-1"])
    assert slurm.traces == [header_of(spans["write to Slurm"])]
    assert links_of(spans["gpu-1"]) == []


async def test_a_write_of_several_flows_is_a_part_of_one_and_linked_with_the_others() -> None:
    """From both sides, so that one finds the request from each trace."""
    with kept_spans() as spans:
        await written(Slurm(), "gpu-1", "gpu-2", "gpu-3")
    batch = spans["write to Slurm"]
    assert is_child(batch, spans["gpu-1"])
    assert batch.attributes == {"lockstep.count": 3}
    assert links_of(batch) == [spans[name].context.span_id for name in ("gpu-2", "gpu-3")]
    assert [links_of(spans[name]) for name in ("gpu-1", "gpu-2", "gpu-3")] == [
        [],
        [batch.context.span_id],
        [batch.context.span_id],
    ]


class Writer:
    """Answers at once."""

    async def drain(self, name: str, words: str) -> Answer:
        """Done."""
        return Answer(NOW, wrote=True)

    async def undrain(self, name: str) -> Answer:
        """Done."""
        return Answer(NOW, wrote=True)


@pytest.mark.parametrize("action", [DRAIN, UndrainNode(because="no hold stands")], ids=["drain", "undrain"])
async def test_a_write_leaves_word_of_its_trace_for_whoever_sees_it(action: WorkerAction) -> None:
    """So that the reading that shows it belongs to the same flow."""
    slurm: dict[str, SlurmApi] = {}
    hands = Hands(None, slurm, {"main": Writer()}, POLICY, epoch=7)  # type: ignore[arg-type,dict-item]
    with kept_spans() as spans, span("write"):
        done = await hands.carry_out(a_worker(desired=a_desired(a_view())), action)
    assert done.wrote is not None
    assert done.wrote.traceparent == header_of(spans["write"])
