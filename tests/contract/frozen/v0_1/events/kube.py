"""What happened in Kubernetes: to workers' pods, and to the nodes under them."""

from tests.contract.frozen.v0_1.events.base import NodeEvent, WorkerEvent
from tests.contract.frozen.v0_1.facts import Taint


class PodEvent(WorkerEvent, frozen=True, kw_only=True, omit_defaults=True):
    """Common to all events about a worker's pod."""

    before: str
    """One of pending, bound, ready, terminating, succeeded, failed; empty: there was none."""
    after: str
    """One of those, or gone."""
    uid: str
    """The pod's: a new pod of the same name has another."""


class PodCreated(PodEvent, frozen=True, kw_only=True, omit_defaults=True, tag="pod.created.v1"):
    """A worker's pod exists and has no node yet."""


class PodBound(PodEvent, frozen=True, kw_only=True, omit_defaults=True, tag="pod.bound.v1"):
    """A worker's pod has a node and is not ready yet."""


class PodReady(PodEvent, frozen=True, kw_only=True, omit_defaults=True, tag="pod.ready.v1"):
    """A worker's pod became ready."""


class PodUnready(PodEvent, frozen=True, kw_only=True, omit_defaults=True, tag="pod.unready.v1"):
    """A worker's pod was ready, and is not any more."""


class PodTerminating(PodEvent, frozen=True, kw_only=True, omit_defaults=True, tag="pod.terminating.v1"):
    """A worker's pod is being deleted."""


class PodFinished(PodEvent, frozen=True, kw_only=True, omit_defaults=True, tag="pod.finished.v1"):
    """A worker's pod has succeeded or failed, and does not run any more."""


class PodGone(PodEvent, frozen=True, kw_only=True, omit_defaults=True, tag="pod.gone.v1"):
    """A worker's pod no longer exists."""


class NodeCordoned(NodeEvent, frozen=True, kw_only=True, omit_defaults=True, tag="node.cordoned.v1"):
    """A Kubernetes node was cordoned by somebody else than Lockstep."""

    by: str = ""
    """The client that did it, as Kubernetes noted it; for people, not for rights."""
    reason: str = ""
    """slurm-operator's annotation for it, if there is one."""


class NodeUncordoned(NodeEvent, frozen=True, kw_only=True, omit_defaults=True, tag="node.uncordoned.v1"):
    """A Kubernetes node was uncordoned by somebody else than Lockstep."""


class NodeConditionChanged(NodeEvent, frozen=True, kw_only=True, omit_defaults=True, tag="node.condition-changed.v1"):
    """A condition that the policy names, or Ready, changed its status. Empty: it was not there, or no longer is."""

    condition: str
    """Its type, such as `DiskPressure`."""
    before: str
    """`True`, `False`, `Unknown` or empty."""
    after: str
    """The same."""
    reason: str = ""
    """Kubernetes' one word."""
    message: str = ""
    """Kubernetes' words."""


class NodeTaintsChanged(NodeEvent, frozen=True, kw_only=True, omit_defaults=True, tag="node.taints-changed.v1"):
    """Taints that the policy names came or went."""

    added: list[Taint] = []
    removed: list[Taint] = []


class NodeRebooted(NodeEvent, frozen=True, kw_only=True, omit_defaults=True, tag="node.rebooted.v1"):
    """A Kubernetes node came up with another boot id."""

    before: str
    """The boot id that it had."""
    after: str
    """The boot id that it has."""


class NodeGone(NodeEvent, frozen=True, kw_only=True, omit_defaults=True, tag="node.gone.v1"):
    """A Kubernetes node no longer exists."""
