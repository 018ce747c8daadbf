"""What a site wants Lockstep to do, and how careful it is to be. Data only; the decisions read it."""

from enum import StrEnum
from typing import Annotated, Literal, NamedTuple

import msgspec


class Protect(StrEnum):
    """When a worker's pod may not be evicted (a label, and a PodDisruptionBudget that selects it)."""

    UNDRAINED = "undrained"
    """Until Slurm has acknowledged a drain and the worker is proven drained.

    `kubectl drain` waits for jobs. A cluster autoscaler (or Karpenter) cannot remove an idle node by itself: its
    eviction is refused until somebody holds the worker.
    """
    BUSY = "busy"
    """While jobs run. An autoscaler may remove idle nodes; a job that starts in that very moment dies with its node."""
    OFF = "off"
    """Never: the label and the budget are left alone, for example because slurm-operator writes them."""


class MirrorCordon(StrEnum):
    """What a hold does to the Kubernetes node, besides the condition `lockstep.sh/InService`."""

    NONE = "none"
    """Nothing: other pods may still be scheduled there."""
    CORDON = "cordon"
    """The node is cordoned, marked as ours, and uncordoned with the last hold."""


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far Lockstep goes."""

    protect: Protect = Protect.UNDRAINED
    """When a worker's pod may not be evicted; see `Protect` for what it means to cluster autoscalers."""
    mirror: MirrorCordon = MirrorCordon.NONE
    """Whether held workers' Kubernetes nodes are cordoned."""
    conditions: bool = True
    """Write the pod conditions `SlurmNodeState*` as slurm-operator does. Where both run, only one should."""
    pod_cordon: bool = True
    """The pod annotation `pod-cordon` is a hold. Where slurm-operator runs it is answered by a drain of its own, or
    stays until ours is lifted."""
    node_conditions: list[str] = []
    """What on a Kubernetes node counts as a hold; see `signal_of` for how each is written."""
    allowed_flags: list[str] = []
    """Slurm node flags that this version does not know and that may be taken as harmless. Upper case."""
    stale_after_s: Annotated[float, msgspec.Meta(ge=1, le=3600)] = 15.0
    """Seconds after which a source that was not complete is stale. Nothing is done that depends on it."""
    reassert_every_s: Annotated[float, msgspec.Meta(ge=1, le=3600)] = 30.0
    """At least so many seconds lie between two drains of a worker that somebody resumed against a hold."""
    down_is_drained: bool = False
    """A worker that is DOWN with DRAIN, and empty, counts as drained. Its processes may still run on the host."""


class Signal(NamedTuple):
    """Something on a Kubernetes node that counts as a hold: a condition with a status, a taint or a label."""

    kind: Literal["condition", "taint", "label"]
    key: str
    value: str
    """The condition's status; for taints and labels empty means any value."""

    def __str__(self) -> str:
        """As it is written in settings."""
        return f"{self.kind}:{self.key}" + (f"={self.value}" if self.value else "")


def signal_of(text: str) -> Signal:
    """Reads `DiskPressure`, `Ready=False`, `condition:Gpu=False`, `taint:example.com/repair` or `label:key=value`.

    Without a kind it is a condition; a condition without a status means `True`.

    Raises:
        ValueError: it cannot be read; says what is allowed.
    """
    kind, colon, rest = text.partition(":")
    if not colon:
        kind, rest = "condition", text
    key, _, value = rest.partition("=")
    if not key.strip() or key != key.strip() or any(c.isspace() for c in value):
        raise ValueError(f"{text!r}: want a key such as DiskPressure or taint:example.com/repair")
    match kind:
        case "condition":
            if value not in {"", "True", "False", "Unknown"}:
                raise ValueError(f"{text!r}: a condition's status is True, False or Unknown")
            return Signal("condition", key, value or "True")
        case "taint":
            return Signal("taint", key, value)
        case "label":
            return Signal("label", key, value)
        case _:
            raise ValueError(f"{text!r}: want condition:, taint: or label: before the key")
