"""What happened to holds, and how far drains are."""

from lockstep.contracts.common import Aware
from lockstep.contracts.events.base import ClusterEvent, WorkerEvent
from lockstep.contracts.facts import HoldView, Progress
from lockstep.contracts.hold import JobBrief


class HoldPlaced(WorkerEvent, frozen=True, kw_only=True, omit_defaults=True, tag="hold.placed.v1"):
    """A new reason to keep a worker out of service."""

    hold: HoldView
    """What it is, whose, and why."""


class HoldReleased(WorkerEvent, frozen=True, kw_only=True, omit_defaults=True, tag="hold.released.v1"):
    """A hold was ended where it lives. `standing` are the ids that remain."""

    hold: HoldView
    standing: list[str] = []
    """The ids of those that remain; empty: it goes back into service."""


class HoldExpired(WorkerEvent, frozen=True, kw_only=True, omit_defaults=True, tag="hold.expired.v1"):
    """A hold ended because its time was over. `standing` are the ids that remain."""

    hold: HoldView
    standing: list[str] = []
    """The ids of those that remain; empty: it goes back into service."""


class HoldReasserted(WorkerEvent, frozen=True, kw_only=True, omit_defaults=True, tag="hold.reasserted.v1"):
    """Somebody resumed in Slurm what a hold keeps out; it was drained again."""

    words: str
    """The reason in Slurm."""
    holds: list[str]
    """The ids of those that stand."""


class HoldOverridden(WorkerEvent, frozen=True, kw_only=True, omit_defaults=True, tag="hold.overridden.v1"):
    """Somebody ended another's hold on purpose, with the rights of `by`."""

    hold: HoldView
    by: str
    """Who did it."""
    why: str = ""
    """In their words."""


class HoldRefused(ClusterEvent, frozen=True, kw_only=True, omit_defaults=True, tag="hold.refused.v1"):
    """A Hold resource cannot be used. `fault` names the field, the value and what is allowed."""

    name: str
    """The Hold's name."""
    fault: str

    @property
    def identity(self) -> str:
        """The Hold's name."""
        return self.name


class ForeignDrainRespected(WorkerEvent, frozen=True, kw_only=True, omit_defaults=True, tag="hold.respected.v1"):
    """Somebody else drained the worker in Slurm; Lockstep leaves it as it is."""

    hold: HoldView


class DrainEvent(WorkerEvent, frozen=True, kw_only=True, omit_defaults=True):
    """Common to all events about how far a drain is."""

    before: Progress
    """How far it was."""
    after: Progress
    """How far it is."""
    waiting_for: list[JobBrief] = []
    """At most 20."""
    deadline: Aware | None = None
    """The earliest of the holds."""
    why_not: str = ""
    """Why the worker is not drained yet."""


class DrainStarted(DrainEvent, frozen=True, kw_only=True, omit_defaults=True, tag="drain.started.v1"):
    """The first hold of a worker was placed; Slurm is asked to drain it."""


class DrainWaiting(DrainEvent, frozen=True, kw_only=True, omit_defaults=True, tag="drain.waiting.v1"):
    """A drain waits: for Slurm's answer, for jobs (which ones has changed), or for a reading that proves it."""


class DrainOverdue(DrainEvent, frozen=True, kw_only=True, omit_defaults=True, tag="drain.overdue.v1"):
    """A drain's deadline has passed, and the worker is not drained."""


class DrainDone(DrainEvent, frozen=True, kw_only=True, omit_defaults=True, tag="drain.drained.v1"):
    """The worker is proven drained: nothing runs on it and Slurm starts nothing there. It may be worked on."""


class DrainCancelled(DrainEvent, frozen=True, kw_only=True, omit_defaults=True, tag="drain.cancelled.v1"):
    """The last hold ended before the worker was drained."""


class DrainEnded(DrainEvent, frozen=True, kw_only=True, omit_defaults=True, tag="drain.ended.v1"):
    """The last hold ended after the worker was drained; it goes back into service."""


class DrainActed(WorkerEvent, frozen=True, kw_only=True, omit_defaults=True, tag="drain.acted.v1"):
    """A drain's policy ended jobs: asked Slurm to requeue or cancel them."""

    act: str
    """`Requeue` or `Cancel`."""
    jobs: list[int]
    """Their numbers."""
