"""What is shown of workers, holds and clusters: plain rows made from the facts. Pure."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

import msgspec

from lockstep.contracts.common import Aware
from lockstep.contracts.facts import SITE, HoldView, Progress
from lockstep.contracts.hold import HoldClass, JobBrief
from lockstep.contracts.policy import Policy
from lockstep.fleet import holds as hold_rules
from lockstep.fleet.drained import why_not_drained
from lockstep.fleet.facts import FactTable
from lockstep.fleet.pairing import Site, pair
from lockstep.fleet.ready import why_not_ready
from lockstep.fleet.worker import Worker, is_fresh
from lockstep.slurm import reasons, states

ORDER = {each: i for i, each in enumerate(HoldClass)}
"""Which class of hold is named first."""


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """A Slurm cluster as the command knows it."""

    name: str
    namespace: str


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """Everything that was read, and how."""

    table: FactTable
    now: datetime
    source: Literal["nats", "kubernetes"]
    """`kubernetes`: no facts were to be had; Slurm is seen through the pods' conditions only."""
    clusters: Sequence[Cluster] = ()
    site: Site = field(default_factory=Site)
    policy: Policy = field(default_factory=Policy)

    def workers(self, clusters: Iterable[str]) -> list[Worker]:
        """The workers of these clusters, in the order in which people count."""
        keys = sorted((key for c in clusters for key in self.table.workers(c)), key=lambda k: (k[0], natural(k[1])))
        return [pair(self.table, key, self.site) for key in keys]


class WorkerView(msgspec.Struct, frozen=True, kw_only=True):
    """One worker, for a table or a script."""

    cluster: str
    name: str
    phase: str
    """idle, busy, draining, drained, down, power or unknown."""
    state: str
    """Slurm's own words: `IDLE+DRAIN`. Empty: Slurm does not know it, or could not be asked."""
    in_service: bool
    """No hold stands."""
    progress: Progress
    words: str
    """The reason that both systems show."""
    holds: list[HoldView]
    why_not: str
    """Why a held worker is not drained yet."""
    not_ready: str
    """Why it could not come back now, were no hold standing. Empty: it could."""
    ours: bool
    """The DRAIN that Slurm shows is Lockstep's; without a hold it is being lifted."""
    waiting_for: list[JobBrief]
    deadline: Aware | None
    node: str
    namespace: str
    pod: str
    pod_ready: bool
    protected: bool
    """Its pod may not be evicted."""
    partitions: list[str]
    gres: str
    gres_used: str
    stale: list[str]
    """The sources that were not read recently enough to be acted upon."""


def worker_view(worker: Worker, fleet: Fleet) -> WorkerView:
    """What is shown of a worker."""
    slurm, pod, desired = worker.slurm, worker.pod, worker.desired
    holds = holds_on(worker, fleet)
    progress, why_not = _progress(worker, holds, fleet)
    return WorkerView(
        cluster=worker.cluster,
        name=worker.name,
        phase=states.phase_of(slurm.base, slurm.flags, allow=fleet.policy.allowed_flags) if slurm else "unknown",
        state=states.text(slurm.base, slurm.flags) if slurm else "",
        in_service=not holds,
        progress=progress,
        words=hold_rules.words(holds, slurm.reason if slurm else ""),
        holds=holds,
        why_not=why_not,
        not_ready=why_not_ready(worker, fleet.policy, fleet.now),
        ours=slurm is not None and states.is_drain(slurm.base, slurm.flags) and reasons.is_ours(slurm.reason),
        waiting_for=[job.brief for job in worker.jobs] if holds else [],
        deadline=min(
            (h.deadline for h in holds if h.deadline), default=desired.deadline if desired and holds else None
        ),
        node=worker.node_name,
        namespace=pod.namespace if pod else "",
        pod=pod.name if pod else "",
        pod_ready=bool(pod and pod.ready),
        protected=bool(pod and pod.protected),
        partitions=list(slurm.partitions) if slurm else [],
        gres=slurm.gres if slurm else "",
        gres_used=slurm.gres_used if slurm else "",
        stale=stale(worker, fleet),
    )


def holds_on(worker: Worker, fleet: Fleet) -> list[HoldView]:
    """The holds that stand: those decided on, and those seen now. A source that cannot be read ends none."""
    found = {h.id: h for h in hold_rules.standing(worker, fleet.policy, fleet.now)}
    decided = {h.id: h for h in worker.desired.holds} if worker.desired else {}
    return sorted((found | decided).values(), key=lambda h: (ORDER[h.hold_class], h.id))


def _progress(worker: Worker, holds: Sequence[HoldView], fleet: Fleet) -> tuple[Progress, str]:
    if not holds:
        return Progress.NONE, ""
    desired = worker.desired
    if desired is not None and desired.holds:
        return desired.progress, desired.why_not
    why_not = why_not_drained(worker, fleet.policy, fleet.now)
    if not why_not:
        return Progress.DRAINED, ""
    shown = worker.slurm is not None and states.is_drain(worker.slurm.base, worker.slurm.flags)
    return (Progress.DRAINING if shown else Progress.WAITING), why_not


def stale(worker: Worker, fleet: Fleet) -> list[str]:
    """The sources of this worker that are too old to be acted upon."""
    as_of = {"kube": worker.kube_as_of, "slurm": worker.slurm_as_of}
    return [name for name, at in as_of.items() if not is_fresh(at, fleet.now, fleet.policy.stale_after_s)]


def old_sources(fleet: Fleet) -> list[tuple[str, str, str]]:
    """The sources that are too old to be acted upon: source, cluster (or `_site`), and what is wrong with it."""
    found = []
    wanted = [("kube", SITE), *(("slurm.node", c.name) for c in fleet.clusters)]
    for source, of in wanted:
        health = fleet.table.sources.get((source, of))
        as_of = health.complete_as_of if health else None
        if not is_fresh(as_of, fleet.now, fleet.policy.stale_after_s):
            age = f"{(fleet.now - as_of).total_seconds():.0f} s old" if as_of else "never read"
            error = f": {health.last_error}" if health and health.last_error else ""
            found.append((source, of, f"{source} is {age}{error}"))
    return found


def natural(name: str) -> list[tuple[int, str]]:
    """A key that sorts gpu-2 before gpu-10."""
    return [(int(part) if part.isdecimal() else -1, part) for part in re.split(r"(\d+)", name) if part]
