"""Counts the reconciler's writes by what came of them, and times those to Slurm until a reading shows them."""

from collections.abc import Awaitable, Callable
from typing import TypeVar, get_args

from lockstep.base import clock
from lockstep.base.errors import Retry
from lockstep.contracts.facts import Fact, SlurmNode, worker_key
from lockstep.fleet.facts import FactTable
from lockstep.kube import errors as kube
from lockstep.reconciler.hands import Done
from lockstep.reconciler.model import Action, DrainNode, NodeAction, UndrainNode, WorkerAction
from lockstep.runtime.metrics import WRITES, observe_leg
from lockstep.slurm import errors as slurm
from lockstep.slurm import reasons, states

ANSWERS = ("ok", "conflict", "busy", "refused", "unanswered")

T = TypeVar("T")


def _name(kind: type[Action]) -> str:
    return str(kind.__struct_config__.tag)


for _action in (*get_args(WorkerAction), *get_args(NodeAction)):
    for _said in ANSWERS:
        WRITES.labels(_name(_action), _said)


async def counted(action: WorkerAction | NodeAction, work: Awaitable[T]) -> T:
    """The result of a write, which is counted, also when it fails.

    One to Slurm is a leg as well, from our wish to Slurm's answer.
    """
    write, began = _name(type(action)), clock.monotonic()
    try:
        done = await work
    except (kube.KubeError, slurm.SlurmError, Retry) as error:
        WRITES.labels(write, _answer(error)).inc()
        raise
    WRITES.labels(write, "refused" if isinstance(done, Done) and done.refused else "ok").inc()
    if isinstance(action, DrainNode | UndrainNode):
        observe_leg("write-to-answer", clock.monotonic() - began)
    return done


def seen(table: FactTable) -> Callable[[Fact | None, Fact], None]:
    """To be called with each changed fact: times from Slurm's answer to a write of ours until a reading shows it."""

    def look(before: Fact | None, after: Fact) -> None:
        if not isinstance(before, SlurmNode) or not isinstance(after, SlurmNode):
            return
        wrote, drain = table.wrote.get(worker_key(after)), states.is_drain(after.base, after.flags)
        if wrote is None or drain is states.is_drain(before.base, before.flags) or drain is not bool(wrote.words):
            return
        at = wrote.drained_at if drain else wrote.undrained_at
        if at is not None and (not drain or reasons.same(after.reason, wrote.words)):
            observe_leg("write-to-seen", (clock.now() - at).total_seconds(), traceparent=wrote.traceparent)

    return look


def _answer(error: Exception) -> str:
    match error:
        case kube.Unreachable() | slurm.Unreachable():
            return "unanswered"
        case kube.Busy() | slurm.Busy():
            return "busy"
        case kube.KubeError() | slurm.SlurmError() if not isinstance(error, kube.Conflict | kube.NotFound):
            return "refused"
        case _:
            return "conflict"
