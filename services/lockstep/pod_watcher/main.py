"""The pod watcher: one task for each watch, one that publishes, one that asks for a sign of life."""

from lockstep.contracts.common import WorkerRef
from lockstep.fleet.facts import family_of
from lockstep.fleet.pairing import pair, workers_on
from lockstep.pod_watcher.handlers import PodWatcher
from lockstep.pod_watcher.traces import Traces
from lockstep.runtime import service
from lockstep.runtime.ports import Ports
from lockstep.runtime.service import Service
from lockstep.runtime.site import site_of


async def run(ports: Ports) -> None:
    """Follow Kubernetes until cancelled, from what the stream already says of it."""
    table, site = ports.mirror.table, site_of(ports.settings)
    clusters = [cluster.name for cluster in ports.settings.clusters]
    traces = Traces(table, site, clusters)

    def refs_on(node: str) -> list[WorkerRef]:
        return [pair(table, key, site).ref for key in workers_on(table, node, clusters, site)]

    watcher = PodWatcher(
        ports.kube,
        ports.bus,
        ports.settings,
        known=[fact for fact in table.all() if family_of(fact) == SERVICE.family],
        step_of=traces.step,
        workers_on=refs_on,
        on_round=lambda: ports.health.beat(ports.name),
    )
    try:
        await watcher.run()
    finally:
        ports.health.end(ports.name)


SERVICE = Service(name="pod-watcher", family="kube", run=run)


def main() -> int:
    """`lockstep-pod-watcher`; returns the exit code."""
    return service.main(SERVICE)
