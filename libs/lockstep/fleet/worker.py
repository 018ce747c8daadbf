"""One worker as both systems see it: the joined view that every decision is made on. Data only."""

from datetime import datetime, timedelta

import msgspec

from lockstep.contracts.common import WorkerKey, WorkerRef
from lockstep.contracts.facts import Desired, KubeHold, KubeNode, KubePod, SlurmJob, SlurmNode, SlurmReservation, Wrote


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker: its Slurm node, its pod, the Kubernetes node under it, and what is wanted of it.

    `*_as_of` is when the source's facts were last known to be complete and true; None means never.
    """

    cluster: str
    name: str
    hybrid: bool = False
    """There is no pod: slurmd runs on the host."""
    slurm: SlurmNode | None = None
    pod: KubePod | None = None
    """The pod that counts: the newest that lives, else the newest."""
    other_pods: list[KubePod] = []
    node: KubeNode | None = None
    node_name: str = ""
    """The Kubernetes node's name, also when the Node object is not there; where it ran last, while it runs nowhere."""
    holds: list[KubeHold] = []
    """The Hold resources that select this worker."""
    jobs: list[SlurmJob] = []
    reservations: list[SlurmReservation] = []
    slurm_as_of: datetime | None = None
    jobs_as_of: datetime | None = None
    kube_as_of: datetime | None = None
    desired: Desired | None = None
    wrote: Wrote | None = None

    @property
    def key(self) -> WorkerKey:
        """Cluster and Slurm node name."""
        return (self.cluster, self.name)

    @property
    def ref(self) -> WorkerRef:
        """The full identity, for events."""
        pod = self.pod
        return WorkerRef(
            cluster=self.cluster,
            name=self.name,
            kube_node=self.node_name,
            namespace=pod.namespace if pod else "",
            pod=pod.name if pod else "",
        )


def is_live(pod: KubePod) -> bool:
    """Whether a pod runs a slurmd or will: it is neither being deleted nor at its end."""
    return pod.deleting_since is None and pod.phase not in {"Succeeded", "Failed"}


def is_fresh(as_of: datetime | None, now: datetime, stale_after_s: float) -> bool:
    """Whether a source was complete recently enough to be acted upon. Never heard is stale."""
    return as_of is not None and now - as_of <= timedelta(seconds=stale_after_s)
