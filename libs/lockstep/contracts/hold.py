"""The Hold resource of `lockstep.sh/v1alpha1`, as Kubernetes stores it, and its words."""

from enum import StrEnum
from typing import Annotated

import msgspec

from lockstep.contracts.common import Aware

GROUP = "lockstep.sh"
VERSION = "v1alpha1"
MAX_REASON = 200
"""Characters of a Hold's reason; the words for Slurm add the owner and stay under 256."""
MAX_NAMES = 1024
"""Names that one Hold may list; more are written as a host list or a selector."""


class HoldClass(StrEnum):
    """What a hold is for. The order here is the order in which holds are named first."""

    SLURM = "slurm"
    MANUAL = "manual"
    EXTERNAL = "external"
    CORDON = "cordon"
    MAINTENANCE = "maintenance"
    HEALTH = "health"
    REMEDIATION = "remediation"
    SCALE_IN = "scale-in"
    UPDATE = "update"
    TOPOLOGY = "topology"


class DrainPolicy(StrEnum):
    """What happens to the jobs that run on a held worker."""

    WAIT = "Wait"
    REQUEUE = "Requeue"
    CANCEL = "Cancel"


class AtDeadline(StrEnum):
    """What happens to jobs that still run when the deadline of a waiting drain has passed."""

    KEEP = "Keep"
    REQUEUE = "Requeue"
    CANCEL = "Cancel"


class HoldPhase(StrEnum):
    """How far a Hold is, over all its workers."""

    PENDING = "Pending"
    DRAINING = "Draining"
    DRAINED = "Drained"
    OVERDUE = "Overdue"
    EXPIRED = "Expired"
    REFUSED = "Refused"


Duration = Annotated[str, msgspec.Meta(pattern=r"^([0-9]+h)?([0-9]+m)?([0-9]+s)?$", min_length=2, max_length=16)]
"""A length of time as Kubernetes writes it: `90s`, `2h`, `1h30m`."""


class LabelSelector(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Labels that a worker's pod must carry, all of them."""

    match_labels: dict[str, str] = {}
    """Keys and values."""


class WorkerSelector(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Which workers a Hold is for: exactly one field is given."""

    names: list[str] | None = None
    """Slurm nodes' names."""
    hostlist: str | None = None
    """Slurm's short form, such as `gpu-[1-8]`."""
    nodes: list[str] | None = None
    """Kubernetes nodes' names: the workers that are on them."""
    selector: LabelSelector | None = None
    partitions: list[str] | None = None
    """Slurm partitions: all nodes of them."""
    blocks: list[str] | None = None
    """Blocks of Slurm's topology. Refused: nothing reads the topology yet."""


class Drain(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What happens to running jobs, and by when."""

    policy: DrainPolicy = DrainPolicy.WAIT
    deadline: Duration | None = None
    """Counted from the Hold's creation."""
    at_deadline: AtDeadline = AtDeadline.KEEP


class HoldSpec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What a Hold's author wants."""

    workers: WorkerSelector
    """Whom it is for."""
    reason: str
    """In words for people, at most 200 characters; shown in both systems."""
    cluster: str = ""
    """May be left out where the namespace has one cluster."""
    hold_class: HoldClass = msgspec.field(default=HoldClass.MANUAL, name="class")
    expires_at: Aware | None = None
    """When it ends by itself; left out: when it is deleted."""
    drain: Drain = Drain()
    """What happens to running jobs."""


class JobBrief(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job that a drain waits for. `ends` is Slurm's limit, not a promise."""

    id: int
    """The job's number."""
    user: str = ""
    partition: str = ""
    state: str = ""
    """Slurm's word."""
    ends: Aware | None = None
    """When Slurm would end it."""


class WaitingFor(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The jobs that one worker still waits for."""

    worker: str
    jobs: list[JobBrief] = []


class WorkerCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many workers a Hold selected, and how far they are."""

    selected: int = 0
    draining: int = 0
    drained: int = 0


class Condition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """A condition as Kubernetes writes it."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: Aware | None = None


class HoldStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What Lockstep says about a Hold."""

    phase: HoldPhase = HoldPhase.PENDING
    owner: str = ""
    message: str = ""
    observed_generation: int = 0
    workers: WorkerCounts = WorkerCounts()
    waiting_for: list[WaitingFor] = []
    conditions: list[Condition] = []


def seconds_of(duration: str) -> int:
    """The length of a Duration in seconds: `1h30m` is 5400.

    Raises:
        ValueError: the text is no duration; says what is allowed.
    """
    total, number = 0, ""
    units = {"h": 3600, "m": 60, "s": 1}
    for c in duration:
        if c.isdecimal():
            number += c
        elif c in units and number:
            total, number = total + int(number) * units[c], ""
        else:
            break
    else:
        if duration and not number:
            return total
    raise ValueError(f"duration {duration!r}: want hours, minutes and seconds such as 90s, 2h or 1h30m")
