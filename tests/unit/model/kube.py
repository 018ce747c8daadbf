"""Two Kubernetes nodes and the worker's pod, which a controller makes again when it is gone."""

from dataclasses import dataclass, field
from datetime import datetime
from itertools import count

from lockstep.contracts.facts import KubeHold, KubeNode, KubePod, NodeCondition
from tests.builders import CLUSTER, NAME, NAMESPACE

US = "lockstep"
_uids = count(1)


@dataclass
class NodeTruth:
    """A Node object."""

    name: str
    uid: int = field(default_factory=lambda: next(_uids))
    unschedulable: bool = False
    cordoned_by: str = ""
    mark: bool = False
    sick: bool = False
    in_service: NodeCondition | None = None

    def cordon(self, by: str) -> bool:
        """Cordoning what is cordoned changes nothing, also not who is said to have done it."""
        if self.unschedulable:
            return False
        self.unschedulable, self.cordoned_by = True, by
        return True

    def uncordon(self) -> None:
        """The mark stays: a user does not know of it."""
        self.unschedulable, self.cordoned_by = False, ""

    def fact(self, now: datetime) -> KubeNode:
        """As the watch tells it."""
        return KubeNode(
            name=self.name,
            uid=str(self.uid),
            ready=True,
            unschedulable=self.unschedulable,
            cordoned_by=self.cordoned_by,
            mirror_mark=self.mark,
            conditions=[NodeCondition(type="DiskPressure", status="True" if self.sick else "False")],
            in_service=self.in_service,
            read_at=now,
        )


@dataclass
class PodTruth:
    """A pod of the worker."""

    uid: int = field(default_factory=lambda: next(_uids))
    node: str = ""
    started_at: datetime | None = None
    ready: bool = False
    deleting_since: datetime | None = None
    protected: bool = False
    ever_protected: bool = False
    pod_cordon: bool = False
    conditions: list[NodeCondition] = field(default_factory=list)

    def fact(self, now: datetime) -> KubePod:
        """As the watch tells it."""
        return KubePod(
            cluster=CLUSTER,
            worker=NAME,
            namespace=NAMESPACE,
            name=NAME,
            uid=str(self.uid),
            node=self.node,
            phase="Running" if self.started_at else "Pending",
            ready=self.ready,
            started_at=self.started_at,
            deleting_since=self.deleting_since,
            protected=self.protected,
            pod_cordon=self.pod_cordon,
            conditions=self.conditions,
            read_at=now,
        )


@dataclass
class KubeTruth:
    """What the API server holds."""

    nodes: dict[str, NodeTruth] = field(default_factory=dict)
    pod: PodTruth | None = None
    holds: dict[str, KubeHold] = field(default_factory=dict)

    @property
    def host(self) -> NodeTruth | None:
        """The node under the pod."""
        return self.nodes.get(self.pod.node) if self.pod else None

    def schedule(self, *, tolerates_cordon: bool) -> bool:
        """Binds a pending pod to a node that takes it; a DaemonSet's pods tolerate the cordon."""
        pod = self.pod
        if pod is None or pod.node or pod.deleting_since:
            return False
        for node in self.nodes.values():
            if tolerates_cordon or not node.unschedulable:
                pod.node = node.name
                return True
        return False
