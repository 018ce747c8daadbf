"""The reconciler: its tasks, and what keeps them going."""

import asyncio
from functools import partial
from typing import Literal

from lockstep.base import clock
from lockstep.base.backoff import backoff
from lockstep.base.errors import Reject, Retry
from lockstep.bus.lanes import Lanes
from lockstep.contracts.common import WorkerKey
from lockstep.contracts.events import Event
from lockstep.contracts.facts import Wrote
from lockstep.contracts.policy import Protect
from lockstep.contracts.subjects import fact_subject
from lockstep.fleet.facts import Touched
from lockstep.fleet.pairing import workers_on
from lockstep.fleet.sources import Returns
from lockstep.kube import keys
from lockstep.kube.errors import KubeError
from lockstep.reconciler.handlers import Reconciler, is_to_be_written
from lockstep.reconciler.hands import Hands
from lockstep.reconciler.tally import seen
from lockstep.reconciler.writer import SlurmWriter
from lockstep.runtime import service
from lockstep.runtime.metrics import HANDLED, QUEUE_DEPTH, observe_leg
from lockstep.runtime.ports import Ports
from lockstep.runtime.service import Service
from lockstep.runtime.settings import ClusterSettings
from lockstep.runtime.site import site_of
from lockstep.runtime.telemetry import traced_as
from lockstep.runtime.tracing import current_traceparent

WIDTH = 4096
"""Workers that are looked at side by side: a gathered write can only gather those that wait for it."""
SWEEP_S = 30.0
"""Between two looks at everybody."""
TELL_AGAIN_S = 1.0

Key = tuple[Literal["worker"], WorkerKey] | tuple[Literal["node"], str]


