"""One Slurm node with Slurm's own semantics, as seen on 26.05: what a write does, and what slurmctld does by itself."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count

from lockstep.contracts.facts import SlurmJob, SlurmNode
from lockstep.slurm import states
from tests.builders import CLUSTER, NAME

SLURMD_TIMEOUT = timedelta(seconds=4)
PING = timedelta(seconds=1)
_numbers = count(1)


@dataclass
class Job:
    """A job on the node."""

    start: datetime
    id: int = field(default_factory=lambda: next(_numbers))
    suspended: bool = False
    completing: bool = False
    requeue: bool = True

    def fact(self) -> SlurmJob:
        """As the poller reads it."""
        state = "COMPLETING" if self.completing else "SUSPENDED" if self.suspended else "RUNNING"
        return SlurmJob(
            cluster=CLUSTER,
            job_id=self.id,
            states=[state],
            nodes=[NAME],
            start=self.start,
            can_requeue=self.requeue,
        )


@dataclass
class SlurmTruth:
    """The record of the node in slurmctld, and the slurmd under it."""

    known: bool = True
    drain: bool = False
    fail: bool = False
    down_by: str = ""
    reason: str = ""
    jobs: list[Job] = field(default_factory=list)
    slurmd_start: datetime | None = None
    silent_since: datetime | None = None
    pinged_after: datetime | None = None
    """Until then NOT_RESPONDING shows after an UNDRAIN or RESUME."""

    def words(self, now: datetime) -> tuple[str, list[str]]:
        """Base and flags."""
        running = any(not job.suspended and not job.completing for job in self.jobs)
        base = "DOWN" if self.down_by else "MIXED" if running else "IDLE"
        silent = self.silent_since is not None and now > self.silent_since + PING
        lifted = self.pinged_after is not None and now < self.pinged_after
        flags = {
            "DRAIN": self.drain,
            "FAIL": self.fail,
            "COMPLETING": any(job.completing for job in self.jobs),
            "NOT_RESPONDING": silent or lifted,
        }
        return base, sorted(flag for flag, shown in flags.items() if shown)

    def fact(self, now: datetime) -> SlurmNode:
        """As the poller reads it."""
        base, flags = self.words(now)
        cpus = 8 * sum(not job.suspended for job in self.jobs)
        return SlurmNode(
            cluster=CLUSTER,
            name=NAME,
            base=base,
            flags=flags,
            reason=self.reason,
            slurmd_start=self.slurmd_start,
            alloc_cpus=cpus,
            read_at=now,
        )

    def offered(self, now: datetime) -> bool:
        """Whether slurmctld would start a job here."""
        return self.known and self.silent_since is None and states.is_schedulable(*self.words(now))

    def set_drain(self, reason: str) -> None:
        """DRAIN over DRAIN silently replaces the reason; it clears FAIL."""
        self.drain, self.fail, self.reason = True, False, reason

    def set_fail(self, reason: str) -> None:
        """FAIL clears DRAIN; without a reason the old one stays."""
        self.drain, self.fail, self.reason = False, True, reason or self.reason

    def set_down(self, reason: str) -> None:
        """DOWN ends the jobs; DRAIN stays."""
        self.down_by, self.reason = "person", reason or self.reason
        self.jobs.clear()

    def undrain(self, now: datetime) -> None:
        """Lifts DRAIN, clears the reason, and the node does not respond until the next ping."""
        self.drain, self.reason, self.pinged_after = False, "", now + PING

    def resume(self, now: datetime) -> None:
        """Lifts DRAIN, DOWN and FAIL."""
        self.undrain(now)
        self.fail, self.down_by = False, ""

    def forget(self) -> None:
        """The record is deleted, as an administrator may with a dynamic node."""
        self.known, self.drain, self.fail, self.down_by, self.reason = False, False, False, "", ""
        self.jobs.clear()

    def register(self, now: datetime) -> None:
        """A slurmd starts: what slurmctld itself had set DOWN comes back by itself."""
        self.known, self.slurmd_start, self.silent_since = True, now, None
        if self.down_by == "slurmctld":
            self.down_by = ""
            self.reason = self.reason if self.drain or self.fail else ""

    def lose_slurmd(self, now: datetime) -> None:
        """The slurmd is gone, and slurmctld does not know it yet."""
        self.silent_since = self.silent_since or now

    def tick(self, now: datetime) -> None:
        """What slurmctld does by itself."""
        if self.silent_since is not None and now > self.silent_since + SLURMD_TIMEOUT and not self.down_by:
            self.down_by = "slurmctld"
            self.reason = self.reason or "Not responding"
            self.jobs.clear()
