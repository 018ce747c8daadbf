"""What the rest of Lockstep may ask of one Slurm cluster."""

from collections.abc import Collection, Mapping
from typing import Protocol

import msgspec

from lockstep.contracts.facts import SlurmJob, SlurmNode, SlurmReservation
from lockstep.slurm.errors import SlurmError


class NodeList(msgspec.Struct, frozen=True, kw_only=True):
    """All nodes of the cluster as of one moment."""

    nodes: list[SlurmNode]
    last_update: int
    """Slurm's stamp (Unix seconds), for the next `since`. One second coarse: a change in the same second may follow."""


class JobList(msgspec.Struct, frozen=True, kw_only=True):
    """All jobs as of one moment."""

    jobs: list[SlurmJob]
    """Those that hold nodes."""
    others: Mapping[int, SlurmJob] = {}
    """The rest by number, waiting or ended and not yet forgotten; each is made when it is looked at."""
    last_update: int
    """Slurm's stamp (Unix seconds), for the next `since`."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a bulk write: every name is in exactly one of the two."""

    done: list[str] = []
    failed: dict[str, SlurmError] = {}


class Ping(msgspec.Struct, frozen=True, kw_only=True):
    """Who answers."""

    version: str
    """Slurm's release, as slurmrestd says it: `26.05.5`."""
    parser: str
    """The data parser that is spoken: `v0.0.45`."""
    cluster: str = ""
    """ClusterName of the Slurm that answers; empty where it does not say."""
    controllers_up: int = 0
    """How many slurmctlds answered."""


class SlurmApi(Protocol):
    """One Slurm cluster. Every method raises a `SlurmError`; facts come without epoch, revision and read_at."""

    async def nodes(self, *, since: int = 0) -> NodeList | None:
        """All nodes, or None when none has changed after `since` (a former `last_update`)."""
        ...

    async def node(self, name: str) -> SlurmNode:
        """One node. Its base state, flags, reason and `gres_used` are fresh; allocations and MIXED may be old.

        Slurm refreshes those only when somebody lists all nodes: a single read may confirm that a node is busy, never
        that it has become idle.

        Raises:
            NoSuchNode: Slurm does not know it.
        """
        ...

    async def jobs(self, *, since: int = 0) -> JobList | None:
        """All jobs, or None when no job has changed after `since`. None never means "all gone"."""
        ...

    async def reservations(self) -> list[SlurmReservation]:
        """All reservations."""
        ...

    async def partitions(self) -> dict[str, list[str]]:
        """The nodes of each partition."""
        ...

    async def drain(self, names: Collection[str], reason: str) -> Outcome:
        """Set DRAIN with `reason`. Over a DRAIN that stands, this replaces reason, time and user.

        Raises:
            Unreachable: no whole answer; some or all may be drained. Read before writing again.
            ValueError: an empty reason, one that is not clean and bounded, or a name that stands for several nodes.
        """
        ...

    async def undrain(self, names: Collection[str]) -> Outcome:
        """Lift DRAIN. Only for nodes that were read with DRAIN.

        For about a second, until slurmd's next answer, it makes any node NOT_RESPONDING and without a boot time.

        Raises:
            Unreachable: no whole answer; some or all may be undrained. Read before writing again.
        """
        ...

    async def requeue(self, job_id: int) -> None:
        """Put the job back in the queue. A job that has ended meanwhile raises `Refused`."""
        ...

    async def cancel(self, job_id: int) -> None:
        """Cancel the job. A job that has ended meanwhile raises `Refused`."""
        ...

    async def ping(self) -> Ping:
        """Who answers, and which parser is spoken."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...