class ReconcilerTasks:
    """What runs side by side."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._table = ports.mirror.table
        self._site = site_of(ports.settings)
        self._clusters = [cluster.name for cluster in ports.settings.clusters]
        self._writers = {name: SlurmWriter(slurm) for name, slurm in ports.slurm.items()}
        hands = Hands(ports.kube, ports.slurm, self._writers, ports.settings.policy, ports.epoch)
        self._reconciler = Reconciler(
            self._table,
            self._site,
            self._clusters,
            ports.settings.policy,
            hands,
            may_act=ports.may_act,
            anticipate=ports.mirror.anticipate,
            tell=self._tell,
            cause_of=ports.mirror.cause_of,
        )
        self._news: tuple[list[Wrote], list[Event]] = ([], [])
        self._event_traces: dict[str, str] = {}
        self._wake = asyncio.Event()
        self._returns = Returns(ports.settings.policy.stale_after_s)
        self._waiting: set[WorkerKey] = set()
        """Workers to look at with the next heartbeat of their Slurm."""
        self._errors: dict[Key, str] = {}
        self._lanes = Lanes[Key](WIDTH, on_failure=self._failed)

    async def run(self) -> None:
        """All of it, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for writer in self._writers.values():
                tasks.create_task(writer.run())
            tasks.create_task(self._publish())
            async with self._lanes:
                tasks.create_task(self._sweep())
                async for touched in self._ports.mirror.changes():
                    self._enqueue(touched)

    def show(self) -> None:
        """How much waits, for the metrics."""
        QUEUE_DEPTH.labels("reconciler").set(self._lanes.depth)

    def _enqueue(self, touched: Touched) -> None:
        workers = set(touched.workers)
        nodes = set(touched.nodes)
        for node in touched.nodes:
            workers.update(workers_on(self._table, node, self._clusters, self._site))
        workers |= self._returns.workers(self._table, touched.sources)
        read = {cluster for _, cluster in touched.sources}
        workers.update(key for key in self._waiting if key[0] in read)
        for key in workers:
            if key[0] in self._clusters:
                worker = self._reconciler.worker(key)
                self._lanes.put(("worker", key), partial(self._look, key), first=is_to_be_written(worker))
                nodes.add(worker.node_name)
        for node in nodes - {""}:
            self._lanes.put(("node", node), partial(self._look_at_node, node))

    async def _look(self, key: WorkerKey) -> None:
        started = clock.monotonic()
        done = await self._reconciler.look(key)
        took = clock.monotonic() - started
        (self._waiting.add if self._reconciler.waits_for_a_read(key) else self._waiting.discard)(key)
        if done:
            trace = self._table.flows.newest(self._reconciler.worker(key))
            observe_leg("decision-to-write", took, traceparent=trace)
            self._ports.log.info(
                "Wrote",
                worker="/".join(key),
                actions=[type(action).__name__ for action in done],
                because=done[0].because,
                took_ms=round(took * 1000),
                **traced_as(trace),
            )
        self._errors.pop(("worker", key), None)
        HANDLED.labels("reconciler", "ok").inc()

    async def _look_at_node(self, name: str) -> None:
        done = await self._reconciler.look_at_node(name)
        if done:
            actions = [type(action).__name__ for action in done]
            self._ports.log.info("Wrote", node=name, actions=actions, because=done[0].because)
        self._errors.pop(("node", name), None)

    def _failed(self, key: Key, error: Exception, attempt: int) -> float | None:
        """The seconds until the next try. Only our own fault ends anything: one bad worker never stops the others."""
        HANDLED.labels("reconciler", "retry").inc()
        if isinstance(error, Reject):
            raise error
        kind, name = key
        text = str(error) or type(error).__name__
        if self._errors.get(key) != text:
            self._errors[key] = text
            shown = name if isinstance(name, str) else "/".join(name)
            self._ports.log.warning("Not written", kind=kind, name=shown, error=text, attempt=attempt)
        if isinstance(error, Retry) and error.after_s is not None:
            return error.after_s
        return backoff(attempt, limit_s=10.0)

    def _tell(self, wrote: Wrote | None, events: list[Event]) -> None:
        if wrote is not None:
            self._news[0].append(wrote)
        self._news[1].extend(events)
        if events and (traceparent := current_traceparent()):
            self._event_traces.update((event.id, traceparent) for event in events)
        if wrote is not None or events:
            self._wake.set()

    async def _publish(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            (wrote, events), self._news = self._news, ([], [])
            traces = {fact_subject(fact): fact.traceparent for fact in wrote if fact.traceparent}
            try:
                await self._ports.bus.events(events, self._event_traces)
                await self._ports.bus.facts(wrote, traces, {fact_subject(each): each.cause for each in wrote})
            except Retry:
                self._news = (wrote + self._news[0], events + self._news[1])
                await asyncio.sleep(TELL_AGAIN_S)
                self._wake.set()
            else:
                for event in events:
                    self._event_traces.pop(event.id, None)

    async def _sweep(self) -> None:
        while True:
            for cluster in self._ports.settings.clusters:
                await self._keep_budget(cluster)
            await asyncio.sleep(SWEEP_S)
            self._reconciler.forget_answers()
            workers = sorted(self._table.workers())
            self._tell(None, [event for key in workers for event in self._reconciler.drift(key)])
            self._enqueue(Touched(workers=frozenset(workers), nodes=frozenset(self._table.nodes)))

    async def _keep_budget(self, cluster: ClusterSettings) -> None:
        """The PodDisruptionBudget that makes the label count; there is never a second over the same pods."""
        if self._ports.settings.policy.protect is Protect.OFF or not self._ports.may_act():
            return
        try:
            await self._ports.kube.ensure_pdb(cluster.namespace, keys.pdb_name(cluster.name), _guarded(cluster))
        except KubeError as error:
            self._ports.log.warning("Not written", kind="budget", name=cluster.name, error=str(error))


def _guarded(cluster: ClusterSettings) -> dict[str, str]:
    """The labels of protected pods; slurm-operator's own where its labels are used."""
    labels = cluster.workers.labels
    return keys.protected(cluster.name) if keys.CLUSTER in labels else {**labels, keys.POD_PROTECT: keys.TRUE}


async def run(ports: Ports) -> None:
    """Write for every worker until cancelled."""
    tasks, look = ReconcilerTasks(ports), seen(ports.mirror.table)
    ports.mirror.on_change.append(look)
    try:
        with ports.health.observing(tasks.show):
            await tasks.run()
    finally:
        ports.mirror.on_change.remove(look)


SERVICE = Service(name="reconciler", family="reconciler", run=run)


def main() -> int:
    """`lockstep-reconciler`; returns the exit code."""
    return service.main(SERVICE)
