"""What a worker looks like after one write, and where single writes lead when the process dies after each."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import product
from typing import Any, NamedTuple, assert_never

import msgspec

from lockstep.contracts.facts import KubeNode, NodeCondition, Wrote
from lockstep.contracts.policy import Policy
from lockstep.drain.decide import decide as decide_holds
from lockstep.drain.model import Decision
from lockstep.fleet.worker import Worker
from lockstep.reconciler.decide import decide, decide_node
from lockstep.reconciler.model import (
    DrainNode,
    EndJob,
    LiftMirror,
    MirrorCordon,
    NodeAction,
    Protect,
    ShowService,
    ShowState,
    UndrainNode,
    Unprotect,
    WorkerAction,
)
from tests.builders import (
    CLUSTER,
    NAME,
    NOW,
    OURS,
    a_desired,
    a_hold,
    a_node,
    a_pod,
    a_slurm_node,
    a_view,
    a_worker,
    ago,
    wrote_drain,
    wrote_undrain,
)

Step = Decision | WorkerAction | NodeAction
SECOND = timedelta(seconds=1)

SLURM = {
    "unknown to Slurm": None,
    "IDLE": ("IDLE", ""),
    "MIXED": ("MIXED", ""),
    "IDLE, our words left over": ("IDLE", OURS),
    "IDLE+ZAP": ("IDLE+ZAP", ""),
    "DOWN by slurmctld": ("DOWN", "Not responding"),
    "DOWN by a person": ("DOWN", "smoke"),
    "FAIL": ("IDLE+FAIL", "smoke"),
    "FAIL over our DRAIN": ("IDLE+FAIL", OURS),
    "drained by us": ("IDLE+DRAIN", OURS),
    "draining by us": ("MIXED+DRAIN", OURS),
    "drained by us in other words": ("IDLE+DRAIN", "lockstep: x: y"),
    "drained by us, DOWN": ("DOWN+DRAIN", OURS),
    "drained by us, silent": ("IDLE+DRAIN+NOT_RESPONDING", OURS),
    "drained by somebody": ("IDLE+DRAIN", "bad DIMM"),
    "draining by nobody known": ("MIXED+DRAIN", ""),
}
PODS = {
    "no pod": None,
    "protected": {},
    "unprotected": {"protected": False},
    "not ready": {"ready": False},
    "terminating": {"protected": False, "deleting_since": ago(5)},
}
NODES: dict[str, dict[str, Any] | None] = {
    "no node": None,
    "schedulable": {},
    "cordoned": {"unschedulable": True, "cordoned_by": "kubectl"},
    "mirrored": {"unschedulable": True, "cordoned_by": "lockstep", "mirror_mark": True},
    "mirror lifted by hand": {"mirror_mark": True},
    "mirror lifted, then cordoned": {"unschedulable": True, "cordoned_by": "kubectl", "mirror_mark": True},
}
HOLDS = {"no Hold": [], "a Hold": [a_hold()]}
DESIRED = {"undecided": None, "wanted in": a_desired(), "wanted out": a_desired(a_view())}
WROTE: dict[str, Wrote | None] = {"nothing written": None, "drained": wrote_drain(), "undrained": wrote_undrain()}


def every_view(slurm: str) -> Iterator[tuple[str, Worker]]:
    """Every mixture of the two systems and of what we remember, for one state of the Slurm node."""
    state = SLURM[slurm]
    for pod, node, holds, desired, wrote in product(PODS, NODES, HOLDS, DESIRED, WROTE):
        podded, noded = PODS[pod], NODES[node]
        yield (
            f"{slurm}, {pod}, {node}, {holds}, {desired}, {wrote}",
            a_worker(
                slurm=a_slurm_node(state[0], reason=state[1]) if state else None,
                pod=None if podded is None else a_pod(**podded),
                node=None if noded is None else a_node(**noded),
                holds=HOLDS[holds],
                desired=DESIRED[desired],
                wrote=WROTE[wrote],
            ),
        )


def next_step(worker: Worker, policy: Policy, now: datetime, *, drain_lags: bool = False) -> Step | None:
    """The first thing that any of the two services does; the drain service comes first, or last if it lags."""
    decision = decide_holds(worker, policy, now)
    actions: list[WorkerAction | NodeAction] = [*decide(worker, policy, now)]
    if worker.node is not None:
        actions += decide_node(worker.node, [worker], policy, now)
    if decision is not None and not (drain_lags and actions):
        return decision
    return actions[0] if actions else None


def read(worker: Worker, now: datetime) -> Worker:
    """Both systems read in full."""
    return msgspec.structs.replace(worker, slurm_as_of=now, jobs_as_of=now, kube_as_of=now)


def imagine(worker: Worker, step: Step, now: datetime) -> Worker:
    """The worker after one step, as the next read shows it."""
    match step:
        case Decision(desired=desired):
            return msgspec.structs.replace(worker, desired=None if desired.gone else desired)
        case DrainNode(words=words):
            return _written(worker, _drained_node(worker, words, now), _wrote(worker, step, now))
        case UndrainNode():
            slurm = worker.slurm
            flags = [flag for flag in slurm.flags if flag != "DRAIN"] if slurm else []
            return _written(worker, {"flags": flags, "reason": "", "read_at": now}, _wrote(worker, step, now))
        case Protect() | Unprotect():
            return _on_pod(worker, step.uid, protected=isinstance(step, Protect))
        case ShowState(uid=uid, conditions=wanted):
            shown = [NodeCondition(type=c.type, status=c.status, message=c.message) for c in wanted]
            return _on_pod(worker, uid, conditions=shown)
        case ShowService(condition=c):
            shown_on_node = NodeCondition(type=c.type, status=c.status, reason=c.reason, message=c.message)
            return _on_node(worker, in_service=shown_on_node)
        case MirrorCordon():
            return _on_node(worker, unschedulable=True, cordoned_by="lockstep", mirror_mark=True)
        case LiftMirror(cordoned=True):
            return _on_node(worker, unschedulable=False, cordoned_by="", mirror_mark=False)
        case LiftMirror():
            return _on_node(worker, mirror_mark=False)
        case EndJob(job_id=job_id):
            return msgspec.structs.replace(worker, jobs=[job for job in worker.jobs if job.job_id != job_id])
        case _:
            assert_never(step)


class Taken(NamedTuple):
    """One step, from what was seen to what came of it."""

    before: Worker
    step: Step
    after: Worker
    at: datetime


def path_of(
    worker: Worker, policy: Policy, *, drain_lags: bool = False, limit: int = 12
) -> tuple[list[Taken], Worker, datetime]:
    """Carries out only the first step each time, as if the process had died there, until nothing is left to do."""
    taken: list[Taken] = []
    now, quiet = NOW, 0
    while quiet < 3:
        worker = read(worker, now)
        step = next_step(worker, policy, now, drain_lags=drain_lags)
        if step is None:
            quiet += 1
            now += 31 * SECOND if quiet == 2 else SECOND
            continue
        quiet = 0
        after = imagine(worker, step, now)
        taken.append(Taken(worker, step, after, now))
        assert len(taken) <= limit, ("does not settle", [type(t.step).__name__ for t in taken])
        worker, now = after, now + SECOND
    return taken, worker, now


def _wrote(worker: Worker, step: DrainNode | UndrainNode, now: datetime) -> Wrote:
    """What is remembered of an answered write, as the reconciler does."""
    if isinstance(step, UndrainNode):
        return Wrote(cluster=CLUSTER, name=NAME, undrained_at=now)
    episode = worker.desired.episode if worker.desired else 0
    before = worker.wrote.reasserted_at if worker.wrote and worker.wrote.episode == episode else None
    return Wrote(
        cluster=CLUSTER,
        name=NAME,
        words=step.words,
        drained_at=now,
        episode=worker.desired.episode if worker.desired else 0,
        reasserted_at=now if step.reassert else before,
    )


def _drained_node(worker: Worker, words: str, now: datetime) -> dict[str, Any]:
    slurm = worker.slurm
    flags = sorted({*(slurm.flags if slurm else []), "DRAIN"} - {"FAIL"})
    return {"flags": flags, "reason": words, "read_at": now}


def _written(worker: Worker, fields: dict[str, Any], wrote: Wrote) -> Worker:
    assert worker.slurm is not None
    return msgspec.structs.replace(worker, slurm=msgspec.structs.replace(worker.slurm, **fields), wrote=wrote)


def _on_pod(worker: Worker, uid: str, **fields: Any) -> Worker:
    assert worker.pod is not None
    assert worker.pod.uid == uid
    return msgspec.structs.replace(worker, pod=msgspec.structs.replace(worker.pod, **fields))


def _on_node(worker: Worker, **fields: Any) -> Worker:
    node: KubeNode | None = worker.node
    assert node is not None
    return msgspec.structs.replace(worker, node=msgspec.structs.replace(node, **fields))
