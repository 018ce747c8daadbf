"""The Slurm poller: one task for each cluster, and one that shows on Kubernetes whether Slurm can be read."""

import asyncio
from contextlib import suppress
from functools import partial
from typing import NoReturn

from lockstep.contracts.common import WorkerRef
from lockstep.contracts.events import SourceLost
from lockstep.contracts.facts import SlurmNode, worker_key
from lockstep.fleet.facts import family_of
from lockstep.fleet.pairing import pair
from lockstep.kube.errors import KubeError
from lockstep.kube.port import Regarding
from lockstep.runtime import service
from lockstep.runtime.ports import Ports
from lockstep.runtime.service import Service
from lockstep.runtime.site import site_of
from lockstep.runtime.telemetry import Outage
from lockstep.slurm_poller.handlers import ClusterPoller
from lockstep.slurm_poller.news import News
from lockstep.slurm_poller.shown import slurm_read
from lockstep.slurm_poller.traces import Traces

TELL_WITHIN_S = 2.0
SHOW_EVERY_S = 2.0
"""So often the Deployment's condition is looked at."""


async def run(ports: Ports) -> None:
    """Read every cluster until cancelled, from what the stream already says of it."""
    settings, table, site = ports.settings, ports.mirror.table, site_of(ports.settings)
    known = [fact for fact in table.all() if family_of(fact) == SERVICE.family]

    def ref_of(node: SlurmNode) -> WorkerRef:
        return pair(table, worker_key(node), site).ref

    async with asyncio.TaskGroup() as tasks:
        for cluster, slurm in ports.slurm.items():
            poller = ClusterPoller(
                cluster,
                slurm,
                ports.bus,
                poll=settings.poll,
                policy=settings.policy,
                jobs=settings.jobs,
                known=known,
                step_of=Traces(table).step,
                ref_of=ref_of,
                news=News(ports.mirror),
                tell=partial(_tell, ports),
            )
            tasks.create_task(_poll(poller, f"{ports.name}/{cluster}", ports))
        if settings.health.deployment:
            tasks.create_task(show(ports))


async def show(ports: Ports) -> NoReturn:
    """Keep the Deployment's condition as the facts are; what keeps it from being written is tried again, and said once.

    Whoever reads Slurm waits for nothing here.
    """
    namespace, name = ports.settings.lease_namespace, ports.settings.health.deployment
    outage = Outage(ports.log, "The Deployment's condition", namespace=namespace, name=name)
    while True:
        wanted = slurm_read(ports.mirror.table.sources.values(), ports.slurm)
        if wanted is not None and ports.may_act():
            try:
                async with asyncio.timeout(TELL_WITHIN_S):
                    await ports.kube.set_deployment_condition(namespace, name, wanted)
                outage.up()
            except (KubeError, TimeoutError) as e:
                outage.down(str(e) or f"no answer within {TELL_WITHIN_S:g} s")
        await asyncio.sleep(SHOW_EVERY_S)


async def _tell(ports: Ports, lost: SourceLost) -> None:
    """What an administrator who has only kubectl sees, in the cluster's namespace; nothing waits for it for long."""
    namespace = ports.settings.cluster(lost.of).namespace
    regarding = Regarding(kind="Namespace", name=namespace, namespace=namespace)
    message = f"Slurm cluster {lost.of}, {lost.source}: {lost.error}"
    with suppress(KubeError, TimeoutError):
        async with asyncio.timeout(TELL_WITHIN_S):
            await ports.kube.emit_event(regarding, reason="SlurmLost", message=message, kind="Warning")


async def _poll(poller: ClusterPoller, task: str, ports: Ports) -> None:
    try:
        await poller.run(lambda: ports.health.beat(task))
    finally:
        ports.health.end(task)


SERVICE = Service(name="slurm-poller", family="slurm", run=run)


def main() -> int:
    """`lockstep-slurm-poller`; returns the exit code."""
    return service.main(SERVICE)
