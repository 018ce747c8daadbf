"""Types that facts, events and Holds share."""

from datetime import datetime
from typing import Annotated

import msgspec

Aware = Annotated[datetime, msgspec.Meta(tz=True)]
"""A moment with its zone; naive times are refused."""


class WorkerRef(msgspec.Struct, frozen=True, order=True, kw_only=True, omit_defaults=True):
    """Who a worker is: `cluster` and `name`. The rest says where it was found when this was written."""

    cluster: str
    """The Slurm cluster's name in Lockstep's settings."""
    name: str
    """The Slurm node's name."""
    kube_node: str = ""
    """The Kubernetes node that its pod runs on."""
    namespace: str = ""
    """The pod's namespace."""
    pod: str = ""
    """The pod's name."""

    @property
    def key(self) -> "WorkerKey":
        """The part that never changes."""
        return (self.cluster, self.name)

    def __str__(self) -> str:
        return f"{self.cluster}/{self.name}"


WorkerKey = tuple[str, str]
"""`(cluster, Slurm node name)`: the identity of a worker."""
