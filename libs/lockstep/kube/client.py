"""The Kubernetes API as `port.KubeApi` promises it, over `transport.Transport`."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from random import Random
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

import msgspec

from lockstep.base.calls import Calling, untold
from lockstep.base.clock import now
from lockstep.contracts.hold import GROUP, VERSION, Condition, HoldSpec, HoldStatus
from lockstep.kube import conditions, keys, leases
from lockstep.kube.errors import AlreadyExists, Conflict, NotFound, Unreachable
from lockstep.kube.events import event_body, event_name, event_namespace, moment
from lockstep.kube.port import Delta, Regarding, ServerVersion, Watched
from lockstep.kube.resources import DEPLOYMENTS, HOLDS, NODES, PODS, Resource, resource_of, segment
from lockstep.kube.settings import KubeClientSettings
from lockstep.kube.transport import Counters, Transport
from lockstep.kube.watch import Watch
from lockstep.kube.wire import Hold, Lease, Node, Page, Pdb, Pod, selects

T = TypeVar("T")
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
_MANAGER = {"fieldManager": keys.FIELD_MANAGER}


class KubeClient:
    """One connection to one API server; share it. An async context manager."""

    def __init__(
        self, settings: KubeClientSettings, *, random: Random | None = None, calling: Calling = untold
    ) -> None:
        self._http = Transport(settings, calling)
        self._random = random or Random()  # noqa: S311  jitter is no secret

    async def __aenter__(self) -> Self:
        """Read the configuration.

        Raises:
            BadInput: there is no usable one.
        """
        await self._http.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Close all connections."""
        await self._http.__aexit__(kind, e, tb)

    @property
    def counters(self) -> Counters:
        """What happened so far."""
        return self._http.counters

    def watch(
        self, kind: type[Watched], *, namespace: str | None = None, label_selector: str = ""
    ) -> AsyncGenerator[Delta[Watched], None]:
        """See `port.KubeApi`."""
        return Watch(
            self._http,
            resource_of(kind),
            namespace=namespace,
            label_selector=label_selector,
            random=self._random,
        ).deltas()

    async def get_node(self, name: str) -> Node | None:
        """See `port.KubeApi`."""
        return await self._get(NODES, None, name)

    async def get_pod(self, namespace: str, name: str) -> Pod | None:
        """See `port.KubeApi`."""
        return await self._get(PODS, namespace, name)

    async def get_hold(self, namespace: str, name: str) -> Hold | None:
        """See `port.KubeApi`."""
        return await self._get(HOLDS, namespace, name)

    async def list_nodes(self, *, label_selector: str = "") -> list[Node]:
        """See `port.KubeApi`."""
        return await self._list(NODES, None, label_selector)

    async def list_pods(self, *, namespace: str | None = None, label_selector: str = "") -> list[Pod]:
        """See `port.KubeApi`."""
        return await self._list(PODS, namespace, label_selector)

    async def list_holds(self, *, namespace: str | None = None) -> list[Hold]:
        """See `port.KubeApi`."""
        return await self._list(HOLDS, namespace, "")

    async def patch_pod_labels(
        self,
        namespace: str,
        name: str,
        labels: Mapping[str, str | None],
        *,
        uid: str,
        resource_version: str | None = None,
    ) -> None:
        """See `port.KubeApi`."""
        metadata = {"uid": uid, "labels": dict(labels)}
        if resource_version is not None:
            metadata["resourceVersion"] = resource_version
        await self._patch(PODS.path(namespace, name), MERGE, {"metadata": metadata})

    async def annotate_pod(self, namespace: str, name: str, annotations: Mapping[str, str | None], *, uid: str) -> None:
        """See `port.KubeApi`."""
        body = {"metadata": {"uid": uid, "annotations": dict(annotations)}}
        await self._patch(PODS.path(namespace, name), MERGE, body)

    async def annotate_node(self, name: str, annotations: Mapping[str, str | None], *, uid: str) -> None:
        """See `port.KubeApi`."""
        body = {"metadata": {"uid": uid, "annotations": dict(annotations)}}
        await self._patch(NODES.path(None, name), MERGE, body)

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
        """See `port.KubeApi`."""
        if shown is None:
            pod = await self._get(PODS, namespace, name)
            if pod is None:
                raise NotFound(f"pod {namespace}/{name} is gone")
            if pod.metadata.uid != uid:
                raise Conflict(f"pod {namespace}/{name} is another one now")
            shown = pod.status.conditions
        return await self._show(PODS.path(namespace, name, "/status"), uid, shown, wanted, prefix)

    async def set_node_condition(
        self, name: str, condition: Condition, *, uid: str = "", shown: Sequence[Condition] | None = None
    ) -> bool:
        """See `port.KubeApi`."""
        if shown is None:
            node = await self._the_node(name)
            uid, shown = node.metadata.uid, node.status.conditions
        return await self._show(NODES.path(None, name, "/status"), uid, shown, [condition], condition.type)

    async def set_deployment_condition(self, namespace: str, name: str, condition: Condition) -> bool:
        """See `port.KubeApi`."""
        deployment = await self._get(DEPLOYMENTS, namespace, name)
        if deployment is None:
            raise NotFound(f"deployment {namespace}/{name} is gone")
        path, uid = DEPLOYMENTS.path(namespace, name, "/status"), deployment.metadata.uid
        return await self._show(path, uid, deployment.status.conditions, [condition], condition.type)

    async def cordon(self, name: str, *, mark: bool) -> bool:
        """See `port.KubeApi`."""

        async def once() -> bool:
            node = await self._the_node(name)
            if node.spec.unschedulable or (mark and node.mirror_mark):
                return False
            await self._set_schedulable(node, unschedulable=True, mark=keys.TRUE if mark else None)
            return True

        return await _again(once)

    async def uncordon(self, name: str, *, only_ours: bool = True) -> bool:
        """See `port.KubeApi`."""

        async def once() -> bool:
            node = await self._the_node(name)
            if not node.spec.unschedulable or (only_ours and not node.cordon_is_ours):
                return False
            await self._set_schedulable(node, unschedulable=None, mark=None)
            return True

        return await _again(once)

    async def ensure_pdb(self, namespace: str, name: str, selector: Mapping[str, str]) -> bool:
        """See `port.KubeApi`."""
        path = f"/apis/policy/v1/namespaces/{segment(namespace)}/poddisruptionbudgets"
        there = _decoded(await self._http.request("GET", path), Page[Pdb])
        if any(selects(pdb.spec.selector, selector) for pdb in there.items):
            return False
        body = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"maxUnavailable": 0, "selector": {"matchLabels": dict(selector)}},
        }
        await self._http.request("POST", path, query=_MANAGER, body=body)
        return True

    async def create_hold(
        self, namespace: str, name: str, spec: HoldSpec, *, annotations: Mapping[str, str] | None = None
    ) -> Hold:
        """See `port.KubeApi`."""
        body = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": "Hold",
            "metadata": {"name": name, "namespace": namespace, "annotations": dict(annotations or {})},
            "spec": msgspec.to_builtins(spec),
        }
        return HOLDS.one(await self._http.request("POST", HOLDS.path(namespace), query=_MANAGER, body=body))

    async def delete_hold(self, namespace: str, name: str, *, uid: str = "") -> bool:
        """See `port.KubeApi`."""
        body = {"kind": "DeleteOptions", "apiVersion": "v1"} | ({"preconditions": {"uid": uid}} if uid else {})
        try:
            await self._http.request("DELETE", HOLDS.path(namespace, name), body=body)
        except NotFound:
            return False
        return True

    async def set_hold_status(self, namespace: str, name: str, status: HoldStatus, *, uid: str) -> None:
        """See `port.KubeApi`."""
        whole = {f.encode_name: msgspec.to_builtins(getattr(status, f.name)) for f in msgspec.structs.fields(status)}

        async def once() -> None:
            hold = await self.get_hold(namespace, name)
            if hold is None:
                raise NotFound(f"hold {namespace}/{name} is gone")
            if hold.metadata.uid != uid:
                raise Conflict(f"hold {namespace}/{name} is another one now")
            body = {"metadata": {"resourceVersion": hold.metadata.resource_version}, "status": whole}
            await self._patch(HOLDS.path(namespace, name, "/status"), MERGE, body)

        await _again(once)

    async def emit_event(
        self, regarding: Regarding, *, reason: str, message: str, kind: Literal["Normal", "Warning"] = "Normal"
    ) -> None:
        """See `port.KubeApi`."""
        path = f"/api/v1/namespaces/{segment(event_namespace(regarding))}/events"
        at = now()
        try:
            await self._http.request("POST", path, body=event_body(regarding, reason, message, kind, at))
        except AlreadyExists:
            one = f"{path}/{segment(event_name(regarding, reason, message, kind))}"
            before = _decoded(await self._http.request("GET", one), _Counted)
            await self._patch(one, MERGE, {"count": before.count + 1, "lastTimestamp": moment(at)})

    async def server_version(self) -> ServerVersion:
        """See `port.KubeApi`."""
        said = _decoded(await self._http.request("GET", "/version"), _Version)
        return ServerVersion(major=_number(said.major), minor=_number(said.minor), text=said.git_version)

    async def can_i(
        self, verb: str, resource: str, *, group: str = "", namespace: str = "", subresource: str = "", name: str = ""
    ) -> bool:
        """See `port.KubeApi`."""
        what = {"resource": resource, "group": group, "namespace": namespace, "subresource": subresource, "name": name}
        asked = {"verb": verb, **what}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": asked},
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        return _decoded(await self._http.request("POST", path, body=body), _Review).status.allowed

    async def get_lease(self, namespace: str, name: str) -> Lease | None:
        """See `port.LeaseApi`."""
        try:
            return _decoded(await self._http.request("GET", leases.path(namespace, name)), Lease)
        except NotFound:
            return None

    async def create_lease(self, lease: Lease) -> Lease:
        """See `port.LeaseApi`."""
        path = leases.path(lease.metadata.namespace)
        return _decoded(await self._http.request("POST", path, body=leases.body(lease)), Lease)

    async def update_lease(self, lease: Lease) -> Lease:
        """See `port.LeaseApi`."""
        path = leases.path(lease.metadata.namespace, lease.metadata.name)
        return _decoded(await self._http.request("PUT", path, body=leases.body(lease)), Lease)

    async def _get(self, resource: Resource[T], namespace: str | None, name: str) -> T | None:
        try:
            data = await self._http.request("GET", resource.path(namespace, name))
        except NotFound:
            return None
        try:
            return resource.one(data)
        except msgspec.DecodeError as e:
            raise Unreachable(f"GET {resource.path(namespace, name)}: cannot be read: {e}") from e

    async def _list(self, resource: Resource[T], namespace: str | None, label_selector: str) -> list[T]:
        query = {"limit": str(self._http.settings.page)}
        if label_selector:
            query["labelSelector"] = label_selector
        found: list[T] = []
        while True:
            data = await self._http.request("GET", resource.path(namespace), query=query)
            try:
                meta, items, bad = resource.page(data)
            except msgspec.DecodeError as e:
                raise Unreachable(f"GET {resource.path(namespace)}: no list: {e}") from e
            self.counters.ignored += bad
            found += items
            if not meta.continue_:
                return found
            query["continue"] = meta.continue_

    async def _the_node(self, name: str) -> Node:
        node = await self.get_node(name)
        if node is None:
            raise NotFound(f"node {name} is gone")
        return node

    async def _set_schedulable(self, node: Node, *, unschedulable: bool | None, mark: str | None) -> None:
        body = {
            "metadata": {
                "uid": node.metadata.uid,
                "resourceVersion": node.metadata.resource_version,
                "annotations": {keys.MIRRORED_CORDON: mark},
            },
            "spec": {"unschedulable": unschedulable},
        }
        await self._patch(NODES.path(None, node.metadata.name), MERGE, body)

    async def _show(
        self, path: str, uid: str, existing: Sequence[Condition], wanted: Sequence[Condition], prefix: str
    ) -> bool:
        """Patch the conditions that differ, by type; those of kubelets and controllers are not touched."""
        merged = conditions.merge(existing, wanted, prefix, now())
        if merged is None:
            return False
        stay = {c.type for c in merged}
        patch: list[Any] = [_whole(c) for c in merged if c not in existing]
        patch += [{"$patch": "delete", "type": c.type} for c in existing if c.type not in stay]
        await self._patch(path, STRATEGIC, {"metadata": {"uid": uid}, "status": {"conditions": patch}})
        return True

    async def _patch(self, path: str, content_type: str, body: Any) -> None:
        await self._http.request("PATCH", path, query=_MANAGER, body=body, content_type=content_type)


async def _again(once: Callable[[], Awaitable[T]]) -> T:
    """Look and write, and look again when somebody wrote in between, as kubelets and controllers do all the time.

    Raises:
        Conflict: three times in a row.
    """
    for _ in range(2):
        with suppress(Conflict):
            return await once()
    return await once()


def _whole(condition: Condition) -> dict[str, Any]:
    """A condition with its empty texts: a strategic merge keeps the old text where none is sent."""
    return {"reason": "", "message": "", **msgspec.to_builtins(condition)}


class _Counted(msgspec.Struct, frozen=True):
    count: int = 1


class _Version(msgspec.Struct, frozen=True, rename="camel"):
    major: str = ""
    minor: str = ""
    git_version: str = ""


class _Allowed(msgspec.Struct, frozen=True):
    allowed: bool = False


class _Review(msgspec.Struct, frozen=True):
    status: _Allowed = _Allowed()


def _decoded(data: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError as e:
        raise Unreachable(f"{kind.__name__}: the answer cannot be read: {e}") from e


def _number(text: str) -> int:
    """The leading digits: vendors write `31+`."""
    digits = "".join(c if c.isdecimal() else " " for c in text).split()
    return int(digits[0]) if digits else 0
