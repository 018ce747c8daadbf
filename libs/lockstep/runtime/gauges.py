"""Brings gauges up to date right before they are shown: the sources, the streams, and the fleet."""

from collections import Counter
from collections.abc import Mapping
from functools import lru_cache

from prometheus_client import Gauge

from lockstep.base import clock
from lockstep.bus.streams import StreamState
from lockstep.contracts.common import WorkerKey
from lockstep.contracts.facts import KubePod, Progress, SlurmNode
from lockstep.contracts.policy import Policy, Protect
from lockstep.contracts.subjects import FACTS
from lockstep.fleet.facts import FactTable
from lockstep.fleet.mirror import Mirror
from lockstep.fleet.worker import is_live
from lockstep.runtime import metrics
from lockstep.slurm.states import NodePhase, is_busy, phase_of

OWNERS = 50
"""Rows of holds (cluster, class, owner) that are told by name; the owners of the others are `other`."""
OTHER = "other"
NODES = "system:node:"
"""Kubernetes calls the user of a node's kubelet so, with the node's name behind; its group is `system:nodes`."""
COUNT_EVERY_S = 1.0
"""The fleet is counted at most so often, however many ask."""

Rows = Mapping[tuple[str, ...], float]


def show_sources(mirror: Mirror) -> None:
    """How old each source is, and whether it can be read."""
    at = clock.now()
    ages: dict[tuple[str, ...], float] = {}
    up: dict[tuple[str, ...], float] = {}
    for key, health in mirror.table.sources.items():
        up[key] = 0.0 if health.last_error else 1.0
        if health.complete_as_of is not None:
            ages[key] = (at - health.complete_as_of).total_seconds()
    _fill(metrics.SOURCE_AGE, ages)
    _fill(metrics.SOURCE_UP, up)


def show_streams(service: str, mirror: Mirror, states: Mapping[str, StreamState]) -> None:
    """How full each stream was at its last check, and how far behind that the mirror is."""
    _fill(metrics.STREAM_BYTES, {(name,): state.bytes for name, state in states.items()})
    _fill(metrics.STREAM_MESSAGES, {(name,): state.messages for name, state in states.items()})
    _fill(metrics.STREAM_LAST, {(name,): state.last for name, state in states.items()})
    bounded = {name: state for name, state in states.items() if state.max_bytes > 0}
    _fill(metrics.STREAM_LIMIT, {(name,): state.max_bytes for name, state in bounded.items()})
    _fill(metrics.STREAM_USED, {(name,): state.bytes / state.max_bytes for name, state in bounded.items()})
    if facts := states.get(FACTS.name):
        metrics.LAG.labels(service, FACTS.name).set(max(facts.last - mirror.sequence, 0))


class Census:
    """Counts the fleet from its facts, in one pass over the workers."""

    def __init__(self, table: FactTable, policy: Policy) -> None:
        self._table = table
        self._policy = policy
        self._allowed = tuple(policy.allowed_flags)
        self._counted_at: float | None = None

    def show(self) -> None:
        """Counts anew, unless that was done within the last second."""
        at = clock.monotonic()
        if self._counted_at is not None and at - self._counted_at < COUNT_EVERY_S:
            return
        self._counted_at = at
        phases, drains, pods = Counter[tuple[str, ...]](), Counter[tuple[str, ...]](), Counter[tuple[str, ...]]()
        for key in self._table.workers():
            slurm, desired = self._table.slurm_nodes.get(key), self._table.desired.get(key)
            phases[key[0], self._phase(slurm)] += 1
            if desired is not None and desired.progress is not Progress.NONE:
                drains[key[0], desired.progress] += 1
            for pod in self._table.pods[key].values():
                if is_live(pod):
                    pods[key[0], self._protection(key, pod)] += 1
        clusters = {key[0] for key in phases}
        _fill(metrics.WORKERS, _all(clusters, [*NodePhase], phases))
        _fill(metrics.DRAINS, _all(clusters, [each for each in Progress if each is not Progress.NONE], drains))
        _fill(metrics.PODS, _all(clusters, ["protected", "open", "missing"], pods))
        _fill(metrics.HOLDS, self._holds())

    def forget(self) -> None:
        """Another process counts from now on."""
        for gauge in (metrics.WORKERS, metrics.DRAINS, metrics.PODS, metrics.HOLDS):
            gauge.clear()

    def _phase(self, slurm: SlurmNode | None) -> NodePhase:
        return NodePhase.UNKNOWN if slurm is None else _phase_of(slurm.base, tuple(slurm.flags), self._allowed)

    def _protection(self, key: WorkerKey, pod: KubePod) -> str:
        """What the pod's label says, beside what the policy wants; a worker that Slurm does not know is let be."""
        slurm, desired = self._table.slurm_nodes.get(key), self._table.desired.get(key)
        if pod.protected:
            return "protected"
        if slurm is None or self._policy.protect is Protect.OFF:
            return "open"
        if self._policy.protect is Protect.BUSY:
            return "missing" if is_busy(slurm.base, slurm.flags) else "open"
        return "open" if desired is not None and desired.progress is Progress.DRAINED else "missing"

    def _holds(self) -> Rows:
        rows = Counter(
            (desired.cluster, hold.hold_class.value, _owner(hold.owner))
            for desired in self._table.desired.values()
            for hold in desired.holds
        )
        found = Counter[tuple[str, ...]](dict(rows.most_common(OWNERS)))
        for (cluster, kind, _), count in rows.most_common()[OWNERS:]:
            found[cluster, kind, OTHER] += count
        return found


def _owner(owner: str) -> str:
    return "system:nodes" if owner.startswith(NODES) else owner


def _all(clusters: set[str], values: list[str], counted: Rows) -> Rows:
    """Each value of each cluster, so that what fell to none says 0 and does not go on saying what it was."""
    return {(cluster, value): counted.get((cluster, value), 0) for cluster in clusters for value in values}


def _fill(gauge: Gauge, rows: Rows) -> None:
    """Makes these the gauge's series; others go."""
    shown = {tuple(sample.labels.values()) for family in gauge.collect() for sample in family.samples}
    for labels in shown - rows.keys():
        gauge.remove(*labels)
    for labels, value in rows.items():
        gauge.labels(*labels).set(value)


@lru_cache(maxsize=4096)
def _phase_of(base: str, flags: tuple[str, ...], allow: tuple[str, ...]) -> NodePhase:
    return phase_of(base, flags, allow=allow)
