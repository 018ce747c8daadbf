"""`files/rights.json`: the rules of each service's roles, from the one table of rights."""

from collections.abc import Iterable
from typing import Any

from lockstep.cli.rights import (
    DEPLOYMENT_RIGHTS,
    LEASE_RIGHTS,
    LEASE_RIGHTS_OF_CLEANUP,
    LEASES,
    REQUEST_RIGHTS,
    RIGHTS,
    RIGHTS_OF_CLEANUP,
    SERVICES,
    Right,
)
from lockstep.contracts.hold import GROUP

Rule = dict[str, Any]


def rights() -> dict[str, Any]:
    """Of each service and of the clean-up; what requests, the shown condition and the end of Holds need; of Leases."""
    names = [service.replace("_", "-") for service in SERVICES]
    leases = {name: _leases(LEASE_RIGHTS, name) for name in names}
    return {
        "services": {name.replace("_", "-"): split(wanted) for name, wanted in RIGHTS.items()},
        "requests": rules(REQUEST_RIGHTS),
        "deployment": rules(DEPLOYMENT_RIGHTS),
        "cleanup": split(RIGHTS_OF_CLEANUP),
        "holds": rules(Right(verb, "holds", GROUP) for verb in ("list", "delete")),
        "leases": {**leases, "cleanup": _leases(LEASE_RIGHTS_OF_CLEANUP, *names)},
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


def _leases(wanted: Iterable[Right], *services: str) -> list[Rule]:
    """Those of these services and no others; RBAC cannot say by name what may be created."""
    lease = {"apiGroups": [LEASES], "resources": ["leases"]}
    verbs = [right.verb for right in wanted]
    names = [f"lockstep-{service}" for service in services]
    named = {**lease, "resourceNames": names, "verbs": [verb for verb in verbs if verb != "create"]}
    return [named, *([{**lease, "verbs": ["create"]}] if "create" in verbs else [])]
