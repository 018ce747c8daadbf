"""The newest fact of each thing, indexed. Pure: no loop, no clock, no client."""

from collections.abc import Callable, Hashable, Iterable, Iterator
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from lockstep.contracts.common import WorkerKey
from lockstep.contracts.facts import (
    SITE,
    Desired,
    Fact,
    ForwardPosition,
    KubeHold,
    KubeNode,
    KubePod,
    SlurmJob,
    SlurmNode,
    SlurmReservation,
    SourceHealth,
    Wrote,
    worker_key,
)
from lockstep.contracts.subjects import tag_of
from lockstep.fleet.flows import Flows

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

FactKey = tuple[type[Fact], str, str]
"""Kind, scope and identity: what a subject says, without being encoded."""

CauseOf = Callable[..., str]
"""The newest of the events because of which these things (`FactKey`s) are as they are; empty when none is known."""

MAX_TOMBSTONES = 10_000
"""Things gone that a table remembers; the oldest are forgotten first."""


SourceKey = tuple[str, str]
"""`(source, cluster or _site)`, such as `("kube", "_site")`."""


class Touched(NamedTuple):
    """What one or many facts are about, so that a service knows whom to look at again.

    A change of a Hold or a reservation names its cluster, because it may concern any worker there. A source's
    heartbeat names the source: it matters to those that wait for a later reading, and when a source is lost or back.
    The first after the source was incomplete names its workers too: what was decided meanwhile counts no more.
    """

    workers: frozenset[WorkerKey] = frozenset()
    nodes: frozenset[str] = frozenset()
    clusters: frozenset[str] = frozenset()
    sources: frozenset[SourceKey] = frozenset()

    def __or__(self, other: "Touched") -> "Touched":
        """Both together."""
        return together((self, other))

    def __bool__(self) -> bool:
        """Whether there is anything to look at."""
        return any(self)


NOTHING = Touched()


def together(each: Iterable[Touched]) -> Touched:
    """What several changes are about."""
    each = list(each)
    return Touched(
        workers=frozenset(key for touched in each for key in touched.workers),
        nodes=frozenset(name for touched in each for name in touched.nodes),
        clusters=frozenset(name for touched in each for name in touched.clusters),
        sources=frozenset(key for touched in each for key in touched.sources),
    )


class Many(dict[K, dict[str, V]]):
    """Several things under one key, by identity. A key without things reads as empty and is not kept."""

    def __missing__(self, key: K) -> dict[str, V]:
        """Empty, and still missing."""
        return {}


