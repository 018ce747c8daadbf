"""What a system says about itself now: one message per subject is kept.

A fact's subject is `lockstep.fact.<source>.<kind>.<scope>.<identity>` (see `subjects`). Fields are only what
somebody reads.
"""

from enum import StrEnum

import msgspec

from lockstep.contracts.common import Aware, WorkerKey
from lockstep.contracts.hold import AtDeadline, DrainPolicy, HoldClass, HoldSpec, JobBrief

SITE = "_site"
"""The scope of facts that belong to no cluster."""


class Fact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind"):
    """Common to all facts."""

    epoch: int = 0
    """How often the source's lease changed hands; facts of a lower epoch are dropped."""
    revision: str = ""
    """The system's own version of the thing, where it has one."""
    read_at: Aware | None = None
    """When this content was first read. That it is still true, says `SourceHealth.complete_as_of`."""
    gone: bool = False
    """The thing no longer exists; the other fields are what was last known."""

    @property
    def scope(self) -> str:
        """The cluster, or `_site`."""
        return SITE

    @property
    def identity(self) -> str:
        """What the thing is called within its scope."""
        raise NotImplementedError


class ClusterFact(Fact, frozen=True, kw_only=True, omit_defaults=True):
    """Common to the facts of one cluster."""

    cluster: str

    @property
    def scope(self) -> str:
        """The cluster."""
        return self.cluster


class NamedFact(ClusterFact, frozen=True, kw_only=True, omit_defaults=True):
    """Common to the facts of one cluster that go by a name in Slurm."""

    name: str

    @property
    def identity(self) -> str:
        """The name in Slurm."""
        return self.name


class ObjectFact(ClusterFact, frozen=True, kw_only=True, omit_defaults=True):
    """Common to the facts of one cluster about a namespaced object."""

    namespace: str
    name: str

    @property
    def identity(self) -> str:
        """Namespace and name."""
        return f"{self.namespace}/{self.name}"


class Taint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A Kubernetes taint."""

    key: str
    value: str = ""
    effect: str = ""


class NodeCondition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A Kubernetes node's condition that a policy names."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    since: Aware | None = None
    """Its last transition."""


class KubeNode(Fact, frozen=True, kw_only=True, omit_defaults=True, tag="kube.node"):
    """A Kubernetes node that can carry a worker."""

    name: str
    uid: str = ""
    boot_id: str = ""
    """Changes with every boot."""
    ready: bool = False
    unschedulable: bool = False
    """It is cordoned."""
    mirror_mark: bool = False
    """The annotation `lockstep.sh/mirrored-cordon` stands: the reconciler's mirror cordoned the node once."""
    cordon_reason: str = ""
    """The annotation `nodeset.slinky.slurm.net/node-cordon-reason`."""
    cordoned_by: str = ""
    """The client that set `spec.unschedulable`, as `managedFields` tells; never trusted for rights."""
    taints: list[Taint] = []
    conditions: list[NodeCondition] = []
    """Ready, and those that the policy names."""
    labels: dict[str, str] = {}
    """Those that the settings need."""
    annotations: dict[str, str] = {}
    """The one that names conditions to be ignored, if it is there."""
    deleting_since: Aware | None = None
    in_service: NodeCondition | None = None
    """The condition `lockstep.sh/InService` as it stands on the node."""

    @property
    def identity(self) -> str:
        """The node's name."""
        return self.name


class KubePod(ObjectFact, frozen=True, kw_only=True, omit_defaults=True, tag="kube.pod"):
    """A pod that runs (or will run, or ran) a worker's slurmd."""

    worker: str
    """The Slurm node's name."""
    uid: str = ""
    node: str = ""
    """The Kubernetes node that it is bound to."""
    phase: str = ""
    """Kubernetes' word."""
    ready: bool = False
    ready_since: Aware | None = None
    started_at: Aware | None = None
    deleting_since: Aware | None = None
    pod_cordon: bool = False
    """The annotation `nodeset.slinky.slurm.net/pod-cordon` is "true"."""
    protected: bool = False
    """The label `nodeset.slinky.slurm.net/pod-protect` is "true"."""
    labels: dict[str, str] = {}
    conditions: list[NodeCondition] = []
    """The conditions `SlurmNodeState*` as they stand on the pod."""


