"""What the reconciler may do to a worker or to a Kubernetes node."""

from datetime import datetime

import msgspec

from lockstep.contracts.facts import NodeCondition
from lockstep.contracts.hold import Condition, DrainPolicy


class Action(msgspec.Struct, frozen=True, kw_only=True, tag_field="do"):
    """One write. `because` is why, in the words that logs and events carry."""

    because: str


class Protect(Action, frozen=True, kw_only=True, tag="protect"):
    """Label the pod so that its PodDisruptionBudget refuses eviction."""

    namespace: str
    pod: str
    uid: str


class Unprotect(Action, frozen=True, kw_only=True, tag="unprotect"):
    """Let the pod be evicted."""

    namespace: str
    pod: str
    uid: str


class DrainNode(Action, frozen=True, kw_only=True, tag="drain-node"):
    """Set DRAIN with these words, or write the words anew."""

    words: str
    reassert: bool = False
    """Somebody resumed what a hold keeps out."""


class UndrainNode(Action, frozen=True, kw_only=True, tag="undrain-node"):
    """Lift our own DRAIN."""


class EndJob(Action, frozen=True, kw_only=True, tag="end-job"):
    """Requeue or cancel one run of a job."""

    job_id: int
    act: DrainPolicy
    start: datetime | None = None


class ShowState(Action, frozen=True, kw_only=True, tag="show-state"):
    """Make the pod's conditions `SlurmNodeState*` equal to these."""

    namespace: str
    pod: str
    uid: str
    conditions: list[Condition]


WorkerAction = Protect | Unprotect | DrainNode | UndrainNode | EndJob | ShowState


class ShowService(Action, frozen=True, kw_only=True, tag="show-service"):
    """Set the node's condition `lockstep.sh/InService`."""

    node: str
    uid: str
    shown: NodeCondition | None
    """What it shows now."""
    condition: Condition


class MirrorCordon(Action, frozen=True, kw_only=True, tag="mirror-cordon"):
    """Cordon the node as the mirror of a hold, marked as ours."""

    node: str


class LiftMirror(Action, frozen=True, kw_only=True, tag="lift-mirror"):
    """Take back our own mirrored cordon, or only its mark where somebody uncordoned already."""

    node: str
    uid: str
    cordoned: bool


NodeAction = ShowService | MirrorCordon | LiftMirror
