"""What happened, past tense, kept as history. The tag is the event's type and most of its subject."""

from typing import get_args

import msgspec

from lockstep.contracts.common import Aware, WorkerRef
from lockstep.contracts.facts import SITE, HoldView, Progress
from lockstep.contracts.hold import JobBrief


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """Common to all events."""

    id: str
    """Made from the fact, so that the same happening has the same id."""
    at: Aware
    cause_id: str = ""
    """The event or request because of which this came about."""

    @property
    def scope(self) -> str:
        """The cluster, or `_site`."""
        return SITE

    @property
    def identity(self) -> str:
        """What the event is about, within its scope."""
        raise NotImplementedError


class WorkerEvent(Event, frozen=True, kw_only=True, omit_defaults=True):
    """Common to all events about one worker."""

    worker: WorkerRef

    @property
    def scope(self) -> str:
        """The worker's cluster."""
        return self.worker.cluster

    @property
    def identity(self) -> str:
        """The Slurm node's name."""
        return self.worker.name


class NodeEvent(Event, frozen=True, kw_only=True, omit_defaults=True):
    """Common to all events about one Kubernetes node."""

    node: str

    @property
    def identity(self) -> str:
        """The Kubernetes node's name."""
        return self.node


class SourceEvent(Event, frozen=True, kw_only=True, omit_defaults=True):
    """Common to all events about one source; `of` is the cluster, or `_site`."""

    source: str
    of: str

    @property
    def scope(self) -> str:
        """The cluster, or `_site`."""
        return self.of

    @property
    def identity(self) -> str:
        """The source."""
        return self.source


class PodChanged(WorkerEvent, frozen=True, kw_only=True, omit_defaults=True, tag="pod.changed.v1"):
    """A worker's pod was bound, became ready or not, is terminating, or is gone."""

    before: str
    after: str
    uid: str = ""


class NodeCordoned(NodeEvent, frozen=True, kw_only=True, omit_defaults=True, tag="node.cordoned.v1"):
    """A Kubernetes node was cordoned by somebody else than Lockstep."""

    by: str = ""
    reason: str = ""


class NodeUncordoned(NodeEvent, frozen=True, kw_only=True, omit_defaults=True, tag="node.uncordoned.v1"):
    """A Kubernetes node was uncordoned by somebody else than Lockstep."""


class NodeRebooted(NodeEvent, frozen=True, kw_only=True, omit_defaults=True, tag="node.rebooted.v1"):
    """A Kubernetes node came up with another boot id."""

    before: str
    after: str


class SlurmStateChanged(WorkerEvent, frozen=True, kw_only=True, omit_defaults=True, tag="slurm-node.state-changed.v1"):
    """A Slurm node's base state, flags or reason changed. States are `IDLE+DRAIN`; empty: it was not there."""

    before: str
    after: str
    reason_before: str = ""
    reason_after: str = ""
    by: str = ""
    unknown_flags: list[str] = []


class SlurmNodeRegistered(WorkerEvent, frozen=True, kw_only=True, omit_defaults=True, tag="slurm-node.registered.v1"):
    """A slurmd started anew and registered."""

    slurmd_start: Aware


class SlurmNodeVanished(WorkerEvent, frozen=True, kw_only=True, omit_defaults=True, tag="slurm-node.vanished.v1"):
    """Slurm no longer knows the node."""

    before: str


class HoldPlaced(WorkerEvent, frozen=True, kw_only=True, omit_defaults=True, tag="hold.placed.v1"):
    """A new reason to keep a worker out of service."""

    hold: HoldView


class HoldReleased(WorkerEvent, frozen=True, kw_only=True, omit_defaults=True, tag="hold.released.v1"):
    """A hold ended: its owner ended it, or it expired. `standing` are the ids that remain."""

    hold: HoldView
    expired: bool = False
    standing: list[str] = []


class HoldReasserted(WorkerEvent, frozen=True, kw_only=True, omit_defaults=True, tag="hold.reasserted.v1"):
    """Somebody resumed in Slurm what a hold keeps out; it was drained again."""

    words: str
    holds: list[str]


