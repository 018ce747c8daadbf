"""Reads the whole fleet: from the facts on NATS, or, where there are none, from Kubernetes alone."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

from lockstep.base.clock import now
from lockstep.base.errors import Retry
from lockstep.bus.facts import FactFeed, FactSeen
from lockstep.bus.ordered import CaughtUp, Reset
from lockstep.cli.connect import Reach
from lockstep.cli.output import Out
from lockstep.cli.view import Cluster, Fleet, old_sources
from lockstep.contracts.facts import KubePod, SlurmJob, SlurmNode, SourceHealth
from lockstep.fleet.facts import FactTable
from lockstep.fleet.pairing import Site
from lockstep.kube import keys
from lockstep.kube.errors import Denied, NotFound
from lockstep.kube.wire import Hold, Node, Pod
from lockstep.pod_watcher.decide import hold_fact, node_fact, pod_fact
from lockstep.pod_watcher.model import reading_of, selector_of
from lockstep.runtime.settings import Settings
from lockstep.slurm import states

READ_WITHIN_S = 10.0
WORKERS = f"{keys.APP}=slurmd"
"""The label of all worker pods, whatever their cluster."""


async def read_fleet(reach: Reach, out: Out) -> Fleet:
    """The fleet as it is now; says on stderr when it is seen through Kubernetes alone, or when a source is old.

    Raises:
        KubeError: there are no facts, and Kubernetes cannot be read either.
        BadInput: there are no facts and no kubeconfig.
    """
    try:
        table = await facts_of(reach)
    except Retry as e:
        out.note(f"No facts: {e}. Reading Kubernetes alone, Slurm as its pods' conditions show it.")
        return await _from_kube(reach, out)
    if not table.sources:
        out.note(
            "No facts: no service has told any yet. Reading Kubernetes alone, Slurm as its pods' conditions show it."
        )
        return await _from_kube(reach, out)
    fleet = fleet_of(table, reach.settings)
    for _, of, text in old_sources(fleet):
        out.note(f"Old: {text}" + (f" ({of})" if not of.startswith("_") else ""))
    return fleet


def fleet_of(table: FactTable, settings: Settings) -> Fleet:
    """The fleet of facts; clusters that the settings do not name are taken from the facts."""
    spaces = {pod.cluster: pod.namespace for pods in table.pods.values() for pod in pods.values()}
    spaces = {cluster: next(iter(holds.values())).namespace for cluster, holds in table.holds.items()} | spaces
    spaces |= {c.name: c.namespace for c in settings.clusters}
    names = sorted(spaces.keys() | {cluster for cluster, _ in table.workers()})
    podless = frozenset(names) - {cluster for cluster, _ in table.pods}
    hybrid = frozenset(c.name for c in settings.clusters if c.workers.hybrid) if settings.clusters else podless
    return Fleet(
        table=table,
        now=now(),
        source="nats",
        clusters=[Cluster(name=name, namespace=spaces.get(name, "")) for name in names],
        site=Site(hybrid=hybrid),
        policy=settings.policy,
    )


async def facts_of(reach: Reach) -> FactTable:
    """All facts that NATS has.

    Raises:
        Retry: NATS cannot be reached, or does not tell them in time.
    """
    connection = await reach.bus()
    table = FactTable()
    try:
        async with asyncio.timeout(READ_WITHIN_S), aclosing(FactFeed(connection).items()) as items:  # type: ignore[type-var]
            async for item in items:
                match item:
                    case FactSeen():
                        table.apply(item.fact)
                    case Reset():
                        table.clear()
                    case CaughtUp():
                        return table
    except TimeoutError as e:
        raise Retry(f"NATS did not tell all facts in {READ_WITHIN_S:g} s") from e
    return table


async def _from_kube(reach: Reach, out: Out) -> Fleet:
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
