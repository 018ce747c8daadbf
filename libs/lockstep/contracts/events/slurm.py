"""What happened in Slurm: to its nodes and to its jobs."""

from lockstep.contracts.common import Aware
from lockstep.contracts.events.base import ClusterEvent, WorkerEvent


class SlurmNodeRegistered(WorkerEvent, frozen=True, kw_only=True, omit_defaults=True, tag="slurm-node.registered.v1"):
    """A slurmd started anew and registered."""

    slurmd_start: Aware
    """When that slurmd started, as Slurm says."""


class SlurmNodeVanished(WorkerEvent, frozen=True, kw_only=True, omit_defaults=True, tag="slurm-node.vanished.v1"):
    """Slurm no longer knows the node."""

    before: str
    """The state that was shown last."""


class SlurmStateChanged(WorkerEvent, frozen=True, kw_only=True, omit_defaults=True, tag="slurm-node.state-changed.v1"):
    """A Slurm node's base state or flags changed. States are `IDLE+DRAIN`; empty: it was not there."""

    before: str
    after: str
    reason: str = ""
    """Slurm's reason now."""
    by: str = ""
    """Who set that reason, as Slurm says it."""
    unknown_flags: list[str] = []
    """Words of Slurm that this version does not know; each is named once."""


class SlurmPhaseChanged(WorkerEvent, frozen=True, kw_only=True, omit_defaults=True, tag="slurm-node.phase-changed.v1"):
    """A worker's phase changed: idle, busy, draining, drained, down, power or unknown; empty: it was not there."""

    before: str
    after: str


class SlurmReasonChanged(
    WorkerEvent, frozen=True, kw_only=True, omit_defaults=True, tag="slurm-node.reason-changed.v1"
):
    """A Slurm node's reason was set, changed, or cleared (`after` is empty)."""

    before: str
    after: str
    by: str = ""
    """Who set it, as Slurm says it."""


class ReservationEntered(
    WorkerEvent, frozen=True, kw_only=True, omit_defaults=True, tag="slurm-node.reservation-entered.v1"
):
    """A Slurm node came under a reservation that is active."""

    reservation: str


class ReservationLeft(WorkerEvent, frozen=True, kw_only=True, omit_defaults=True, tag="slurm-node.reservation-left.v1"):
    """A Slurm node is no longer under a reservation."""

    reservation: str


class JobEvent(ClusterEvent, frozen=True, kw_only=True, omit_defaults=True):
    """Common to all events about a job. Which jobs are told, says the setting `jobs`."""

    job_id: int
    """The job's number; a requeued job keeps it."""
    user: str = ""
    partition: str = ""
    nodes: list[str] = []
    """Slurm nodes that it holds, or held; at most 64, `node_count` has all."""
    node_count: int = 0
    """How many nodes it holds, or held."""
    states: list[str] = []
    """Slurm's words, as read."""

    @property
    def identity(self) -> str:
        """The job's number."""
        return str(self.job_id)


class JobStarted(JobEvent, frozen=True, kw_only=True, omit_defaults=True, tag="job.started.v1"):
    """A job began to run."""

    start: Aware | None = None
    """As Slurm says."""
    ends: Aware | None = None
    """Slurm's limit, not a promise."""


class JobEnded(JobEvent, frozen=True, kw_only=True, omit_defaults=True, tag="job.ended.v1"):
    """A job that ran does not run any more."""

    start: Aware | None = None
    """Of the run that ended."""


class JobRequeued(JobEvent, frozen=True, kw_only=True, omit_defaults=True, tag="job.requeued.v1"):
    """A job that ran was put back into the queue."""

    start: Aware | None = None
    """The start of the run that was broken off."""