class KubeHold(ObjectFact, frozen=True, kw_only=True, omit_defaults=True, tag="kube.hold"):
    """A Hold resource. `fault` says why it cannot be used (then `spec` is None)."""

    uid: str = ""
    generation: int = 0
    created_at: Aware | None = None
    owner: str = ""
    """Who created it, as the API server said it; `nats:<user>` when it stands for a request."""
    request: str = ""
    """The id of the request that it stands for, and in `requested_by` the NATS user that asked."""
    requested_by: str = ""
    traceparent: str = ""
    """The trace in which it was asked for, as its annotation `lockstep.sh/traceparent` says."""
    deleting_since: Aware | None = None
    spec: HoldSpec | None = None
    """What its author wants."""
    fault: str = ""
    accepted: bool = False
    """Its status says that Lockstep accepted it."""
    refused: bool = False
    """Its status says that Lockstep refused it as it is, and so it was told."""


class SlurmNode(NamedFact, frozen=True, kw_only=True, omit_defaults=True, tag="slurm.node"):
    """A Slurm node as slurmctld shows it. `base` and `flags` are upper-case words of Slurm's own."""

    base: str
    flags: list[str] = []
    """Sorted."""
    reason: str = ""
    """Slurm's reason, as it is."""
    reason_by: str = ""
    """Who set it, as Slurm says."""
    reason_at: Aware | None = None
    boot_time: Aware | None = None
    slurmd_start: Aware | None = None
    alloc_cpus: int = 0
    """CPUs that jobs have."""
    alloc_memory_mib: int = 0
    """Memory that jobs have."""
    gres: str = ""
    """What it has besides CPUs, such as `gpu:8`, as Slurm writes it."""
    gres_used: str = ""
    """What of that jobs have."""
    tres_used: str = ""
    features: list[str] = []
    partitions: list[str] = []
    reservation: str = ""
    """The reservation that it is in, if any."""
    topology: str = ""
    """Its place, as Slurm writes it."""
    comment: str = ""
    version: str = ""


class SlurmJob(ClusterFact, frozen=True, kw_only=True, omit_defaults=True, tag="slurm.job"):
    """A job that holds nodes (running, suspended, completing, being configured) on a worker that is being drained."""

    job_id: int
    states: list[str] = []
    """Slurm's words."""
    user: str = ""
    partition: str = ""
    nodes: list[str] = []
    start: Aware | None = None
    end: Aware | None = None
    """Slurm's limit, not a promise."""
    can_requeue: bool = False
    """Slurm may start it anew."""

    @property
    def identity(self) -> str:
        """The job's number."""
        return str(self.job_id)

    @property
    def brief(self) -> JobBrief:
        """What a waiting person wants to know of it."""
        state = self.states[0] if self.states else ""
        return JobBrief(id=self.job_id, user=self.user, partition=self.partition, state=state, ends=self.end)


class SlurmReservation(NamedFact, frozen=True, kw_only=True, omit_defaults=True, tag="slurm.reservation"):
    """A reservation of Slurm. `maintenance` when it has the MAINT flag."""

    nodes: list[str] = []
    start: Aware | None = None
    end: Aware | None = None
    maintenance: bool = False


class HoldView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One reason to keep a worker out of service, wherever it lives."""

    id: str
    """Stable: `cordon/host-3`, `hold/slurm/dimm`, `slurm/gpu-7`, `condition/host-3/DiskPressure`."""
    hold_class: HoldClass = msgspec.field(name="class")
    owner: str
    """Who ends it, as its system knows them."""
    reason: str
    """The owner's words."""
    since: Aware | None = None
    """When it began to stand."""
    until: Aware | None = None
    """When it ends by itself."""
    policy: DrainPolicy = DrainPolicy.WAIT
    """What happens to running jobs."""
    deadline: Aware | None = None
    """When a waiting drain is over its time."""
    at_deadline: AtDeadline = AtDeadline.KEEP
    """What happens to jobs that still run then."""


class Progress(StrEnum):
    """How far a drain is."""

    NONE = "none"
    """The worker is not held."""
    WAITING = "waiting"
    """Held, and Slurm has not shown the DRAIN yet."""
    DRAINING = "draining"
    DRAINED = "drained"
    OVERDUE = "overdue"


class JobAct(msgspec.Struct, frozen=True, kw_only=True):
    """A job that a drain's policy ends now, `requeue` or `cancel`."""

    job_id: int
    """The job's number."""
    act: DrainPolicy
    start: Aware | None = None
    """The start of the run that is meant; a job that was requeued and runs again is another run."""


