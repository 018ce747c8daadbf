"""Which flow a change in Kubernetes belongs to: one of ours whose write it shows, or one that it begins."""

from collections.abc import Iterable

from lockstep.base import clock
from lockstep.contracts.common import WorkerKey
from lockstep.contracts.facts import Fact, KubeHold, KubeNode, KubePod, worker_key
from lockstep.fleet.facts import FactTable
from lockstep.fleet.flows import attributes_of, is_recent, others
from lockstep.fleet.pairing import Site, workers_on
from lockstep.pod_watcher.decide import is_echo
from lockstep.pod_watcher.handlers import NAME
from lockstep.runtime.tracing import Step


class Traces:
    """Finds the flow of what was seen. Reads the table only."""

    def __init__(self, table: FactTable, site: Site, clusters: Iterable[str]) -> None:
        self._table = table
        self._site = site
        self._clusters = frozenset(clusters)

    def step(self, before: Fact | None, after: Fact) -> Step:
        """The span of one change: `before` was told last."""
        if isinstance(after, KubeHold):
            return self._of_hold(before, after)
        table, keys = self._table, self._workers(after)
        desired = [table.desired[key] for key in keys if key in table.desired]
        parent = ""
        if is_echo(before, after):
            wrote = [*(table.wrote.get(key) for key in keys), *(table.slurm_nodes.get(key) for key in keys)]
            parent = table.flows.origin([*desired, *wrote], clock.now()).traceparent
        links = others(parent, (d.traceparent for d in desired if d.holds))
        return Step(NAME, parent, links, attributes_of(after))

    def _of_hold(self, before: Fact | None, after: KubeHold) -> Step:
        """A new Hold that was asked for within a trace goes on there, and so does our answer in its status.

        What comes of it later links to that.
        """
        now = clock.now()
        is_new = before is None and not after.gone and is_recent(after.created_at, now)
        parent = after.traceparent if is_new else ""
        if is_echo(before, after):
            parent = self._table.flows.origin([before], now).traceparent
        return Step(NAME, parent, others(parent, [after.traceparent]), attributes_of(after))

    def _workers(self, fact: Fact) -> list[WorkerKey]:
        match fact:
            case KubePod():
                return [worker_key(fact)]
            case KubeNode():
                return sorted(workers_on(self._table, fact.name, self._clusters, self._site))
            case _:
                return []
