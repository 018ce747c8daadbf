"""Reads the whole fleet: from the facts on NATS, or, where there are none, from Kubernetes alone."""

import asyncio
from contextlib import aclosing

from lockstep.base.clock import now
from lockstep.base.errors import Retry
from lockstep.bus.facts import FactFeed, FactSeen
from lockstep.bus.ordered import CaughtUp, Reset
from lockstep.cli.connect import Reach
from lockstep.cli.kube_only import from_kube
from lockstep.cli.output import Out
from lockstep.cli.view import Cluster, Fleet, old_sources
from lockstep.fleet.facts import FactTable
from lockstep.fleet.pairing import Site
from lockstep.runtime.settings import Settings
from lockstep.runtime.site import site_of

READ_WITHIN_S = 10.0


async def read_fleet(reach: Reach, out: Out) -> Fleet:
    """The fleet as it is now; says on stderr when it is seen through Kubernetes alone, or when a source is old.

    Raises:
        KubeError: there are no facts, and Kubernetes cannot be read either.
        BadInput: there are no facts and no kubeconfig.
    """
    try:
        table = await facts_of(reach)
    except Retry as e:
        return await _degraded(reach, out, str(e))
    if not table.sources:
        return await _degraded(reach, out, "no service has told any yet")
    fleet = fleet_of(table, reach.settings)
    for _, of, text in old_sources(fleet):
        out.note(f"Old: {text}" + (f" ({of})" if not of.startswith("_") else ""))
    return fleet


async def _degraded(reach: Reach, out: Out, why: str) -> Fleet:
    out.note(f"No facts: {why}. Reading Kubernetes alone, Slurm as its pods' conditions show it.")
    return await from_kube(reach, out)


def fleet_of(table: FactTable, settings: Settings) -> Fleet:
    """The fleet of facts; clusters that the settings do not name are taken from the facts."""
    spaces = {pod.cluster: pod.namespace for pods in table.pods.values() for pod in pods.values()}
    spaces = {cluster: next(iter(holds.values())).namespace for cluster, holds in table.holds.items()} | spaces
    spaces |= {c.name: c.namespace for c in settings.clusters}
    names = sorted(spaces.keys() | {cluster for cluster, _ in table.workers()})
    podless = frozenset(names) - {cluster for cluster, _ in table.pods}
    return Fleet(
        table=table,
        now=now(),
        source="nats",
        clusters=[Cluster(name=name, namespace=spaces.get(name, "")) for name in names],
        site=site_of(settings) if settings.clusters else Site(hybrid=podless),
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
                        table.note_trace(item.fact, item.traceparent, item.sequence)
                    case Reset():
                        table.clear()
                    case CaughtUp():
                        return table
    except TimeoutError as e:
        raise Retry(f"NATS did not tell all facts in {READ_WITHIN_S:g} s") from e
    return table