class Desired(NamedFact, frozen=True, kw_only=True, omit_defaults=True, tag="drain.desired"):
    """What the drain service wants for one worker."""

    in_service: bool
    """No hold stands."""
    holds: list[HoldView] = []
    """All that stand, the one that gives the words first."""
    episode: int = 0
    """Counts how often holds began that need our DRAIN; all drains of one stretch without service share it."""
    traceparent: str = ""
    """The trace of the flow that began this stretch of holds; what goes on after hours links back to it."""
    words: str = ""
    """The reason, the same in both systems. Empty when in service."""
    progress: Progress = Progress.NONE
    why_not: str = ""
    """Why it is not drained yet."""
    waiting_for: list[JobBrief] = []
    """Jobs that still run there, at most 20."""
    deadline: Aware | None = None
    """The earliest of the holds."""
    job_acts: list[JobAct] = []
    """What the policy does to jobs now."""
    kube_node: str = ""
    """The Kubernetes node on which the worker runs, or ran last: its holds stand while the pod is away."""
    had_pod: bool = False
    """A pod has run this worker; without one it is away, also where other workers need none."""


class Wrote(NamedFact, frozen=True, kw_only=True, omit_defaults=True, tag="reconciler.wrote"):
    """The last writes on one worker, so that watchers know an echo and continue its trace."""

    words: str = ""
    """Our last words in Slurm; empty after an UNDRAIN."""
    drained_at: Aware | None = None
    """When Slurm answered our last DRAIN."""
    undrained_at: Aware | None = None
    """When Slurm answered our last UNDRAIN."""
    episode: int = 0
    """The `Desired.episode` of our last DRAIN."""
    reasserted_at: Aware | None = None
    """When Slurm answered the last DRAIN that somebody's resume made necessary."""
    traceparent: str = ""
    """The trace of the last write."""
    cause: str = ""
    """The event that tells of the last write: what a reading then shows came about because of it."""


class SourceHealth(Fact, frozen=True, kw_only=True, omit_defaults=True, tag="source.health"):
    """The heartbeat of a source: all its facts were true at `complete_as_of`."""

    source: str
    """`kube` or `slurm.node`, `slurm.job`."""
    of: str = SITE
    """The cluster, or `_site`."""
    complete_as_of: Aware | None = None
    """All facts of the source were true then."""
    last_error: str = ""
    """Why it cannot be read; empty while it can."""
    failing_since: Aware | None = None
    """Since when it cannot be read."""
    interval_s: float = 1.0
    """How often a beat is to be expected."""

    @property
    def scope(self) -> str:
        """The cluster, or `_site`."""
        return self.of

    @property
    def identity(self) -> str:
        """The source."""
        return self.source


class StreamHealth(Fact, frozen=True, kw_only=True, omit_defaults=True, tag="stream.health"):
    """What befell a stream. Whichever process finds it first says so; the others compare with what they knew.

    That of the facts themselves is always there: when it is not, facts were removed.
    """

    stream: str
    losses: int = 0
    """How often messages were lost."""
    lost_at: Aware | None = None
    """When the newest loss was found."""
    detail: str = ""
    """What was found then."""
    filling_since: Aware | None = None
    """Since when it nears its limit; None: it does not."""
    used_bytes: int = 0
    """Then."""
    limit_bytes: int = 0
    stuck_until: Aware | None = None
    """When NATS stored messages again, after it had answered and stored none."""
    stuck_for_s: float = 0.0

    @property
    def identity(self) -> str:
        """The stream."""
        return self.stream


class ForwardPosition(Fact, frozen=True, kw_only=True, omit_defaults=True, tag="forward.position"):
    """How far an HTTP endpoint is: all events up to `sequence` are posted or are dead letters."""

    endpoint: str
    """Its name in the settings."""
    stream: str
    """When the stream of events was created, so that a later one is told apart."""
    sequence: int

    @property
    def identity(self) -> str:
        """The endpoint's name."""
        return self.endpoint


AnyFact = (
    KubeNode
    | KubePod
    | KubeHold
    | SlurmNode
    | SlurmJob
    | SlurmReservation
    | Desired
    | Wrote
    | SourceHealth
    | StreamHealth
    | ForwardPosition
)


def worker_key(fact: SlurmNode | KubePod | Desired | Wrote) -> WorkerKey:
    """The worker that a fact is about."""
    return (fact.cluster, fact.worker if isinstance(fact, KubePod) else fact.name)
