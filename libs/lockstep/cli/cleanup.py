"""What of ours is left on Kubernetes, and how each thing is taken away. Each step is right if it is tried twice."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import msgspec

from lockstep.contracts.permissions import WRITES
from lockstep.contracts.policy import Protect
from lockstep.kube import keys, leases
from lockstep.kube.client import STRATEGIC, KubeClient
from lockstep.kube.errors import NotFound
from lockstep.kube.resources import NODES, segment
from lockstep.kube.transport import Transport
from lockstep.kube.wire import Lease, ManagedMeta, Node, Page, Pod
from lockstep.runtime.settings import ClusterSettings, Settings


class Step(NamedTuple):
    """One thing to take away."""

    kind: str
    """What it is, for the count at the end."""
    name: str
    """Where it is."""
    do: Callable[[], Awaitable[object]]


class _Budget(msgspec.Struct, frozen=True):
    metadata: ManagedMeta


class Leftovers:
    """Everything that the services wrote to Kubernetes, as the settings say that they did."""

    def __init__(self, settings: Settings, kube: KubeClient, raw: Transport, *, holds: bool) -> None:
        """`raw` reaches the same API server. With `holds` people's Holds are among it."""
        self._settings = settings
        self._kube = kube
        self._raw = raw
        self._holds = holds

    async def steps(self) -> AsyncIterator[Step]:
        """What is there now. Nodes first: an uncordoned node takes pods again, whatever comes after.

        Raises:
            KubeError: it cannot be read.
        """
        for node in await self._kube.list_nodes():
            for step in self._of_node(node):
                yield step
        for cluster in self._settings.clusters:
            if self._holds:
                for hold in await self._kube.list_holds(namespace=cluster.namespace):
                    name = hold.metadata.name
                    do = partial(self._kube.delete_hold, cluster.namespace, name, uid=hold.metadata.uid)
                    yield Step("hold", f"{cluster.namespace}/{name}", do)
            for pod in await self._pods(cluster):
                for step in self._of_pod(pod):
                    yield step
            async for step in self._budgets(cluster):
                yield step
        for lease in await self.leases():
            meta = lease.metadata
            yield Step("lease", f"{meta.namespace}/{meta.name}", partial(self._delete, _lease_path(lease)))

    async def leases(self) -> list[Lease]:
        """The services' Leases that there are."""
        namespace = self._settings.lease_namespace
        found = [await self._kube.get_lease(namespace, f"lockstep-{service}") for service in WRITES]
        return [lease for lease in found if lease is not None]

    async def _pods(self, cluster: ClusterSettings) -> list[Pod]:
        selector = ",".join(f"{key}={value}" for key, value in cluster.workers.labels.items())
        return await self._kube.list_pods(namespace=cluster.namespace, label_selector=selector)

    def _of_node(self, node: Node) -> Iterable[Step]:
        meta = node.metadata
        if node.cordon_is_ours and node.mirror_mark:
            yield Step("mirrored cordon", meta.name, partial(self._kube.uncordon, meta.name))
        elif keys.MIRRORED_CORDON in meta.annotations:
            gone = {keys.MIRRORED_CORDON: None}
            yield Step("annotation", meta.name, partial(self._kube.annotate_node, meta.name, gone, uid=meta.uid))
        if any(c.type == keys.IN_SERVICE for c in node.status.conditions):
            yield Step("node condition", meta.name, partial(self._drop_condition, node))

    def _of_pod(self, pod: Pod) -> Iterable[Step]:
        meta, policy = pod.metadata, self._settings.policy
        name = f"{meta.namespace}/{meta.name}"
        if policy.protect is not Protect.OFF and keys.POD_PROTECT in meta.labels:
            gone = {keys.POD_PROTECT: None}
            do = partial(self._kube.patch_pod_labels, meta.namespace, meta.name, gone, uid=meta.uid)
            yield Step("protection", name, do)
        if policy.conditions and any(c.type.startswith(keys.SLURM_STATE_PREFIX) for c in pod.status.conditions):
            prefix = keys.SLURM_STATE_PREFIX
            drop = partial(self._kube.set_pod_conditions, meta.namespace, meta.name, [], prefix, uid=meta.uid)
            yield Step("pod's conditions", name, drop)

    async def _budgets(self, cluster: ClusterSettings) -> AsyncIterator[Step]:
        """The budget of that name, where we made it: slurm-operator calls its own the same."""
        path = f"/apis/policy/v1/namespaces/{segment(cluster.namespace)}/poddisruptionbudgets"
        page = msgspec.json.decode(await self._raw.request("GET", path), type=Page[_Budget])
        for budget in page.items:
            meta = budget.metadata
            made_by_us = any(field.manager == keys.FIELD_MANAGER for field in meta.managed_fields)
            if meta.name == keys.pdb_name(cluster.name) and made_by_us:
                do = partial(self._delete, f"{path}/{segment(meta.name)}")
                yield Step("disruption budget", f"{cluster.namespace}/{meta.name}", do)

    async def _drop_condition(self, node: Node) -> None:
        meta = node.metadata
        gone = [{"$patch": "delete", "type": keys.IN_SERVICE}]
        body: dict[str, Any] = {"metadata": {"uid": meta.uid}, "status": {"conditions": gone}}
        path = NODES.path(None, meta.name, "/status")
        await self._raw.request("PATCH", path, body=body, content_type=STRATEGIC)

    async def _delete(self, path: str) -> None:
        try:
            await self._raw.request("DELETE", path)
        except NotFound:
            return


def _lease_path(lease: Lease) -> str:
    return leases.path(lease.metadata.namespace, lease.metadata.name)
