"""Which Kubernetes objects are watched, and what of them is read, as the settings say."""

import msgspec

from lockstep.contracts.policy import signal_of
from lockstep.kube import keys
from lockstep.runtime.settings import ClusterSettings, Settings


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What of the objects becomes a fact. Everything else may change without anybody being told."""

    conditions: frozenset[str] = frozenset()
    """Types of node conditions."""
    taints: frozenset[str] = frozenset()
    """Keys of node taints."""
    labels: frozenset[str] | None = frozenset()
    """Keys of node labels; None is all of them."""
    clusters: dict[str, list[str]] = {}
    """The clusters of each namespace, in the order of the settings."""


def reading_of(settings: Settings) -> Reading:
    """What these settings name.

    Where workers have no pods, a Hold's label selector looks at the node's labels: then all of them are read.
    """
    signals = [signal_of(text) for text in settings.policy.node_conditions]
    named = {signal.key for signal in signals if signal.kind == "label"}
    named |= {keys.CLUSTER} | {cluster.workers.nodename_label for cluster in settings.clusters}
    hybrid = any(cluster.workers.hybrid for cluster in settings.clusters)
    clusters: dict[str, list[str]] = {}
    for cluster in settings.clusters:
        clusters.setdefault(cluster.namespace, []).append(cluster.name)
    return Reading(
        conditions=frozenset(signal.key for signal in signals if signal.kind == "condition"),
        taints=frozenset(signal.key for signal in signals if signal.kind == "taint"),
        labels=None if hybrid else frozenset(named),
        clusters=clusters,
    )


def selector_of(cluster: ClusterSettings) -> str:
    """The label selector of a cluster's worker pods."""
    return ",".join(f"{key}={value}" for key, value in sorted(cluster.workers.labels.items()))
