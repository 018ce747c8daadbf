"""What each part of Lockstep must be allowed to do on Kubernetes. `lockstep doctor` asks for every line."""

from typing import NamedTuple

from lockstep.contracts.hold import GROUP


class Right(NamedTuple):
    """One verb on one kind of object."""

    verb: str
    resource: str
    group: str = ""
    subresource: str = ""
    namespaced: bool = True
    """In the namespace of each cluster; else everywhere."""

    def __str__(self) -> str:
        """As RBAC writes it: `patch pods/status`."""
        sub = f"/{self.subresource}" if self.subresource else ""
        return f"{self.verb} {self.resource}{sub}" + (f".{self.group}" if self.group else "")


LEASES = "coordination.k8s.io"
APPS = "apps"
SERVICES = ("pod_watcher", "slurm_poller", "drain", "reconciler", "forward")
"""All that have an account of their own, also those that need no more than their Lease."""

RIGHTS: dict[str, list[Right]] = {
    "pod_watcher": [
        *(Right(verb, "nodes", namespaced=False) for verb in ("list", "watch")),
        *(Right(verb, "pods") for verb in ("list", "watch")),
        *(Right(verb, "holds", GROUP) for verb in ("list", "watch")),
    ],
    "slurm_poller": [Right(verb, "events") for verb in ("get", "create", "patch")],
    "drain": [Right("patch", "holds", GROUP, "status")],
    "reconciler": [
        *(Right(verb, "pods") for verb in ("get", "patch")),
        Right("patch", "pods", subresource="status"),
        *(Right(verb, "nodes", namespaced=False) for verb in ("get", "patch")),
        Right("patch", "nodes", subresource="status", namespaced=False),
        *(Right(verb, "poddisruptionbudgets", "policy") for verb in ("list", "create")),
        *(Right(verb, "events") for verb in ("get", "create", "patch")),
    ],
}
"""For each service, beside its Lease."""

REQUEST_RIGHTS = [Right(verb, "holds", GROUP) for verb in ("get", "list", "create", "delete", "delegate")]
"""For the drain service beside those, where the settings let somebody ask over NATS. `delegate` is no verb of the API:
the policy of Holds' owners asks for it of whoever makes a Hold for somebody else."""

LEASE_RIGHTS = [Right(verb, "leases", LEASES) for verb in ("get", "create", "update")]
"""For every service, in the namespace of the Leases."""

DEPLOYMENT_RIGHTS = [Right("get", "deployments", APPS), Right("patch", "deployments", APPS, "status")]
"""For the Slurm poller, on its own Deployment alone, where the settings name that."""

RIGHTS_OF_CLEANUP = [
    *(Right(verb, "nodes", namespaced=False) for verb in ("list", "get", "patch")),
    Right("patch", "nodes", subresource="status", namespaced=False),
    *(Right(verb, "pods") for verb in ("list", "get", "patch")),
    Right("patch", "pods", subresource="status"),
    *(Right(verb, "poddisruptionbudgets", "policy") for verb in ("list", "delete")),
]
"""For `lockstep uninstall-cleanup`. With `--holds` it also needs `list` and `delete` on Holds."""

LEASE_RIGHTS_OF_CLEANUP = [Right(verb, "leases", LEASES) for verb in ("get", "delete")]
"""In the namespace of the Leases, for those of all services."""


def service_of(user: str) -> str:
    """The service whose account that is, as the chart calls accounts; empty: it is somebody else."""
    if not user.startswith("system:serviceaccount:"):
        return ""
    return next((service for service in SERVICES if user.endswith(f"-{service.replace('_', '-')}")), "")
