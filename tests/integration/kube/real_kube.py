"""A real kube-apiserver of its own for the tests of a module, our client of it, and its administrator's hand."""

import asyncio
import json
from pathlib import Path
from typing import Any

from lockstep.kube.settings import KubeClientSettings
from tests.contract.kube_site import Object
from tests.integration.control_plane import ControlPlane
from tests.lab.kube import Kube


class RealYard:
    """The administrator's hand on the real one."""

    def __init__(self, kube: Kube) -> None:
        """Of this cluster."""
        self._kube = kube

    async def create(self, path: str, body: Object) -> Object:
        """POST."""
        return await self._ask("POST", f"{path}?fieldManager=exam", body)

    async def patch(self, path: str, body: Object) -> Object:
        """PATCH."""
        return await self._ask("PATCH", path, body, "application/merge-patch+json")

    async def read(self, path: str) -> Object:
        """GET."""
        return await self._ask("GET", path, None)

    async def delete(self, path: str) -> None:
        """DELETE, without waiting for a kubelet."""
        await self._ask("DELETE", f"{path}?gracePeriodSeconds=0", None)

    async def _ask(self, method: str, path: str, body: Any, kind: str = "application/json") -> Object:
        found: Object = await asyncio.to_thread(self._kube.request, method, path, body, kind=kind)
        return found


def settings(plane: ControlPlane, folder: Path, token: Path, **more: Any) -> KubeClientSettings:
    """A kubeconfig whose token is in a file of its own, as a pod's is."""
    server = {"server": plane.kube.server, "certificate-authority": str(plane.kube.authority)}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "exam",
        "contexts": [{"name": "exam", "context": {"cluster": "exam", "user": "me"}}],
        "clusters": [{"name": "exam", "cluster": server}],
        "users": [{"name": "me", "user": {"tokenFile": str(token)}}],
    }
    path = folder / f"{token.name}.kubeconfig"
    path.write_text(json.dumps(config))
    return KubeClientSettings(kubeconfig=str(path), **more)