class HoldOverridden(WorkerEvent, frozen=True, kw_only=True, omit_defaults=True, tag="hold.overridden.v1"):
    """Somebody ended another's hold on purpose, with the rights of `by`."""

    hold: HoldView
    by: str
    why: str = ""


class HoldRefused(Event, frozen=True, kw_only=True, omit_defaults=True, tag="hold.refused.v1"):
    """A Hold resource cannot be used. `fault` names the field, the value and what is allowed."""

    cluster: str
    name: str
    fault: str

    @property
    def scope(self) -> str:
        """The cluster."""
        return self.cluster

    @property
    def identity(self) -> str:
        """The Hold's name."""
        return self.name


class ForeignDrainRespected(WorkerEvent, frozen=True, kw_only=True, omit_defaults=True, tag="hold.respected.v1"):
    """Somebody else drained the worker in Slurm; Lockstep leaves it as it is."""

    hold: HoldView


class DrainProgressed(WorkerEvent, frozen=True, kw_only=True, omit_defaults=True, tag="drain.progressed.v1"):
    """A drain started, waits for jobs, is overdue, is done, or was cancelled (`after` is none)."""

    before: Progress
    after: Progress
    waiting_for: list[JobBrief] = []
    deadline: Aware | None = None
    why_not: str = ""


class DrainActed(WorkerEvent, frozen=True, kw_only=True, omit_defaults=True, tag="drain.acted.v1"):
    """A drain's policy ended jobs: asked Slurm to requeue or cancel them."""

    act: str
    jobs: list[int]


class WorkerDrained(WorkerEvent, frozen=True, kw_only=True, omit_defaults=True, tag="worker.drained.v1"):
    """Slurm acknowledged our DRAIN of the worker; its jobs may still run, see `drain.progressed`."""

    words: str


class WorkerUndrained(WorkerEvent, frozen=True, kw_only=True, omit_defaults=True, tag="worker.undrained.v1"):
    """Slurm acknowledged our UNDRAIN of the worker."""

    words: str = ""


class ProtectionChanged(WorkerEvent, frozen=True, kw_only=True, omit_defaults=True, tag="worker.protection-changed.v1"):
    """The worker's pod is now protected from eviction, or no longer, and why."""

    protected: bool
    why: str = ""


class WriteRefused(WorkerEvent, frozen=True, kw_only=True, omit_defaults=True, tag="worker.write-refused.v1"):
    """Slurm or Kubernetes refused a write on the worker; it is tried again."""

    write: str
    error: str


class SourceLost(SourceEvent, frozen=True, kw_only=True, omit_defaults=True, tag="source.lost.v1"):
    """A source cannot be read; nothing is done that depends on it."""

    error: str


class SourceBack(SourceEvent, frozen=True, kw_only=True, omit_defaults=True, tag="source.back.v1"):
    """A source answers again, and everything of it was read anew."""

    lost_for_s: float = 0.0


class GapFound(Event, frozen=True, kw_only=True, omit_defaults=True, tag="fleet.gap-found.v1"):
    """Facts or events were lost between two parts; everything is read anew."""

    where: str
    detail: str = ""

    @property
    def identity(self) -> str:
        """Where the gap is."""
        return self.where


class DriftFound(WorkerEvent, frozen=True, kw_only=True, omit_defaults=True, tag="worker.drift-found.v1"):
    """The two systems disagree in a way that should not last; says which rule is broken."""

    rule: str
    detail: str = ""


AnyEvent = (
    PodChanged
    | NodeCordoned
    | NodeUncordoned
    | NodeRebooted
    | SlurmStateChanged
    | SlurmNodeRegistered
    | SlurmNodeVanished
    | HoldPlaced
    | HoldReleased
    | HoldReasserted
    | HoldOverridden
    | HoldRefused
    | ForeignDrainRespected
    | DrainProgressed
    | DrainActed
    | WorkerDrained
    | WorkerUndrained
    | ProtectionChanged
    | WriteRefused
    | SourceLost
    | SourceBack
    | GapFound
    | DriftFound
)

EVENT_TYPES: tuple[type[Event], ...] = get_args(AnyEvent)
