"""Which events belong to one worker's story, and under which subjects they are. Pure."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from lockstep.bus.envelope import Unknown
from lockstep.bus.events import EventSeen
from lockstep.contracts import events as e
from lockstep.contracts.common import WorkerKey
from lockstep.contracts.facts import SITE
from lockstep.contracts.subjects import ROOT, scope_token, token

T = TypeVar("T")

MAX_BESIDE = 200
"""Nodes, requests and jobs that are looked at, at most; the newest are."""
SOURCES = ("slurm.node", "slurm.job")


class Cast:
    """Who plays a part in the story of a worker: itself, its Kubernetes nodes, requests, and jobs that were waited for.

    Whoever is found in an event is added by `learn`; `subjects` then has theirs too.
    """

    def __init__(self, key: WorkerKey, node: str = "") -> None:
        self.key = key
        self._nodes: dict[str, None] = {node: None} if node else {}
        self._requests: dict[str, None] = {}
        self._jobs: dict[int, None] = {}
        self._node = node
        self._followed = False

    @property
    def own(self) -> str:
        """The subject of all that is about the worker itself, of kinds that are not known here too."""
        cluster, name = self.key
        return f"{ROOT}.event.*.*.*.{scope_token(cluster)}.{token(name)}"

    def subjects(self) -> list[str]:
        """Where all events of the story are. None overlaps another: NATS would refuse that."""
        own = (scope_token(self.key[0]), token(self.key[1]))
        beside = ((noun, where, what) for noun, where, what in self._beside() if (where, what) != own)
        return [self.own, *(f"{ROOT}.event.{noun}.*.*.{where}.{what}" for noun, where, what in beside)]

    def _beside(self) -> Iterator[tuple[str, str, str]]:
        cluster = scope_token(self.key[0])
        yield "fleet", SITE, "*"
        yield "source", SITE, "kube"
        for source in SOURCES:
            yield "source", cluster, token(source)
        for node in self._nodes:
            yield "node", SITE, token(node)
        for request in self._requests:
            yield "request", cluster, token(request)
        for job in self._jobs:
            yield "job", cluster, str(job)

    def learn(self, event: e.Event | Unknown) -> bool:
        """Whether the event names somebody who was not known."""
        if not isinstance(event, e.WorkerEvent) or event.worker.key != self.key:
            return False
        nodes = [event.worker.kube_node] if event.worker.kube_node else []
        asked, jobs = list[str](), list[int]()
        if isinstance(event, e.HoldPlaced | e.HoldReleased | e.HoldOverridden) and event.hold.id.startswith("hold/"):
            asked = [event.cause_id] if event.cause_id else []
        if isinstance(event, e.DrainEvent):
            jobs = [job.id for job in event.waiting_for]
        return any([_add(self._nodes, nodes), _add(self._requests, asked), _add(self._jobs, jobs)])

    def has(self, seen: EventSeen) -> bool:
        """Whether the event belongs to the story. To be asked in the order of the stream: nodes change."""
        event = seen.event
        match event:
            case Unknown():
                return seen.subject.endswith(f".{scope_token(self.key[0])}.{token(self.key[1])}")
            case e.WorkerEvent():
                mine = event.worker.key == self.key
                if mine and event.worker.kube_node:
                    self._node, self._followed = event.worker.kube_node, True
                return mine
            case e.NodeEvent():
                named = any(worker.key == self.key for worker in event.workers)
                return named or event.node == self._node or (not self._followed and event.node in self._nodes)
            case e.GapFound():
                return True
            case e.SourceEvent():
                return event.of in {SITE, self.key[0]}
            case e.RequestEvent():
                return event.request in self._requests and event.cluster == self.key[0]
            case e.JobEvent():
                return event.cluster == self.key[0] and (event.job_id in self._jobs or self.key[1] in event.nodes)
            case _:
                return False


def _add(known: dict[T, None], found: Iterable[T]) -> bool:
    new = [each for each in found if each not in known]
    known.update(dict.fromkeys(new))
    while len(known) > MAX_BESIDE:
        del known[next(iter(known))]
    return bool(new)
