"""Reads the fleet from Kubernetes alone: Nodes, Pods with their conditions, Holds with their status."""

from collections.abc import Sequence

import msgspec

from lockstep.base.clock import now
from lockstep.cli.connect import Reach
from lockstep.cli.output import Out
from lockstep.cli.view import Cluster, Fleet
from lockstep.contracts.facts import KubePod, SlurmJob, SlurmNode, SourceHealth
from lockstep.fleet.facts import FactTable
from lockstep.kube import keys
from lockstep.kube.errors import Denied, NotFound
from lockstep.kube.wire import Hold, Node, Pod
from lockstep.pod_watcher.decide import hold_fact, node_fact, pod_fact
from lockstep.pod_watcher.model import reading_of, selector_of
from lockstep.runtime.settings import Settings
from lockstep.slurm import states

WORKERS = f"{keys.APP}=slurmd"
"""The label of all worker pods, whatever their cluster."""


async def from_kube(reach: Reach, out: Out) -> Fleet:
    """The fleet as Kubernetes alone shows it; says what may not be seen.

    Raises:
        KubeError: the pods cannot be read.
        BadInput: there is no kubeconfig.
    """
    kube = await reach.kube()
    settings = reach.settings
    if settings.clusters:
        pods = [
            (c.name, p)
            for c in settings.clusters
            for p in await kube.list_pods(namespace=c.namespace, label_selector=selector_of(c))
        ]
    else:
        pods = [(p.metadata.labels.get(keys.CLUSTER, ""), p) for p in await kube.list_pods(label_selector=WORKERS)]
    nodes: list[Node] = []
    holds: list[Hold] = []
    try:
        nodes = await kube.list_nodes()
    except Denied as e:
        out.note(f"Nodes are not shown: {e}")
    try:
        holds = await kube.list_holds()
    except (Denied, NotFound) as e:
        out.note(f"Holds are not shown: {e}")
    return fleet_from_kube(settings, nodes, pods, holds)


async def with_holds_of_now(reach: Reach, fleet: Fleet) -> Fleet:
    """The same fleet with the Holds as Kubernetes has them now: they are what a release is about."""
    kube = await reach.kube()
    spaces: dict[str, list[str]] = {}
    for known in fleet.clusters:
        spaces.setdefault(known.namespace, []).append(known.name)
    for namespace, clusters in spaces.items():
        facts = {
            f.identity: f for hold in await kube.list_holds(namespace=namespace) for f in [hold_fact(hold, clusters)]
        }
        for cluster in clusters:
            for identity, before in list(fleet.table.holds[cluster].items()):
                if identity not in facts:
                    fleet.table.apply(msgspec.structs.replace(before, gone=True))
        for fact in facts.values():
            epoch = fleet.table.epochs.get("kube", 0)
            fleet.table.apply(msgspec.structs.replace(fact, epoch=epoch))
    return fleet


def fleet_from_kube(
    settings: Settings, nodes: Sequence[Node], pods: Sequence[tuple[str, Pod]], holds: Sequence[Hold]
) -> Fleet:
    """The fleet as Kubernetes alone shows it. Each pod comes with its cluster."""
    label = {c.name: c.workers.nodename_label for c in settings.clusters}
    spaces: dict[str, list[str]] = {}
    known = {c.name: c.namespace for c in settings.clusters} or {c: p.metadata.namespace for c, p in pods if c}
    for name, namespace in sorted(known.items()):
        spaces.setdefault(namespace, []).append(name)
    table, at = FactTable(), now()
    table.apply(SourceHealth(source="kube", complete_as_of=at))
    for node in nodes:
        table.apply(node_fact(node, reading_of(settings)))
    for cluster, pod in pods:
        fact = pod_fact(pod, cluster, label.get(cluster, keys.SLURM_NODE_NAME)) if cluster else None
        if fact is not None:
            table.apply(fact)
            if (slurm := shown_by(fact)) is not None:
                table.apply(slurm)
    for hold in holds:
        if clusters := spaces.get(hold.metadata.namespace):
            hold_read = hold_fact(hold, clusters)
            table.apply(hold_read)
            for job in waited_for(hold_read.cluster, hold):
                table.apply(job)
    clusters_known = [Cluster(name=name, namespace=namespace) for name, namespace in sorted(known.items())]
    return Fleet(table=table, now=at, source="kubernetes", clusters=clusters_known, policy=settings.policy)


def shown_by(pod: KubePod) -> SlurmNode | None:
    """The Slurm node as its pod's conditions show it; nobody knows how old that is."""
    shown = [c for c in pod.conditions if c.type.startswith(keys.SLURM_STATE_PREFIX) and c.status == "True"]
    words = [words_of(c.type.removeprefix(keys.SLURM_STATE_PREFIX)) for c in shown]
    if not words:
        return None
    base, flags = states.split(words)
    return SlurmNode(cluster=pod.cluster, name=pod.worker, base=base, flags=flags, reason=shown[0].message)


def words_of(camel: str) -> str:
    """`NotResponding` is `NOT_RESPONDING` in Slurm."""
    return "".join(f"_{c}" if c.isupper() and i else c for i, c in enumerate(camel)).upper()


def waited_for(cluster: str, hold: Hold) -> list[SlurmJob]:
    """The jobs that a Hold's status names."""
    nodes: dict[int, list[str]] = {}
    briefs = {}
    for waiting in hold.status.waiting_for:
        for brief in waiting.jobs:
            nodes.setdefault(brief.id, []).append(waiting.worker)
            briefs[brief.id] = brief
    return [
        SlurmJob(
            cluster=cluster, job_id=i, states=[b.state], user=b.user, partition=b.partition, nodes=nodes[i], end=b.ends
        )
        for i, b in briefs.items()
    ]
