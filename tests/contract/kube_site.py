"""One API server to examine, fake or real, and what its administrator does to it beside the port."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Protocol

from lockstep.kube.client import KubeClient

Object = dict[str, Any]
PATIENCE_S = 20.0


class Yard(Protocol):
    """What is done to Kubernetes beside the port, by its administrator. Paths are those of the API."""

    async def create(self, path: str, body: Object) -> Object:
        """Create an object in a collection; what the server made of it."""
        ...

    async def patch(self, path: str, body: Object) -> Object:
        """Merge into an object."""
        ...

    async def read(self, path: str) -> Object:
        """An object or a list."""
        ...

    async def delete(self, path: str) -> None:
        """Delete an object at once."""
        ...


_numbers = count(1)


@dataclass(kw_only=True)
class Site:
    """One API server to examine."""

    kube: KubeClient
    yard: Yard
    namespace: str
    mark: str = field(default_factory=lambda: f"exam-{next(_numbers)}")
    """A label value and a name of this test alone."""

    async def pod(self, name: str, **labels: str) -> Object:
        """A pod that nobody runs; its metadata."""
        meta = {"name": name, "labels": {"exam": self.mark} | labels}
        spec = {
            "nodeName": "nobody",
            "containers": [{"name": "slurmd", "image": "none"}],
            "automountServiceAccountToken": False,
        }
        body = {"metadata": meta, "spec": spec}
        made = await self.yard.create(f"/api/v1/namespaces/{self.namespace}/pods", body)
        return dict(made["metadata"])

    async def node(self) -> str:
        """A node that is no machine; its name."""
        meta = {"name": self.mark, "labels": {"exam": self.mark}}
        await self.yard.create("/api/v1/nodes", {"metadata": meta, "spec": {}})
        return self.mark

    async def deployment(self) -> str:
        """A Deployment that wants no pods; its path."""
        labels = {"exam": self.mark}
        pods = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "none", "image": "none"}]}}
        spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": pods}
        path = f"/apis/apps/v1/namespaces/{self.namespace}/deployments"
        await self.yard.create(path, {"metadata": {"name": self.mark, "labels": labels}, "spec": spec})
        return f"{path}/{self.mark}"

    async def read_pod(self, name: str) -> Object:
        """The pod as it is stored."""
        return await self.yard.read(f"/api/v1/namespaces/{self.namespace}/pods/{name}")

    async def read_node(self, name: str) -> Object:
        """The node as it is stored."""
        return await self.yard.read(f"/api/v1/nodes/{name}")


async def eventually(true: Callable[[], Awaitable[bool]]) -> None:
    """Wait until it is so."""
    async with asyncio.timeout(PATIENCE_S):
        while not await true():
            await asyncio.sleep(0.05)
