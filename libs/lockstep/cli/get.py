"""`lockstep get workers|holds|clusters`."""

from argparse import Namespace
from collections.abc import Callable, Collection, Mapping
from datetime import datetime

from lockstep.base.errors import BadInput
from lockstep.cli import choose
from lockstep.cli.connect import Reach
from lockstep.cli.exits import Exit
from lockstep.cli.output import NONE, Out, ago, show
from lockstep.cli.rows import ClusterRow, HoldRow, cluster_rows, hold_rows
from lockstep.cli.sources import read_fleet
from lockstep.cli.view import Fleet, WorkerView, worker_view
from lockstep.fleet.worker import Worker

Labels = Callable[[Mapping[str, str]], bool]


async def run(args: Namespace) -> int:
    """Reads the fleet and prints what was asked for."""
    if args.what != "workers" and (args.held or args.selector is not None):
        raise BadInput([f"get {args.what}: --held and -l choose workers; use them with `get workers`"])
    test = choose.selector(args.selector) if args.selector is not None else None
    out = Out()
    async with Reach.of(args) as reach:
        fleet = await read_fleet(reach, out)
    clusters = choose.clusters(fleet, args.cluster)
    workers = fleet.workers(clusters)
    if args.what == "workers":
        found = chosen(fleet, workers, args.names, held=args.held, test=test)
        columns = _worker_columns(several=len(clusters) > 1, ages=fleet.source == "nats")
        show(out, args.output, "WorkerList", found, names=lambda v: f"{v.cluster}/{v.name}", columns=columns)
        return Exit.OK
    views = [worker_view(worker, fleet) for worker in workers]
    if args.what == "holds":
        rows = choose.named("hold", hold_rows(fleet, views, clusters), args.names, hold_names)
        show(out, args.output, "HoldList", rows, names=lambda r: r.id, columns=_hold_columns(fleet.now))
    else:
        totals = choose.named("cluster", cluster_rows(fleet, views, clusters), args.names, lambda r: [r.name])
        show(out, args.output, "ClusterList", totals, names=lambda r: r.name, columns=_cluster_columns)
    return Exit.OK


def chosen(
    fleet: Fleet, workers: Collection[Worker], names: list[str], *, held: bool, test: Labels | None
) -> list[WorkerView]:
    """The workers that were asked for, as they are shown.

    Raises:
        Stop: a name that no worker has.
    """
    found = choose.named("worker", list(workers), names, lambda w: [w.name, str(w.ref)])
    views = [worker_view(w, fleet) for w in found if test is None or test(labels_of(w))]
    return [view for view in views if not held or not view.in_service]


def labels_of(worker: Worker) -> Mapping[str, str]:
    """The labels that a selector looks at: the pod's, or without a pod the node's."""
    return worker.pod.labels if worker.pod else worker.node.labels if worker.node else {}


def hold_names(row: HoldRow) -> list[str]:
    """What a hold may be called: its id, and for a Hold resource also its name alone."""
    return [row.id, row.id.rpartition("/")[2]] if row.id.startswith("hold/") else [row.id]


def _worker_columns(*, several: bool, ages: bool) -> Callable[[WorkerView, bool], dict[str, str]]:
    def columns(view: WorkerView, wide: bool) -> dict[str, str]:
        first = {"CLUSTER": view.cluster} if several else {}
        more = {
            "STATE": view.state,
            "POD": f"{view.namespace}/{view.pod}{'' if view.pod_ready else ' (not ready)'}" if view.pod else NONE,
            "PROTECTED": "yes" if view.protected else "no",
            "PARTITIONS": ",".join(view.partitions),
            "GRES": view.gres_used or view.gres,
        }
        return {
            **first,
            "WORKER": view.name,
            "PHASE": view.phase + (" (stale)" if ages and view.stale else ""),
            "HELD BY": held_by(view),
            "DRAIN": drain_of(view),
            "NODE": view.node,
            **(more if wide else {}),
            "REASON": reason_of(view),
        }

    return columns


def held_by(view: WorkerView) -> str:
    """Whose hold comes first, and how many more there are."""
    if not view.holds:
        return NONE
    more = f" +{len(view.holds) - 1}" if len(view.holds) > 1 else ""
    return f"{view.holds[0].owner}{more}"


def drain_of(view: WorkerView) -> str:
    """How far the drain is, and how many jobs it waits for."""
    if view.in_service:
        return "lifting" if view.ours else NONE
    jobs = len(view.waiting_for)
    return f"{view.progress}" + (f" ({jobs} job{'s' if jobs != 1 else ''})" if jobs else "")


def reason_of(view: WorkerView) -> str:
    """The words that both systems show; without a hold, what the worker's return waits for."""
    return f"waits: {view.not_ready}" if view.in_service and view.ours and view.not_ready else view.words


def _hold_columns(now: datetime) -> Callable[[HoldRow, bool], dict[str, str]]:
    def columns(row: HoldRow, wide: bool) -> dict[str, str]:
        workers = (
            ",".join(row.workers) if wide or len(row.workers) <= 2 else f"{row.workers[0]} +{len(row.workers) - 1}"
        )
        return {
            "HOLD": row.id,
            "CLASS": row.hold_class.value,
            "OWNER": row.owner,
            "WORKERS": workers,
            "DRAIN": row.phase,
            "AGE": ago(row.since, now),
            "ENDS": ago(row.until, now),
            "REASON": row.fault or row.reason,
        }

    return columns


def _cluster_columns(row: ClusterRow, wide: bool) -> dict[str, str]:
    phases = row.phases if wide else {k: v for k, v in row.phases.items() if k not in {"power", "unknown"}}
    return {
        "CLUSTER": row.name,
        "NAMESPACE": row.namespace,
        "WORKERS": str(row.workers),
        "HELD": str(row.held),
        **{phase.upper(): str(count) for phase, count in phases.items()},
        "SOURCES": "; ".join(row.stale) or "fresh",
    }
