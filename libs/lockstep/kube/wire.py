"""Kubernetes objects as far as we read them, decoded from the bytes of the API.

Everything is optional that the API may leave out. A Hold that cannot be used is still a Hold: `spec` is None and
`fault` says why.
"""

from collections.abc import Mapping
from typing import Generic, TypeVar

import msgspec

from lockstep.base.text import one_line
from lockstep.contracts.common import Aware
from lockstep.contracts.hold import MAX_REASON, Condition, HoldSpec, HoldStatus
from lockstep.contracts.requests import owner_of
from lockstep.kube import keys

T = TypeVar("T")


class _Wire(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Camel case outside, snake case inside; unknown fields are skipped."""


class ObjectMeta(_Wire, frozen=True):
    """Who an object is and which version of it this is."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: Aware | None = None
    deletion_timestamp: Aware | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class _SpecFields(msgspec.Struct, frozen=True):
    """The one field of a spec whose writer matters."""

    unschedulable: dict[str, str] | None = msgspec.field(default=None, name="f:unschedulable")


class _Fields(msgspec.Struct, frozen=True):
    """The set of fields that a manager wrote (`fieldsV1`), as far as we ask."""

    spec: _SpecFields | None = msgspec.field(default=None, name="f:spec")


class ManagedField(_Wire, frozen=True):
    """Which client wrote which fields: names a program, never a person, and anybody can choose it."""

    manager: str = ""
    time: Aware | None = None
    fields: _Fields = msgspec.field(default=_Fields(), name="fieldsV1")


class ManagedMeta(ObjectMeta, frozen=True):
    """Metadata of an object whose writers matter."""

    managed_fields: list[ManagedField] = []


class Taint(_Wire, frozen=True):
    """A node's taint."""

    key: str
    value: str = ""
    effect: str = ""


class NodeSpec(_Wire, frozen=True):
    """Whether pods may come."""

    unschedulable: bool = False
    taints: list[Taint] = []


class NodeInfo(_Wire, frozen=True):
    """What tells one boot of a machine from the next."""

    boot_id: str = msgspec.field(default="", name="bootID")


class NodeStatus(_Wire, frozen=True):
    """How the node is. Heartbeat times are left out, so that a healthy node does not change."""

    conditions: list[Condition] = []
    node_info: NodeInfo = NodeInfo()


class Node(_Wire, frozen=True):
    """A Kubernetes node."""

    metadata: ManagedMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def ready(self) -> bool:
        """The kubelet says so."""
        return is_true(self.status.conditions, "Ready")

    @property
    def mirror_mark(self) -> bool:
        """We cordoned the node as the mirror of a hold, and the mark still stands."""
        return self.metadata.annotations.get(keys.MIRRORED_CORDON) == keys.TRUE

    @property
    def cordon_is_ours(self) -> bool:
        """The cordon is our mirror: nobody else has set it since."""
        return self.spec.unschedulable and self.cordoned_by == keys.FIELD_MANAGER

    @property
    def cordoned_by(self) -> str:
        """The client that set `spec.unschedulable`, as far as the API server knows; a program's name, bounded.

        Of several the one that is not us. Objects that were created by a client without a name have no record of
        writers; there our mark has to do.
        """
        if not self.spec.unschedulable:
            return ""
        if not self.metadata.managed_fields:
            return keys.FIELD_MANAGER if self.mirror_mark else ""
        writers = [
            f.manager for f in self.metadata.managed_fields if f.fields.spec and f.fields.spec.unschedulable is not None
        ]
        foreign = next((name for name in writers if name != keys.FIELD_MANAGER), "")
        return one_line(foreign or next(iter(writers), ""), limit=128)


class PodSpec(_Wire, frozen=True):
    """Where a pod runs, and what its slurmd calls itself."""

    node_name: str = ""
    hostname: str = ""
    host_network: bool = False


class Running(_Wire, frozen=True):
    """A container that runs."""

    started_at: Aware | None = None


class ContainerState(_Wire, frozen=True):
    """What a container does; `running` is None while it waits or has ended."""

    running: Running | None = None


class ContainerStatus(_Wire, frozen=True):
    """How one container is."""

    name: str
    state: ContainerState = ContainerState()


class PodStatus(_Wire, frozen=True):
    """How the pod is."""

    phase: str = ""
    conditions: list[Condition] = []
    start_time: Aware | None = None
    container_statuses: list[ContainerStatus] = []

    def started_at(self, container: str) -> Aware | None:
        """When that container was started last (of another name: when any was); else when the pod was."""
        running = {c.name: c.state.running.started_at for c in self.container_statuses if c.state.running}
        newest = max((at for at in running.values() if at), default=self.start_time)
        return running.get(container) or newest


class Pod(_Wire, frozen=True):
    """A pod."""

    metadata: ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def ready(self) -> bool:
        """All its containers are ready."""
        return is_true(self.status.conditions, "Ready")

    @property
    def ready_since(self) -> Aware | None:
        """Since when it is ready; None when it is not."""
        ready = (c for c in self.status.conditions if c.type == "Ready" and c.status == "True")
        return next((c.last_transition_time for c in ready), None)


class DeploymentStatus(_Wire, frozen=True):
    """How the Deployment is."""

    conditions: list[Condition] = []


class Deployment(_Wire, frozen=True):
    """A Deployment of apps/v1."""

    metadata: ObjectMeta
    status: DeploymentStatus = DeploymentStatus()


class RawHold(_Wire, frozen=True):
    """A Hold before its content was looked at."""

    metadata: ManagedMeta
    spec: msgspec.Raw = msgspec.Raw(b"null")
    status: msgspec.Raw = msgspec.Raw(b"null")


class Hold(_Wire, frozen=True):
    """A Hold. `fault` is empty, or names what in the spec cannot be used; then `spec` is None."""

    metadata: ManagedMeta
    spec: HoldSpec | None = None
    status: HoldStatus = HoldStatus()
    fault: str = ""

    @property
    def request(self) -> str:
        """The id of the request that it stands for; empty for one that was made on Kubernetes."""
        return one_line(self.metadata.annotations.get(keys.REQUEST, ""), limit=128)

    @property
    def requested_by(self) -> str:
        """The NATS user that asked for it, or empty."""
        return one_line(self.metadata.annotations.get(keys.REQUESTED_BY, ""), limit=120)

    @property
    def traceparent(self) -> str:
        """The trace in which it was asked for, or empty; anybody may write anything there."""
        return one_line(self.metadata.annotations.get(keys.TRACEPARENT, ""), limit=64)

    @property
    def owner(self) -> str:
        """Whose it is: `nats:` and the user that asked for it by a request, else who created it on Kubernetes.

        That is what the API server said; without the admission policy it is the client that wrote the spec.
        """
        if by := self.requested_by:
            return owner_of(by)
        said = self.metadata.annotations.get(keys.OWNER, "")
        if not said:
            writers = [f for f in self.metadata.managed_fields if f.fields.spec]
            said = writers[0].manager if writers else ""
        return one_line(said, limit=128)


class LeaseSpec(_Wire, frozen=True):
    """Who holds a lease. Times are the holder's clock and are compared with nothing of ours."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: Aware | None = None
    renew_time: Aware | None = None
    lease_transitions: int | None = None


class Lease(_Wire, frozen=True):
    """A lease of coordination.k8s.io/v1."""

    metadata: ObjectMeta
    spec: LeaseSpec = LeaseSpec()


class MatchExpression(_Wire, frozen=True):
    """One requirement of a selector."""

    key: str
    operator: str
    values: list[str] = []


class Selector(_Wire, frozen=True):
    """A label selector."""

    match_labels: dict[str, str] = {}
    match_expressions: list[MatchExpression] = []

    def requirements(self) -> frozenset[tuple[str, str, tuple[str, ...]]]:
        """What it asks for, in one form: `a=b` and `a in (b)` are the same."""
        wanted = {(k, "In", (v,)) for k, v in self.match_labels.items()}
        return frozenset(wanted | {(e.key, e.operator, tuple(sorted(e.values))) for e in self.match_expressions})


class PdbSpec(_Wire, frozen=True):
    """Which pods a disruption budget is for; None is no pod, an empty one is every pod."""

    selector: Selector | None = None
    max_unavailable: int | str | None = None
    min_available: int | str | None = None


class Pdb(_Wire, frozen=True):
    """A PodDisruptionBudget of policy/v1."""

    metadata: ObjectMeta
    spec: PdbSpec = PdbSpec()


class ListMeta(_Wire, frozen=True):
    """The version of a list, and where its next page begins."""

    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class Page(_Wire, Generic[T], frozen=True):
    """One page of a list."""

    metadata: ListMeta = ListMeta()
    items: list[T] = []


class Cause(_Wire, frozen=True):
    """One fault of a refused object."""

    field: str = ""
    message: str = ""


class Details(_Wire, frozen=True):
    """The machine's part of a Status."""

    causes: list[Cause] = []
    retry_after_seconds: int = 0


class Status(_Wire, frozen=True):
    """How the API server says that something went wrong."""

    kind: str = ""
    code: int = 0
    reason: str = ""
    message: str = ""
    details: Details | None = None


class WatchLine(msgspec.Struct, frozen=True):
    """One line of a watch."""

    type: str
    object: msgspec.Raw


_spec = msgspec.json.Decoder(HoldSpec)
_status = msgspec.json.Decoder(HoldStatus | None)


def hold_from(raw: RawHold) -> Hold:
    """Look at a Hold's content; never raises."""
    spec, fault = _spec_of(raw.spec)
    try:
        status = _status.decode(raw.status) or HoldStatus()
    except msgspec.ValidationError:
        status = HoldStatus()
    return Hold(metadata=raw.metadata, spec=spec, status=status, fault=fault)


def _spec_of(raw: msgspec.Raw) -> tuple[HoldSpec | None, str]:
    try:
        spec = _spec.decode(raw)
    except msgspec.ValidationError as e:
        what, _, where = str(e).partition(" - at `$")
        return None, one_line(f"spec{where.rstrip('`')}: {what}", limit=300)
    given = [f.encode_name for f in msgspec.structs.fields(spec.workers) if getattr(spec.workers, f.name) is not None]
    if len(given) != 1:
        listed = ", ".join(given) or "none"
        return (
            None,
            f"spec.workers: want exactly one of names, hostlist, nodes, selector, partitions, blocks; got {listed}",
        )
    if not getattr(spec.workers, given[0]):
        return None, f"spec.workers.{given[0]}: is empty"
    if not spec.reason.strip() or len(spec.reason) > MAX_REASON:
        return None, f"spec.reason: want 1 to {MAX_REASON} characters, got {len(spec.reason)}"
    return spec, ""


def is_true(conditions: list[Condition], name: str) -> bool:
    """Whether the condition is there and True."""
    return any(c.type == name and c.status == "True" for c in conditions)


def selects(selector: Selector | None, labels: Mapping[str, str]) -> bool:
    """Whether the selector asks for exactly these labels, no more and no less."""
    return selector is not None and selector.requirements() == Selector(match_labels=dict(labels)).requirements()
