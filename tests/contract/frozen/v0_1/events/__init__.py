"""What happened, past tense, kept as history. The tag is the event's type and most of its subject."""

from typing import get_args

from tests.contract.frozen.v0_1.events.base import ClusterEvent, Event, NodeEvent, SourceEvent, WorkerEvent
from tests.contract.frozen.v0_1.events.holds import (
    DrainActed,
    DrainCancelled,
    DrainDone,
    DrainEnded,
    DrainEvent,
    DrainOverdue,
    DrainStarted,
    DrainWaiting,
    ForeignDrainRespected,
    HoldExpired,
    HoldOverridden,
    HoldPlaced,
    HoldReasserted,
    HoldRefused,
    HoldReleased,
)
from tests.contract.frozen.v0_1.events.kube import (
    NodeConditionChanged,
    NodeCordoned,
    NodeGone,
    NodeRebooted,
    NodeTaintsChanged,
    NodeUncordoned,
    PodBound,
    PodCreated,
    PodEvent,
    PodFinished,
    PodGone,
    PodReady,
    PodTerminating,
    PodUnready,
)
from tests.contract.frozen.v0_1.events.site import (
    GapFound,
    RequestAccepted,
    RequestDone,
    RequestEvent,
    RequestProgressed,
    RequestRefused,
    SourceBack,
    SourceLost,
    StreamFilling,
)
from tests.contract.frozen.v0_1.events.slurm import (
    JobEnded,
    JobEvent,
    JobRequeued,
    JobStarted,
    ReservationEntered,
    ReservationLeft,
    SlurmNodeRegistered,
    SlurmNodeVanished,
    SlurmPhaseChanged,
    SlurmReasonChanged,
    SlurmStateChanged,
)
from tests.contract.frozen.v0_1.events.worker import (
    DrainLifted,
    DrainSet,
    DriftFound,
    ProtectionOff,
    ProtectionOn,
    WriteRefused,
)

AnyEvent = (
    PodCreated
    | PodBound
    | PodReady
    | PodUnready
    | PodTerminating
    | PodFinished
    | PodGone
    | NodeCordoned
    | NodeUncordoned
    | NodeConditionChanged
    | NodeTaintsChanged
    | NodeRebooted
    | NodeGone
    | SlurmNodeRegistered
    | SlurmNodeVanished
    | SlurmStateChanged
    | SlurmPhaseChanged
    | SlurmReasonChanged
    | ReservationEntered
    | ReservationLeft
    | JobStarted
    | JobEnded
    | JobRequeued
    | HoldPlaced
    | HoldReleased
    | HoldExpired
    | HoldReasserted
    | HoldOverridden
    | HoldRefused
    | ForeignDrainRespected
    | DrainStarted
    | DrainWaiting
    | DrainOverdue
    | DrainDone
    | DrainCancelled
    | DrainEnded
    | DrainActed
    | DrainSet
    | DrainLifted
    | ProtectionOn
    | ProtectionOff
    | WriteRefused
    | DriftFound
    | SourceLost
    | SourceBack
    | GapFound
    | StreamFilling
    | RequestAccepted
    | RequestRefused
    | RequestProgressed
    | RequestDone
)

EVENT_TYPES: tuple[type[Event], ...] = get_args(AnyEvent)

__all__ = [
    "EVENT_TYPES",
    "AnyEvent",
    "ClusterEvent",
    "DrainActed",
    "DrainCancelled",
    "DrainDone",
    "DrainEnded",
    "DrainEvent",
    "DrainLifted",
    "DrainOverdue",
    "DrainSet",
    "DrainStarted",
    "DrainWaiting",
    "DriftFound",
    "Event",
    "ForeignDrainRespected",
    "GapFound",
    "HoldExpired",
    "HoldOverridden",
    "HoldPlaced",
    "HoldReasserted",
    "HoldRefused",
    "HoldReleased",
    "JobEnded",
    "JobEvent",
    "JobRequeued",
    "JobStarted",
    "NodeConditionChanged",
    "NodeCordoned",
    "NodeEvent",
    "NodeGone",
    "NodeRebooted",
    "NodeTaintsChanged",
    "NodeUncordoned",
    "PodBound",
    "PodCreated",
    "PodEvent",
    "PodFinished",
    "PodGone",
    "PodReady",
    "PodTerminating",
    "PodUnready",
    "ProtectionOff",
    "ProtectionOn",
    "RequestAccepted",
    "RequestDone",
    "RequestEvent",
    "RequestProgressed",
    "RequestRefused",
    "ReservationEntered",
    "ReservationLeft",
    "SlurmNodeRegistered",
    "SlurmNodeVanished",
    "SlurmPhaseChanged",
    "SlurmReasonChanged",
    "SlurmStateChanged",
    "SourceBack",
    "SourceEvent",
    "SourceLost",
    "StreamFilling",
    "WorkerEvent",
    "WriteRefused",
]
