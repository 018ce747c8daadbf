"""The fake API server sits the exam."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from lockstep.kube.client import KubeClient
from lockstep.kube.port import KubeApi
from lockstep.kube.settings import KubeClientSettings
from tests.contract.kube_exam import KubeExam
from tests.contract.kube_site import Object, Site
from tests.fakes.kube import FakeKube


class FakeYard:
    """The administrator's hand on the fake, over HTTP."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        """At this address."""
        self._url, self._session = url, session

    async def create(self, path: str, body: Object) -> Object:
        """POST."""
        return await self._ask("POST", path, body)

    async def patch(self, path: str, body: Object) -> Object:
        """PATCH."""
        return await self._ask("PATCH", path, body, "application/merge-patch+json")

    async def read(self, path: str) -> Object:
        """GET."""
        return await self._ask("GET", path, None)

    async def delete(self, path: str) -> None:
        """DELETE."""
        await self._ask("DELETE", path, None)

    async def _ask(self, method: str, path: str, body: Any, kind: str = "application/json") -> Object:
        headers = {"Content-Type": kind}
        async with self._session.request(method, self._url + path, json=body, headers=headers) as answer:
            answer.raise_for_status()
            found: Object = await answer.json()
            return found


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    """The fake."""
    async with FakeKube() as api, aiohttp.ClientSession() as session:
        settings = KubeClientSettings(kubeconfig=api.kubeconfig(tmp_path), page=3)
        async with KubeClient(settings) as kube:
            yield Site(kube=kube, yard=FakeYard(api.url, session), namespace="slurm")


class TestFake(KubeExam):
    """The exam on the fake."""


async def test_the_client_is_what_the_port_promises(site: Site) -> None:
    """The type checker reads this."""
    port: KubeApi = site.kube
    assert port is site.kube
