"""What a fake Slurm is and how its nodes and jobs behave, without anybody who speaks of it: see `slurmrestd.py`."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from lockstep.base import clock


@dataclass(kw_only=True)
class Release:
    """What differs between the releases of Slurm that were looked at."""

    name: str
    parsers: tuple[str, ...]
    refused: int
    """HTTP status of a refusal."""
    undrain_clears_reason: bool
    stamp_works: bool
    """`update_time` is answered with everything when a node changed; else with 500."""


NEW = Release(
    name="26.05.5",
    parsers=("v0.0.42", "v0.0.43", "v0.0.44", "v0.0.45"),
    refused=422,
    undrain_clears_reason=True,
    stamp_works=True,
)
OLD = Release(
    name="24.11.5",
    parsers=("v0.0.40", "v0.0.41", "v0.0.42"),
    refused=500,
    undrain_clears_reason=False,
    stamp_works=False,
)


@dataclass(kw_only=True)
class FakeNode:
    """A node of the fake."""

    name: str
    base: str = "IDLE"
    flags: set[str] = field(default_factory=lambda: {"DYNAMIC_NORM"})
    reason: str = ""
    reason_at: int = 0
    boot_time: int = 1_700_000_000
    quiet_until: float = 0.0
    """Slurm waits for slurmd's next answer (after an UNDRAIN)."""


@dataclass(kw_only=True)
class FakeJob:
    """A job of the fake."""

    job_id: int
    nodes: list[str]
    states: list[str] = field(default_factory=lambda: ["RUNNING"])
    can_requeue: bool = True
    started: int = 0


class FakeSlurm:
    """Nodes, jobs and reservations. All may be changed at any time; `touch` after changing a node or job by hand."""

    def __init__(self, nodes: Iterable[str], *, release: Release, cluster: str, quiet_s: float) -> None:
        """Nodes are idle, and were last changed now; after an UNDRAIN one is quiet for `quiet_s`."""
        self.nodes = {name: FakeNode(name=name) for name in nodes}
        self.jobs: dict[int, FakeJob] = {}
        self.reservations: dict[str, list[str]] = {}
        self.release = release
        self.cluster = cluster
        self.quiet_s = quiet_s
        self._changed = {"nodes": self._now(), "jobs": self._now()}

    def age(self, what: str, seconds: int) -> None:
        """The last change of nodes (or jobs) was so long ago."""
        self._changed[what] = self._now() - seconds

    def touch(self, what: str = "nodes") -> None:
        """Nodes (or jobs) changed now."""
        self._changed[what] = self._now()

    def start_job(self, nodes: list[str], *, can_requeue: bool = True) -> int:
        """A job that runs on these nodes from now on."""
        job_id = max(self.jobs, default=0) + 1
        self.jobs[job_id] = FakeJob(job_id=job_id, nodes=nodes, can_requeue=can_requeue, started=self._now())
        for name in nodes:
            self.nodes[name].base = "MIXED"
        self.touch("nodes")
        self.touch("jobs")
        return job_id

    def end_job(self, job_id: int, state: str = "CANCELLED") -> None:
        """The job has given its nodes back."""
        self._leave(self.jobs[job_id], state)

    def _update(self, name: str, body: dict[str, Any]) -> int:
        """Slurm's error number for one node, 0 when done; the others are changed whatever it is."""
        node = self.nodes.get(name)
        if node is None:
            return 2018
        for state in body.get("state", []):
            if state == "DRAIN":
                node.flags -= {"FAIL", "UNDRAIN"}
                node.flags.add("DRAIN")
            elif state != "UNDRAIN" or "INVALID_REG" in node.flags:
                return 2028
            else:
                node.flags.discard("DRAIN")
                node.quiet_until = clock.monotonic() + self.quiet_s
                if self.release.undrain_clears_reason:
                    node.reason, node.reason_at = "", 0
        if body.get("reason") and body["reason"] != node.reason:
            node.reason, node.reason_at = body["reason"], self._now()
        self.touch()
        return 0

    def _settle(self, node: FakeNode) -> FakeNode:
        if node.quiet_until and clock.monotonic() >= node.quiet_until:
            node.quiet_until = 0.0
        return node

    def _leave(self, job: FakeJob, state: str) -> None:
        job.states = [state]
        for name in job.nodes:
            if name in self.nodes and not any(name in other.nodes for other in self._running()):
                self.nodes[name].base = "IDLE"
        self.touch("nodes")
        self.touch("jobs")

    def _running(self) -> list[FakeJob]:
        return [job for job in self.jobs.values() if "RUNNING" in job.states]

    def _now(self) -> int:
        return int(clock.now().timestamp())
