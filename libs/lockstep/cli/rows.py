"""Rows of holds and of clusters, made from the workers' views. Pure."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

import msgspec

from lockstep.cli.view import ORDER, Fleet, WorkerView, old_sources
from lockstep.contracts.common import Aware
from lockstep.contracts.facts import SITE, HoldView, KubeHold, Progress
from lockstep.contracts.hold import HoldClass
from lockstep.fleet import holds as hold_rules
from lockstep.slurm import states


class HoldRow(msgspec.Struct, frozen=True, kw_only=True):
    """One hold, wherever it lives, with the workers that it keeps out."""

    id: str
    cluster: str
    hold_class: HoldClass = msgspec.field(name="class")
    owner: str
    reason: str
    phase: str
    """pending, draining, drained, overdue, expired or refused."""
    since: Aware | None
    until: Aware | None
    workers: list[str]
    fault: str = ""
    """Why it cannot be used."""


class ClusterRow(msgspec.Struct, frozen=True, kw_only=True):
    """One cluster in numbers."""

    name: str
    namespace: str
    workers: int
    held: int
    phases: dict[str, int]
    stale: list[str]


def hold_rows(fleet: Fleet, views: Sequence[WorkerView], clusters: Sequence[str]) -> list[HoldRow]:
    """All holds of these clusters: first those that keep a worker out, then those that select nobody."""
    held: dict[tuple[str, str], list[WorkerView]] = {}
    shapes: dict[tuple[str, str], HoldView] = {}
    for view in views:
        for hold in view.holds:
            held.setdefault((view.cluster, hold.id), []).append(view)
            shapes[view.cluster, hold.id] = hold
    rows = [_row(cluster, shapes[cluster, ident], workers) for (cluster, ident), workers in held.items()]
    for cluster in clusters:
        rows += [
            _idle_row(h, fleet.now)
            for h in fleet.table.holds[cluster].values()
            if (cluster, hold_rules.hold_id(h)) not in held
        ]
    return sorted(rows, key=lambda row: (row.cluster, ORDER[row.hold_class], row.id))


def _row(cluster: str, hold: HoldView, workers: Sequence[WorkerView]) -> HoldRow:
    rank = [Progress.OVERDUE, Progress.WAITING, Progress.DRAINING, Progress.DRAINED, Progress.NONE]
    worst = min((w.progress for w in workers), key=rank.index)
    return HoldRow(
        id=hold.id,
        cluster=cluster,
        hold_class=hold.hold_class,
        owner=hold.owner,
        reason=hold.reason,
        phase=worst.value,
        since=hold.since,
        until=hold.until,
        workers=[w.name for w in workers],
    )


def _idle_row(hold: KubeHold, now: datetime) -> HoldRow:
    faults = hold_rules.faults(hold)
    return HoldRow(
        id=hold_rules.hold_id(hold),
        cluster=hold.cluster,
        hold_class=hold.spec.hold_class if hold.spec else HoldClass.MANUAL,
        owner=hold.owner,
        reason=hold.spec.reason if hold.spec else "",
        phase="refused" if faults else "expired" if hold_rules.is_expired(hold, now) else "pending",
        since=hold.created_at,
        until=hold.spec.expires_at if hold.spec else None,
        workers=[],
        fault="; ".join(faults),
    )


def cluster_rows(fleet: Fleet, views: Sequence[WorkerView], clusters: Sequence[str]) -> list[ClusterRow]:
    """The clusters in numbers, also those without workers."""
    spaces = {c.name: c.namespace for c in fleet.clusters}
    rows = []
    for name in clusters:
        mine = [v for v in views if v.cluster == name]
        phases = Counter(v.phase for v in mine)
        rows.append(
            ClusterRow(
                name=name,
                namespace=spaces.get(name, ""),
                workers=len(mine),
                held=sum(not v.in_service for v in mine),
                phases={phase.value: phases[phase.value] for phase in states.NodePhase},
                stale=[
                    text for source, of, text in old_sources(fleet) if of == name or (of == SITE and source == "kube")
                ],
            )
        )
    return rows
