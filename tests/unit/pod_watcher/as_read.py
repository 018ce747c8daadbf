"""Facts as they are read from objects of Kubernetes in JSON."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from lockstep.contracts.facts import KubeHold, KubeNode, KubePod
from lockstep.kube import keys
from lockstep.kube.resources import HOLDS, NODES, PODS
from lockstep.pod_watcher.decide import hold_fact, node_fact, pod_fact
from lockstep.pod_watcher.model import Reading

AT = datetime(2026, 7, 1, 12, tzinfo=UTC)
READING = Reading(
    conditions=frozenset({"GpuHealthy"}),
    taints=frozenset({"example.com/repair"}),
    labels=frozenset({keys.CLUSTER, keys.SLURM_NODE_NAME}),
)
HOLD = {"workers": {"names": ["gpu-7"]}, "reason": "DIMM"}


def a_node(*, spec: Any = None, status: Any = None, **metadata: Any) -> KubeNode:
    """The fact of a Node with these fields."""
    meta = {"name": "host-3", "uid": "n-1", "resourceVersion": "7"} | metadata
    raw = msgspec.json.encode({"metadata": meta, "spec": spec or {}, "status": status or {}})
    return node_fact(NODES.one(raw), READING)


def a_pod(*, spec: Any = None, status: Any = None, **metadata: Any) -> KubePod | None:
    """The fact of a worker pod with these fields."""
    meta = {"name": "slurmd-0", "namespace": "slurm", "uid": "p-1", "resourceVersion": "7"} | metadata
    raw = msgspec.json.encode({"metadata": meta, "spec": spec or {}, "status": status or {}})
    return pod_fact(PODS.one(raw), "main", keys.SLURM_NODE_NAME)


def a_bound_pod(*, ready: bool = False, **metadata: Any) -> KubePod:
    """A pod on a node."""
    conditions = [{"type": "Ready", "status": str(ready)}]
    pod = a_pod(spec={"nodeName": "host-3"}, status={"phase": "Running", "conditions": conditions}, **metadata)
    assert pod is not None
    return pod


def a_hold(spec: Any, *clusters: str, **more: Any) -> KubeHold:
    """The fact of a Hold in a namespace with these clusters."""
    meta = {"name": "dimm", "namespace": "slurm", "uid": "h-1"}
    return hold_fact(HOLDS.one(msgspec.json.encode({"metadata": meta, "spec": spec} | more)), clusters)


def cordoned_by(manager: str, **annotations: str) -> KubeNode:
    """A cordoned node, as the API server tells who did it."""
    fields = [{"manager": manager, "fieldsV1": {"f:spec": {"f:unschedulable": {}}}}]
    return a_node(spec={"unschedulable": True}, managedFields=fields, annotations=annotations, resourceVersion="8")
