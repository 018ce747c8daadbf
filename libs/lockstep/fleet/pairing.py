"""Joins the facts of both systems into one `Worker`. Pure."""

from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime

import msgspec

from lockstep.contracts.common import WorkerKey
from lockstep.contracts.facts import SITE, KubeHold, KubeNode, KubePod, SlurmNode, worker_key
from lockstep.fleet.facts import FactTable
from lockstep.fleet.holds import selects
from lockstep.fleet.worker import Worker, is_live
from lockstep.kube import keys
from lockstep.slurm import states

_LONG_AGO = datetime.min.replace(tzinfo=UTC)


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """What pairing must know besides the facts."""

    hybrid: frozenset[str] = frozenset()
    """Clusters whose workers may have no pod."""
    refused: frozenset[str] = frozenset()
    """The uids of Holds that count for nobody."""
    nodename_label: str = keys.SLURM_NODE_NAME


def pair(table: FactTable, key: WorkerKey, site: Site) -> Worker:
    """Everything known about one worker, joined."""
    cluster, name = key
    pods = sorted(table.pods[key].values(), key=_newest_first)
    pod = pods[0] if pods else None
    desired = table.desired.get(key)
    hybrid = pod is None and cluster in site.hybrid and not (desired and desired.had_pod)
    slurm = table.slurm_nodes.get(key)
    runs_on = pod.node if pod else _host_of(table.nodes, key, site) if hybrid else ""
    node_name = runs_on or (desired.kube_node if desired else "")
    health = table.sources
    worker = Worker(
        cluster=cluster,
        name=name,
        hybrid=hybrid,
        slurm=slurm,
        pod=pod,
        other_pods=pods[1:],
        node=table.nodes.get(node_name),
        node_name=node_name,
        jobs=sorted(table.jobs_on[key].values(), key=lambda job: job.job_id),
        reservations=[r for r in table.reservations[cluster].values() if name in r.nodes],
        slurm_as_of=_as_of(health, "slurm.node", cluster),
        jobs_as_of=_as_of(health, "slurm.job", cluster),
        kube_as_of=_as_of(health, "kube", SITE),
        desired=desired,
        wrote=table.wrote.get(key),
    )
    return msgspec.structs.replace(worker, holds=_holds_on(worker, table.holds[cluster].values(), site))


def believed(worker: Worker) -> SlurmNode | None:
    """The Slurm node as it must be by now: as last read, with our own answered writes that no read can show yet.

    For deciding what to write, never for proving that a worker is drained.
    """
    slurm, wrote, as_of = worker.slurm, worker.wrote, worker.slurm_as_of or _LONG_AGO
    if slurm is None or wrote is None:
        return slurm
    drained, undrained = wrote.drained_at or _LONG_AGO, wrote.undrained_at or _LONG_AGO
    if max(drained, undrained) < as_of or drained == undrained:
        return slurm
    if drained > undrained:
        return msgspec.structs.replace(
            slurm, flags=sorted({*slurm.flags, states.DRAIN} - {states.UNDRAIN}), reason=wrote.words
        )
    return msgspec.structs.replace(slurm, flags=sorted({*slurm.flags} - {states.DRAIN}), reason="")


def workers_on(table: FactTable, node: str, clusters: Collection[str], site: Site) -> Iterator[WorkerKey]:
    """The workers that run on a Kubernetes node: by their pods, and in hybrid clusters by name or label.

    Those too that ran there last and run nowhere now.
    """
    found = {(pod.cluster, pod.worker) for pod in table.pods_on[node].values()}
    found.update(key for last in table.last_on[node].values() if _runs_nowhere(table, key := worker_key(last)))
    yield from sorted(found)
    fact = table.nodes.get(node)
    for cluster in clusters if fact else ():
        if fact and cluster in site.hybrid and fact.labels.get(keys.CLUSTER, cluster) == cluster:
            key = (cluster, slurm_name_of(fact, site))
            last = table.desired.get(key)
            if key in table.slurm_nodes and key not in found and not table.pods[key] and not (last and last.had_pod):
                yield key


def _runs_nowhere(table: FactTable, key: WorkerKey) -> bool:
    return not any(pod.node for pod in table.pods[key].values())


def slurm_name_of(node: KubeNode, site: Site) -> str:
    """The Slurm node that runs on a Kubernetes node of a hybrid site: by label, else by the same name."""
    return node.labels.get(site.nodename_label) or node.name


def _host_of(nodes: Mapping[str, KubeNode], key: WorkerKey, site: Site) -> str:
    cluster, name = key
    same = nodes.get(name)
    if same is not None and slurm_name_of(same, site) == name and same.labels.get(keys.CLUSTER, cluster) == cluster:
        return name
    for node in nodes.values():
        if node.labels.get(site.nodename_label) == name and node.labels.get(keys.CLUSTER, cluster) == cluster:
            return node.name
    return ""


def _newest_first(pod: KubePod) -> tuple[bool, float, str]:
    started = pod.started_at or _LONG_AGO
    return (not is_live(pod), -(started - _LONG_AGO).total_seconds(), pod.uid)


def _as_of(health: Mapping[tuple[str, str], object], source: str, of: str) -> datetime | None:
    return getattr(health.get((source, of)), "complete_as_of", None)


def _holds_on(worker: Worker, holds: Collection[KubeHold], site: Site) -> list[KubeHold]:
    found = [h for h in holds if h.spec and h.uid not in site.refused and selects(h.spec.workers, worker)]
    return sorted(found, key=lambda hold: (hold.namespace, hold.name))