class FactTable:
    """All facts, each in the newest form. `apply` is the only way in; everything else is read."""

    def __init__(self) -> None:
        self.slurm_nodes: dict[WorkerKey, SlurmNode] = {}
        self.nodes: dict[str, KubeNode] = {}
        self.pods: Many[WorkerKey, KubePod] = Many()
        """Per worker, by `namespace/name`; two when an old pod terminates while its successor starts."""
        self.pods_on: Many[str, KubePod] = Many()
        """Per Kubernetes node, by `namespace/name`."""
        self.holds: Many[str, KubeHold] = Many()
        """Per cluster, by `namespace/name`."""
        self.jobs: Many[str, SlurmJob] = Many()
        """Per cluster, by job number."""
        self.jobs_on: Many[WorkerKey, SlurmJob] = Many()
        self.reservations: Many[str, SlurmReservation] = Many()
        """Per cluster, by name."""
        self.desired: dict[WorkerKey, Desired] = {}
        self.last_on: Many[str, Desired] = Many()
        """Per Kubernetes node, the workers that run there or ran there last, by `cluster/name`."""
        self.wrote: dict[WorkerKey, Wrote] = {}
        self.sources: dict[SourceKey, SourceHealth] = {}
        self.flows = Flows()
        """The trace in which each newest fact arose; noted by whoever reads the stream."""
        self.gone_at: dict[FactKey, datetime | None] = {}
        """Things that were there and are gone, and when that was read."""
        self.epochs: dict[str, int] = {}
        """The highest epoch of each family of sources: `kube`, `slurm`, `drain`, `reconciler`."""
        self._facts: dict[FactKey, Fact] = {}
        self._by_worker: dict[type[Fact], Any] = {
            SlurmNode: self.slurm_nodes,
            Desired: self.desired,
            Wrote: self.wrote,
        }
        self._by_cluster: dict[type[Fact], Any] = {
            KubeHold: self.holds,
            SlurmJob: self.jobs,
            SlurmReservation: self.reservations,
        }

    def __len__(self) -> int:
        return len(self._facts)

    def __contains__(self, key: FactKey) -> bool:
        """Whether a fact about this stands."""
        return key in self._facts

    def get(self, fact: Fact) -> Fact | None:
        """What is known of the same thing, or None."""
        return self._facts.get(key_of(fact))

    def all(self) -> list[Fact]:
        """Every fact that stands."""
        return list(self._facts.values())

    def of_kind(self, kind: type[V]) -> list[V]:
        """All facts of one kind."""
        return [fact for fact in self._facts.values() if isinstance(fact, kind)]

    def apply(self, fact: Fact) -> Touched:
        """Takes in one fact, and says what it changes; nothing for a fact of a lower epoch or with no news."""
        family = family_of(fact)
        highest = self.epochs.get(family, 0)
        if fact.epoch < highest:
            return NOTHING
        if fact.epoch > highest:
            self.epochs[family] = fact.epoch
        key = key_of(fact)
        before = self._facts.get(key)
        if before == fact or (before is None and fact.gone and key in self.gone_at):
            return NOTHING
        if before is not None:
            self._take_out(before)
        if fact.gone:
            self._facts.pop(key, None)
            self._bury(key, fact)
        else:
            self._facts[key] = fact
            self.gone_at.pop(key, None)
            self._put_in(fact)
        touched = touched_by(fact) if before is None else touched_by(before) | touched_by(fact)
        if isinstance(fact, SourceHealth) and fact.complete_as_of is not None and not _is_complete(before):
            cluster = "" if fact.of == SITE else fact.of
            return touched | Touched(workers=frozenset(self.workers(cluster)))
        return touched

    def note_trace(self, fact: Fact, traceparent: str, sequence: int) -> None:
        """In which trace a fact of the stream arose; one that `apply` would drop as overtaken is not noted."""
        if fact.epoch >= self.epochs.get(family_of(fact), 0):
            self.flows.note(fact, traceparent, sequence)

    def clear(self) -> Touched:
        """Forgets everything (the stream was lost), and names what was known."""
        touched = self.everything()
        for fact in list(self._facts.values()):
            self._take_out(fact)
        self._facts.clear()
        self.gone_at.clear()
        self.flows.clear()
        return touched

    def everything(self) -> Touched:
        """All that any fact is about."""
        return together(touched_by(fact) for fact in self._facts.values())

    def workers(self, cluster: str = "") -> set[WorkerKey]:
        """Every worker that any fact names, in one cluster or (empty) in all."""
        keys = self.slurm_nodes.keys() | self.pods.keys() | self.desired.keys() | self.wrote.keys()
        return {key for key in keys if not cluster or key[0] == cluster}

    def _bury(self, key: FactKey, fact: Fact) -> None:
        self.gone_at.pop(key, None)
        self.gone_at[key] = fact.read_at
        if len(self.gone_at) > MAX_TOMBSTONES:
            del self.gone_at[next(iter(self.gone_at))]

    def _put_in(self, fact: Fact) -> None:
        for shelf, key, identity in self._places(fact):
            if identity:
                shelf.setdefault(key, {})[identity] = fact
            else:
                shelf[key] = fact

    def _take_out(self, fact: Fact) -> None:
        for shelf, key, identity in self._places(fact):
            if not identity:
                shelf.pop(key, None)
            elif key in shelf:
                shelf[key].pop(identity, None)
                if not shelf[key]:
                    del shelf[key]

    def _places(self, fact: Fact) -> Iterator[tuple[dict[Any, Any], Any, str]]:
        """Where a fact is kept: the dict, its key, and the identity below that key (empty: right under the key)."""
        match fact:
            case SlurmNode() | Desired() | Wrote():
                yield self._by_worker[type(fact)], worker_key(fact), ""
            case KubeHold() | SlurmJob() | SlurmReservation():
                yield self._by_cluster[type(fact)], fact.cluster, fact.identity
            case KubePod():
                yield self.pods, worker_key(fact), fact.identity
                yield self.pods_on, fact.node, fact.identity
            case KubeNode():
                yield self.nodes, fact.name, ""
            case SourceHealth():
                yield self.sources, (fact.source, fact.of), ""
        if isinstance(fact, SlurmJob):
            for node in fact.nodes:
                yield self.jobs_on, (fact.cluster, node), fact.identity
        if isinstance(fact, Desired):
            yield self.last_on, fact.kube_node, f"{fact.cluster}/{fact.name}"


def key_of(fact: Fact) -> FactKey:
    """What the fact is about."""
    return (type(fact), fact.scope, fact.identity)


def family_of(fact: Fact) -> str:
    """Who counts the fact's epoch: the service that alone writes this kind of fact."""
    return (fact.source if isinstance(fact, SourceHealth) else tag_of(type(fact))).partition(".")[0]


def _is_complete(source: Fact | None) -> bool:
    return isinstance(source, SourceHealth) and source.complete_as_of is not None


def touched_by(fact: Fact) -> Touched:
    """What one fact is about."""
    match fact:
        case SlurmNode() | Desired() | Wrote():
            return Touched(workers=frozenset({worker_key(fact)}))
        case KubePod():
            return Touched(workers=frozenset({worker_key(fact)}), nodes=frozenset({fact.node} - {""}))
        case KubeNode():
            return Touched(nodes=frozenset({fact.name}))
        case SlurmJob():
            return Touched(workers=frozenset((fact.cluster, node) for node in fact.nodes))
        case ForwardPosition():
            return NOTHING
        case SourceHealth():
            return Touched(sources=frozenset({(fact.source, fact.of)}))
        case _:
            return Touched(clusters=frozenset({fact.scope}))
