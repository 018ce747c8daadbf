"""How a Lease looks on the wire."""

from datetime import UTC, datetime
from typing import Any

from lockstep.kube.resources import segment
from lockstep.kube.wire import Lease


def path(namespace: str, name: str | None = None) -> str:
    """Where the leases of a namespace, or one of them, are."""
    which = f"/{segment(name)}" if name is not None else ""
    return f"/apis/coordination.k8s.io/v1/namespaces/{segment(namespace)}/leases{which}"


def body(lease: Lease) -> dict[str, Any]:
    """The whole object. Its times are `MicroTime`, which has six digits of a second, always."""
    meta, spec = lease.metadata, lease.spec
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": meta.name,
            "namespace": meta.namespace,
            "resourceVersion": meta.resource_version,
            "labels": meta.labels,
            "annotations": meta.annotations,
        },
        "spec": {
            "holderIdentity": spec.holder_identity,
            "leaseDurationSeconds": spec.lease_duration_seconds,
            "acquireTime": _micro(spec.acquire_time),
            "renewTime": _micro(spec.renew_time),
            "leaseTransitions": spec.lease_transitions,
        },
    }


def _micro(at: datetime | None) -> str | None:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ") if at else None
