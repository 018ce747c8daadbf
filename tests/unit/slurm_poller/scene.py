"""A poller that is turned by hand, over a scripted Slurm and a bus that writes down what it is given."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Literal, cast

from lockstep.base.errors import Retry
from lockstep.bus.publisher import Publisher
from lockstep.contracts.events import Event
from lockstep.contracts.facts import Fact, SlurmJob, SlurmNode, SlurmReservation, SourceHealth
from lockstep.contracts.policy import Policy
from lockstep.contracts.subjects import tag_of
from lockstep.fleet.facts import FactTable
from lockstep.runtime.settings import PollSettings
from lockstep.slurm import states
from lockstep.slurm.errors import Busy, SlurmError
from lockstep.slurm.port import JobList, NodeList, SlurmApi
from lockstep.slurm_poller.handlers import ClusterPoller
from lockstep.slurm_poller.traces import Traces

Told = Literal["off", "drains", "all"]
POLL = PollSettings(min_interval_s=0.05, max_interval_s=1.0)


def a_node(name: str = "gpu-7", state: str = "IDLE", **fields: Any) -> SlurmNode:
    """A node as the client gives it."""
    base, flags = states.split(state)
    return SlurmNode(cluster="main", name=name, base=base, flags=flags, **fields)


def a_job(job_id: int, *nodes: str) -> SlurmJob:
    """A running job."""
    return SlurmJob(cluster="main", job_id=job_id, states=["RUNNING"], nodes=list(nodes))


class Bus:
    """Writes down what is published, in order; does not answer while `away`."""

    def __init__(self) -> None:
        self.told: list[Fact] = []
        self.happened: list[Event] = []
        self.order_of_all: list[str] = []
        self.traces: dict[str, str] = {}
        self.causes: dict[str, str] = {}
        self.table = FactTable()
        self.away = False

    async def facts(
        self,
        facts: Iterable[Fact],
        traces: Mapping[str, str] | None = None,
        causes: Mapping[str, str] | None = None,
    ) -> int:
        """As the publisher."""
        if self.away:
            raise Retry("NATS is away", after_s=0.01)
        self.traces |= traces or {}
        self.causes |= causes or {}
        for fact in facts:
            self.told.append(fact)
            self.order_of_all.append(fact.identity)
            self.table.apply(fact)
        return len(self.told)

    async def fact(self, fact: Fact) -> bool:
        """As the publisher."""
        return await self.facts([fact]) > 0

    async def events(self, events: Iterable[Event], traces: Mapping[str, str] | None = None) -> None:
        """As the publisher."""
        if self.away:
            raise Retry("NATS is away", after_s=0.01)
        self.happened += events
        self.order_of_all += [tag_of(type(event)) for event in events]
        self.traces |= traces or {}

    @property
    def order(self) -> list[str]:
        """What was published, in words."""
        return [
            f"beat {f.source}" if isinstance(f, SourceHealth) else f"{'gone ' * f.gone}{f.identity}" for f in self.told
        ]


class Slurm:
    """Answers as Slurm does: with nothing when nothing has changed since."""

    def __init__(self, *nodes: SlurmNode) -> None:
        self.here = list(nodes)
        self.running: list[SlurmJob] = []
        self.reserved: list[SlurmReservation] = []
        self.stamp = 1
        self.asked: list[tuple[str, int]] = []
        self.error: SlurmError | None = None
        self.jobs_error: SlurmError | None = None
        self.hangs = False
        self.takes_turns = False
        self.jobs_take_s = 0.0

    def now(self, *nodes: SlurmNode) -> None:
        """From now on these are the nodes."""
        self.here, self.stamp = list(nodes), self.stamp + 1

    async def nodes(self, *, since: int = 0) -> NodeList | None:
        """As the port."""
        await self._answer("nodes", since, self.error)
        return None if since == self.stamp else NodeList(nodes=self.here, last_update=self.stamp)

    async def jobs(self, *, since: int = 0) -> JobList | None:
        """As the port."""
        await self._answer("jobs", since, self.jobs_error)
        await asyncio.sleep(self.jobs_take_s)
        return None if since == self.stamp else JobList(jobs=self.running, last_update=self.stamp)

    async def reservations(self) -> list[SlurmReservation]:
        """As the port."""
        await self._answer("reservations", 0, self.error)
        return self.reserved

    async def _answer(self, what: str, since: int, error: SlurmError | None) -> None:
        self.asked.append((what, since))
        if self.hangs:
            await asyncio.sleep(60)
        if self.takes_turns and len(self.asked) % 2:
            raise Busy("slurmrestd is busy", status=503)
        if error is not None:
            raise error


class Scene:
    """A poller that is turned by hand."""

    def __init__(self, *nodes: SlurmNode, known: Iterable[Fact] = (), jobs: Told = "drains") -> None:
        self.slurm, self.bus = Slurm(*nodes), Bus()
        self.poller = ClusterPoller(
            "main",
            cast(SlurmApi, self.slurm),
            cast(Publisher, self.bus),
            poll=POLL,
            policy=Policy(),
            known=known,
            jobs=jobs,
            step_of=Traces(self.bus.table).step,
        )

    async def cycle(self, times: int = 1) -> float:
        """So many cycles; the wait that the last one asked for."""
        wait_s = 0.0
        for _ in range(times):
            wait_s = await self.poller.cycle()
        return wait_s

    def news(self) -> list[str]:
        """What was published since the last call."""
        order, self.bus.told = self.bus.order, []
        return order
