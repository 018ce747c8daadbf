"""A watcher that runs, over a scripted Kubernetes and a bus that writes down what it is given."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

from lockstep.base.errors import Retry
from lockstep.bus.publisher import Publisher
from lockstep.contracts.common import WorkerRef
from lockstep.contracts.events import Event
from lockstep.contracts.facts import Fact, SourceHealth
from lockstep.contracts.subjects import tag_of
from lockstep.fleet.facts import FactTable
from lockstep.fleet.pairing import Site
from lockstep.kube.errors import Unreachable
from lockstep.kube.port import Delta, KubeApi
from lockstep.kube.wire import Hold, ManagedMeta, Node, NodeSpec, Pod
from lockstep.pod_watcher.handlers import PodWatcher
from lockstep.pod_watcher.traces import Traces
from lockstep.runtime.settings import ClusterSettings, Settings
from tests.unit.pod_watcher.as_read import AT

SETTINGS = Settings(
    clusters=[ClusterSettings(name="main", namespace="slurm", url="http://slurm:6820", key_file="/key")]
)
SYNCED: Delta[Any] = Delta(kind="synced", at=AT)


class Bus:
    """Writes down what is published; does not answer while `away`."""

    def __init__(self) -> None:
        self.told: list[Fact] = []
        self.happened: list[Event] = []
        self.order: list[str] = []
        self.traces: dict[str, str] = {}
        self.causes: dict[str, str] = {}
        self.away = False

    async def facts(
        self,
        facts: Sequence[Fact],
        traces: Mapping[str, str] | None = None,
        causes: Mapping[str, str] | None = None,
    ) -> int:
        """As the publisher."""
        if self.away:
            raise Retry("NATS is away", after_s=0.01)
        self.causes |= causes or {}
        self.told += facts
        self.order += [fact.identity for fact in facts]
        self.traces |= traces or {}
        return len(self.told)

    async def fact(self, fact: Fact) -> bool:
        """As the publisher."""
        return await self.facts([fact]) > 0

    async def events(self, events: Iterable[Event], traces: Mapping[str, str] | None = None) -> None:
        """As the publisher."""
        if self.away:
            raise Retry("NATS is away", after_s=0.01)
        self.happened += events
        self.order += [tag_of(type(event)) for event in events]
        self.traces |= traces or {}

    @property
    def beats(self) -> list[SourceHealth]:
        """The heartbeats and health messages."""
        return [fact for fact in self.told if isinstance(fact, SourceHealth)]

    @property
    def things(self) -> list[Fact]:
        """All other facts."""
        return [fact for fact in self.told if not isinstance(fact, SourceHealth)]


class Kube:
    """A watch for each kind that says what the test says."""

    def __init__(self) -> None:
        self.lines: dict[type[Any], asyncio.Queue[Delta[Any] | None]] = {k: asyncio.Queue() for k in (Node, Pod, Hold)}
        self.silent = False

    async def watch(self, kind: type[Any], **_: Any) -> AsyncIterator[Delta[Any]]:
        """As the port."""
        while (delta := await self.lines[kind].get()) is not None:
            yield delta

    async def server_version(self) -> None:
        """A sign of life."""
        if self.silent:
            raise Unreachable("no answer")

    def say(self, kind: type[Any], *deltas: Delta[Any] | None) -> None:
        """Say this on the watch of a kind."""
        for delta in deltas:
            self.lines[kind].put_nowait(delta)

    def all_synced(self) -> None:
        """Every list is complete."""
        for kind in self.lines:
            self.say(kind, SYNCED)


class Scene:
    """A watcher that runs."""

    def __init__(self, known: Iterable[Fact] = ()) -> None:
        self.kube, self.bus = Kube(), Bus()
        self.watcher = PodWatcher(
            cast(KubeApi, self.kube),
            cast(Publisher, self.bus),
            SETTINGS,
            known=known,
            step_of=Traces(FactTable(), Site(), ["main"]).step,
            workers_on=lambda node: [WorkerRef(cluster="main", name="gpu-7", kube_node=node)],
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Scene"]:
        """Runs inside the context."""
        task = asyncio.get_running_loop().create_task(self.watcher.run())
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def node(name: str, version: int = 1, **spec: Any) -> Node:
    """A Node."""
    return Node(metadata=ManagedMeta(name=name, uid=f"u-{name}", resource_version=str(version)), spec=NodeSpec(**spec))


def changed(after: Any) -> Delta[Any]:
    """A watch's line."""
    return Delta(kind="changed", after=after, at=AT)


async def eventually(holds: Callable[[], object], within_s: float = 2.0) -> None:
    """Waits until it holds."""
    async with asyncio.timeout(within_s):
        while not holds():
            await asyncio.sleep(0.005)
