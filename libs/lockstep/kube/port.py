"""What services ask of Kubernetes. `client.KubeClient` implements it; services name this protocol only.

Calls raise `errors.KubeError`. Writes that carry a `uid` or a `resource_version` raise `Conflict` when the object is
another one.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import datetime
from typing import Generic, Literal, Protocol, TypeVar

import msgspec

from lockstep.contracts.hold import Condition, HoldSpec, HoldStatus
from lockstep.kube.wire import Hold, Lease, Node, Pod

T = TypeVar("T")
Watched = TypeVar("Watched", Node, Pod, Hold)


class Delta(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """One item of a watch.

    - `changed`: `after` is new or another version; `before` is what was seen last, None if nothing was.
    - `gone`: it no longer exists; `before` is its last state.
    - `synced`: at `at` everything had been told. Comes after each list and with each bookmark (about once a minute).
    - `lost`: the watch is not complete until the next `synced`; `error` says why. Said once an outage.

    Between `synced` and `lost` the watch is alive. States that follow each other fast may be told as one.
    """

    kind: Literal["changed", "gone", "synced", "lost"]
    before: T | None = None
    after: T | None = None
    at: datetime | None = None
    error: str = ""


class Regarding(msgspec.Struct, frozen=True, kw_only=True):
    """The object an Event is about. `namespace` is empty for nodes."""

    kind: str
    name: str
    api_version: str = "v1"
    namespace: str = ""
    uid: str = ""


class ServerVersion(msgspec.Struct, frozen=True, kw_only=True):
    """The API server's version. Vendors decorate it (`v1.31.4-gke.1`, minor `31+`)."""

    major: int
    minor: int
    text: str


class LeaseApi(Protocol):
    """What leader election needs."""

    async def get_lease(self, namespace: str, name: str) -> Lease | None:
        """The lease, or None."""

    async def create_lease(self, lease: Lease) -> Lease:
        """Create it.

        Raises:
            AlreadyExists: somebody was faster.
        """

    async def update_lease(self, lease: Lease) -> Lease:
        """Replace it.

        Raises:
            Conflict: it is no longer at `lease.metadata.resource_version`.
        """


class KubeApi(LeaseApi, Protocol):
    """Kubernetes, as far as services use it."""

    def watch(
        self, kind: type[Watched], *, namespace: str | None = None, label_selector: str = ""
    ) -> AsyncGenerator[Delta[Watched], None]:
        """Everything of one kind, then every change, for ever. Close it (`aclosing`) to end it. See `Delta`."""

    async def get_node(self, name: str) -> Node | None:
        """The node as it is now, or None."""

    async def get_pod(self, namespace: str, name: str) -> Pod | None:
        """The pod as it is now, or None."""

    async def get_hold(self, namespace: str, name: str) -> Hold | None:
        """The Hold as it is now, or None."""

    async def list_nodes(self, *, label_selector: str = "") -> list[Node]:
        """All nodes."""

    async def list_pods(self, *, namespace: str | None = None, label_selector: str = "") -> list[Pod]:
        """All pods, of one namespace or of all."""

    async def list_holds(self, *, namespace: str | None = None) -> list[Hold]:
        """All Holds, of one namespace or of all, also those that cannot be used."""

    async def patch_pod_labels(
        self,
        namespace: str,
        name: str,
        labels: Mapping[str, str | None],
        *,
        uid: str,
        resource_version: str | None = None,
    ) -> None:
        """Set labels, and remove those that are None."""

    async def annotate_pod(self, namespace: str, name: str, annotations: Mapping[str, str | None], *, uid: str) -> None:
        """Set annotations, and remove those that are None."""

    async def annotate_node(self, name: str, annotations: Mapping[str, str | None], *, uid: str) -> None:
        """Set annotations, and remove those that are None."""

    async def set_pod_conditions(
        self,
        namespace: str,
        name: str,
        wanted: Sequence[Condition],
        prefix: str,
        *,
        uid: str,
        shown: Sequence[Condition] | None = None,
    ) -> bool:
        """Show exactly `wanted` among the conditions with this prefix. False: it was so already.

        `shown` are those that the pod is known to show; without it the pod is read first.
        """

    async def set_node_condition(
        self, name: str, condition: Condition, *, uid: str = "", shown: Sequence[Condition] | None = None
    ) -> bool:
        """Show this condition. False: it was so already.

        `shown` is what the node with this `uid` is known to show of it; without it the node is read first.
        """

    async def set_deployment_condition(self, namespace: str, name: str, condition: Condition) -> bool:
        """Show this condition. False: it was so already.

        It stays: the Deployment's controller keeps conditions of types that it does not know (`calculateStatus` in
        kubernetes' pkg/controller/deployment/sync.go), and writes status at the version that it has read.
        """

    async def cordon(self, name: str, *, mark: bool) -> bool:
        """Make a node unschedulable; `mark` it as our mirror of a hold.

        False, and nothing written: it is so already, by whomever; or somebody uncordoned our mirror, whose mark stands.
        """

    async def uncordon(self, name: str, *, only_ours: bool = True) -> bool:
        """Make a node schedulable, remove our mark. False: not cordoned, or not by us (and `only_ours`)."""

    async def ensure_pdb(self, namespace: str, name: str, selector: Mapping[str, str]) -> bool:
        """Have one budget with `maxUnavailable: 0` over the pods with these labels. False: there is one, by any name.

        Two budgets over one pod make the eviction API answer 500, so there is never a second.
        """

    async def create_hold(
        self, namespace: str, name: str, spec: HoldSpec, *, annotations: Mapping[str, str] | None = None
    ) -> Hold:
        """Create a Hold.

        Raises:
            AlreadyExists: there is one by that name.
            Invalid: the schema refuses it; the text says which field.
        """

    async def delete_hold(self, namespace: str, name: str, *, uid: str = "") -> bool:
        """Delete a Hold, which releases it. False: it was gone already."""

    async def set_hold_status(self, namespace: str, name: str, status: HoldStatus, *, uid: str) -> None:
        """Write the whole status of a Hold."""

    async def emit_event(
        self, regarding: Regarding, *, reason: str, message: str, kind: Literal["Normal", "Warning"] = "Normal"
    ) -> None:
        """Tell people (`kubectl events`). The same again within the hour raises the count of the first."""

    async def server_version(self) -> ServerVersion:
        """The API server's version."""

    async def can_i(
        self, verb: str, resource: str, *, group: str = "", namespace: str = "", subresource: str = "", name: str = ""
    ) -> bool:
        """Whether we may do that, as the API server says."""
