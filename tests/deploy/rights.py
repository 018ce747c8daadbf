"""`files/rights.json`: the rules of each service's roles, from the one table of rights."""

from collections.abc import Iterable
from typing import Any

from lockstep.cli.rights import LEASE_RIGHTS, LEASES, REQUEST_RIGHTS, RIGHTS, SERVICES, Right

Rule = dict[str, Any]


def rights() -> dict[str, Any]:
    """For each service the rules everywhere and in the clusters' namespaces; what requests need; its own Lease."""
    return {
        "services": {name.replace("_", "-"): split(wanted) for name, wanted in RIGHTS.items()},
        "requests": rules(REQUEST_RIGHTS),
        "leases": {name: _lease(name) for name in (service.replace("_", "-") for service in SERVICES)},
    }


def split(wanted: Iterable[Right]) -> dict[str, list[Rule]]:
    """The rules of a ClusterRole and of a Role in each cluster's namespace; without one where it would be empty."""
    wanted = list(wanted)
    found = {
        "cluster": rules(right for right in wanted if not right.namespaced),
        "namespace": rules(right for right in wanted if right.namespaced),
    }
    return {where: some for where, some in found.items() if some}


def rules(wanted: Iterable[Right]) -> list[Rule]:
    """One rule for each kind of object, with all its verbs."""
    verbs: dict[tuple[str, str], list[str]] = {}
    for right in wanted:
        resource = f"{right.resource}/{right.subresource}" if right.subresource else right.resource
        verbs.setdefault((right.group, resource), []).append(right.verb)
    return [{"apiGroups": [group], "resources": [name], "verbs": some} for (group, name), some in verbs.items()]


def _lease(service: str) -> list[Rule]:
    """Its own Lease and no other's; RBAC cannot say by name what may be created."""
    lease = {"apiGroups": [LEASES], "resources": ["leases"]}
    verbs = [right.verb for right in LEASE_RIGHTS]
    named = {**lease, "resourceNames": [f"lockstep-{service}"], "verbs": [verb for verb in verbs if verb != "create"]}
    return [named, *([{**lease, "verbs": ["create"]}] if "create" in verbs else [])]
