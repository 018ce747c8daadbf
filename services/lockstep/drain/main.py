"""The drain service: its tasks, and what keeps them going."""

import asyncio
from collections.abc import AsyncIterator, Mapping

from lockstep.base.backoff import backoff
from lockstep.base.errors import Retry
from lockstep.contracts.common import WorkerKey
from lockstep.contracts.facts import Progress, worker_key
from lockstep.contracts.subjects import fact_subject
from lockstep.drain.handlers import Drains, Statuses
from lockstep.drain.model import Decision
from lockstep.drain.requests import Requests
from lockstep.drain.status import refusal
from lockstep.drain.traces import begun_in, step
from lockstep.kube.errors import KubeError
from lockstep.runtime import service
from lockstep.runtime.gauges import Census
from lockstep.runtime.metrics import HANDLED, QUEUE_DEPTH, observe_leg
from lockstep.runtime.ports import Ports
from lockstep.runtime.service import Service
from lockstep.runtime.site import site_of
from lockstep.runtime.telemetry import traced_as
from lockstep.runtime.tracing import steps

TICK_S = 0.5
"""How late a deadline or an expiry may be noticed."""
SWEEP_S = 30.0
"""Between two looks at everybody."""
STATUS_S = 0.5
"""Between two rounds of writing Holds' status."""
TO_BE_WRITTEN = {Progress.WAITING, Progress.NONE}
"""What somebody is to tell Slurm; it goes first where there is much, before how far drains are."""


class DrainTasks:
    """What runs side by side; `dirty` is all that they share."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._table = ports.mirror.table
        clusters = [cluster.name for cluster in ports.settings.clusters]
        self._drains = Drains(
            self._table,
            site_of(ports.settings),
            clusters,
            ports.settings.policy,
            epoch=ports.epoch,
            cause_of=ports.mirror.cause_of,
        )
        self._statuses = Statuses(self._table)
        self._dirty: set[WorkerKey] = set()
        self._dirty_since = 0.0
        self._wake = asyncio.Event()
        self._status_wake = asyncio.Event()

    async def run(self) -> None:
        """All of it, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._collect())
            tasks.create_task(self._tick())
            tasks.create_task(self._work())
            tasks.create_task(self._show())
            tasks.create_task(Requests(self._ports).run())

    def show(self) -> None:
        """How much waits, for the metrics."""
        QUEUE_DEPTH.labels("drain").set(len(self._dirty))

    async def _collect(self) -> None:
        async for touched in self._ports.mirror.changes():
            keys = self._drains.touched(touched)
            if touched.clusters and not keys:
                self._status_wake.set()
            self._mark(keys)

    async def _tick(self) -> None:
        async for number in _every(TICK_S):
            self._mark(self._drains.due())
            if number % round(SWEEP_S / TICK_S) == 0:
                self._mark(self._drains.everybody())
                self._statuses.tidy()
                self._status_wake.set()

    async def _work(self) -> None:
        attempt = 0
        while True:
            await self._wake.wait()
            self._wake.clear()
            (keys, self._dirty), since = (self._dirty, set()), self._dirty_since
            try:
                await self._publish(keys, since)
                attempt = 0
            except Retry:
                HANDLED.labels("drain", "retry").inc(len(keys))
                self._mark(keys)
                await asyncio.sleep(backoff(attempt, limit_s=5.0))
                attempt += 1

    async def _publish(self, keys: set[WorkerKey], since: float) -> None:
        """Decides for these workers, of which the first was touched at `since`, and tells what is wanted now."""
        decided = self._drains.look(keys)
        with steps(lambda: {d.worker.key: step(d, self._table.flows) for d in decided}) as traces:
            told = [begun_in(d.decision, traces.get(d.worker.key, "")) for d in decided]
            await self._tell([each for each in told if each.desired.progress in TO_BE_WRITTEN], traces)
            await self._tell([each for each in told if each.desired.progress not in TO_BE_WRITTEN], traces)
        if decided:
            took_s = self._ports.clock.monotonic() - since
            observe_leg("fact-to-decision", took_s, traceparent=next(iter(traces.values()), ""))
        self._status_wake.set()
        HANDLED.labels("drain", "ok").inc(len(keys))

    async def _tell(self, decided: list[Decision], traces: Mapping[WorkerKey, str]) -> None:
        """The events first, so that a crash in between repeats them and loses none."""
        events = [event for each in decided for event in each.events]
        if events:
            of_events = {e.id: traces[worker_key(d.desired)] for d in decided if traces for e in d.events}
            await self._ports.bus.events(events, of_events)
        desired = [each.desired for each in decided]
        if desired:
            of_facts = {fact_subject(d): traces[worker_key(d)] for d in desired if traces}
            causes = {fact_subject(d.desired): d.events[-1].id for d in decided if d.events}
            await self._ports.bus.facts(desired, of_facts, causes)
            for each in desired:
                self._ports.mirror.anticipate(each)
                self._ports.log.info(
                    "Decided",
                    worker=f"{each.cluster}/{each.name}",
                    actions=each.progress,
                    because=each.words or "in service",
                    **traced_as(traces.get(worker_key(each), "")),
                )

    async def _show(self) -> None:
        """Writes the status of Holds, at a pace of its own: people may read it half a second later."""
        while True:
            await self._status_wake.wait()
            self._status_wake.clear()
            for hold, status in self._statuses.news(self._drains.refused):
                refused = refusal(hold, status, self._ports.clock.now())
                try:
                    if refused is not None:
                        await self._ports.bus.event(refused)
                    await self._ports.kube.set_hold_status(hold.namespace, hold.name, status, uid=hold.uid)
                except (KubeError, Retry) as error:
                    self._ports.log.debug("Status not written", hold=f"{hold.namespace}/{hold.name}", error=str(error))
                    self._status_wake.set()
                else:
                    self._statuses.told(hold, status)
            await asyncio.sleep(STATUS_S)

    def _mark(self, keys: set[WorkerKey]) -> None:
        if keys:
            if not self._dirty:
                self._dirty_since = self._ports.clock.monotonic()
            self._dirty |= keys
            self._wake.set()


async def _every(seconds: float) -> AsyncIterator[int]:
    number = 0
    while True:
        yield number
        number += 1
        await asyncio.sleep(seconds)


async def run(ports: Ports) -> None:
    """Decide for every worker until cancelled; the one who decides counts the fleet for the metrics."""
    tasks, census = DrainTasks(ports), Census(ports.mirror.table, ports.settings.policy)
    with ports.health.observing(tasks.show), ports.health.observing(census.show):
        try:
            await tasks.run()
        finally:
            census.forget()


SERVICE = Service(name="drain", family="drain", run=run)


def main() -> int:
    """`lockstep-drain`; returns the exit code."""
    return service.main(SERVICE)
