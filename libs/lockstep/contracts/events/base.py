"""What all events share, and what events about one kind of thing share."""

import msgspec

from lockstep.contracts.common import Aware, WorkerRef
from lockstep.contracts.facts import SITE


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """Common to all events."""

    id: str
    """Made from the fact, so that the same happening has the same id."""
    at: Aware
    """When it happened, or when the service that tells it saw it."""
    cause_id: str = ""
    """The event or request because of which this came about."""

    @property
    def scope(self) -> str:
        """The cluster, or `_site`."""
        return SITE

    @property
    def identity(self) -> str:
        """What the event is about, within its scope."""
        raise NotImplementedError


class ClusterEvent(Event, frozen=True, kw_only=True, omit_defaults=True):
    """Common to all events about a thing of one cluster that is no worker."""

    cluster: str
    """The Slurm cluster's name in Lockstep's settings."""

    @property
    def scope(self) -> str:
        """The cluster."""
        return self.cluster


class WorkerEvent(Event, frozen=True, kw_only=True, omit_defaults=True):
    """Common to all events about one worker."""

    worker: WorkerRef
    """Whom it is about, and where that was found."""

    @property
    def scope(self) -> str:
        """The worker's cluster."""
        return self.worker.cluster

    @property
    def identity(self) -> str:
        """The Slurm node's name."""
        return self.worker.name


class NodeEvent(Event, frozen=True, kw_only=True, omit_defaults=True):
    """Common to all events about one Kubernetes node."""

    node: str
    """The Kubernetes node's name."""
    workers: list[WorkerRef] = []
    """The workers whose pods are on it."""

    @property
    def identity(self) -> str:
        """The Kubernetes node's name."""
        return self.node


class SourceEvent(Event, frozen=True, kw_only=True, omit_defaults=True):
    """Common to all events about one source; `of` is the cluster, or `_site`."""

    source: str
    """`kube`, or `slurm.node` and `slurm.job` for what is read of Slurm."""
    of: str
    """The cluster, or `_site`."""

    @property
    def scope(self) -> str:
        """The cluster, or `_site`."""
        return self.of

    @property
    def identity(self) -> str:
        """The source."""
        return self.source
