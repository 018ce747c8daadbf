"""What is seen of both systems, by connections of the benchmark's own: Lockstep is never asked.

Times are `time.monotonic()`. Kubernetes is seen through one watch on the worker pods; Slurm through slurmrestd itself,
one node at a time, and for many nodes through `sinfo`, which costs slurmctld a sixth of what a list in JSON costs.
"""

import asyncio
import json
import ssl
import time
from collections.abc import Callable, Collection
from typing import Any

import aiohttp
import msgspec

from tests.bench.fleet import node_of
from tests.lab.lab import Lab
from tests.lab.workers import NAMESPACE

PAUSE_S = 0.005
"""Between two looks at one Slurm node."""
COUNT_PAUSE_S = 0.05
"""Between two counts of the drained nodes."""
DRAIN = "SlurmNodeStateDrain"
PROTECT = "nodeset.slinky.slurm.net/pod-protect"
IN_SERVICE = "lockstep.sh/InService"
_PARSER = "v0.0.45"
_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
_SIDE_BY_SIDE = 16


class _Condition(msgspec.Struct, frozen=True):
    type: str


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}


class _Status(msgspec.Struct, frozen=True):
    conditions: list[_Condition] = []


class _Object(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()
    status: _Status = _Status()


class _List(msgspec.Struct, frozen=True):
    items: list[_Object]
    metadata: _Meta


class _Change(msgspec.Struct, frozen=True):
    type: str
    object: _Object


class KubeEyes:
    """The worker pods as the API server's watch shows them, and the hand that cordons."""

    def __init__(self, session: aiohttp.ClientSession, lab: Lab) -> None:
        token = json.loads(lab.kube.kubeconfig.read_text())["users"][0]["user"]["token"]
        self._session, self._server = session, lab.kube.server
        self._options: dict[str, Any] = {
            "ssl": ssl.create_default_context(cafile=str(lab.kube.authority)),
            "headers": {"Authorization": f"Bearer {token}"},
        }
        self.shown: dict[str, frozenset[str]] = {}
        """Per pod the types of its conditions, and the label that protects it."""
        self.changed_at = 0.0
        self._wake = asyncio.Event()

    async def follow(self) -> None:
        """Watch until cancelled; the API server ends a watch whose reader is too slow for it."""
        while True:
            await self._follow_once()

    async def _follow_once(self) -> None:
        found = msgspec.json.decode(await self._get(_PODS), type=_List)
        for pod in found.items:
            self._take(pod)
        decode = msgspec.json.Decoder(_Change).decode
        url = f"{self._server}{_PODS}?watch=1&resourceVersion={found.metadata.resource_version}&timeoutSeconds=3600"
        async with self._session.get(url, timeout=aiohttp.ClientTimeout(), **self._options) as answer:
            rest = b""
            async for chunk in answer.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    self._take(decode(line).object)

    async def until(
        self, names: Collection[str], is_so: Callable[[frozenset[str]], bool], within_s: float = 120
    ) -> dict[str, float]:
        """Wait until each pod is so; when each was seen so first.

        Raises:
            TimeoutError: says how many are not.
        """
        left, seen = set(names), dict[str, float]()
        try:
            async with asyncio.timeout(within_s):
                while True:
                    self._wake.clear()
                    now = time.monotonic()
                    so = {name for name in left if is_so(self.shown.get(name, frozenset()))}
                    seen |= dict.fromkeys(so, now)
                    left -= so
                    if not left:
                        return seen
                    await self._wake.wait()
        except TimeoutError as error:
            raise TimeoutError(f"{len(left)} of {len(names)} pods are not so: {sorted(left)[:3]}") from error

    async def quiet(self, for_s: float, within_s: float = 180) -> None:
        """Wait until no pod has changed for so long."""
        async with asyncio.timeout(within_s):
            while (missing_s := self.changed_at + for_s - time.monotonic()) > 0:
                await asyncio.sleep(missing_s)

    async def in_service(self, names: Collection[str], within_s: float = 120) -> None:
        """Wait until the nodes of all workers bear the condition that says whether they are in service."""
        async with asyncio.timeout(within_s):
            while True:
                found = msgspec.json.decode(await self._get("/api/v1/nodes"), type=_List)
                shown = {
                    node.metadata.name for node in found.items for c in node.status.conditions if c.type == IN_SERVICE
                }
                if shown.issuperset(map(node_of, names)):
                    return
                await asyncio.sleep(1)

    async def cordon(self, worker: str, *, on: bool = True) -> float:
        """Cordon or uncordon the worker's node; when the API server answered."""
        url = f"{self._server}/api/v1/nodes/{node_of(worker)}"
        headers = {**self._options["headers"], "Content-Type": "application/strategic-merge-patch+json"}
        body = json.dumps({"spec": {"unschedulable": on or None}})
        async with self._session.patch(url, data=body, ssl=self._options["ssl"], headers=headers) as answer:
            answer.raise_for_status()
            await answer.read()
        return time.monotonic()

    async def cordon_all(self, workers: Collection[str], *, on: bool = True) -> float:
        """Cordon or uncordon all of them, sixteen at a time; when the last was answered."""
        gate = asyncio.Semaphore(_SIDE_BY_SIDE)

        async def one(worker: str) -> float:
            async with gate:
                return await self.cordon(worker, on=on)

        return max(await asyncio.gather(*map(one, workers)))

    async def _get(self, path: str) -> bytes:
        async with self._session.get(f"{self._server}{path}", **self._options) as answer:
            answer.raise_for_status()
            return await answer.read()

    def _take(self, pod: _Object) -> None:
        marks = {condition.type for condition in pod.status.conditions}
        if pod.metadata.labels.get(PROTECT) == "true":
            marks.add(PROTECT)
        self.shown[pod.metadata.name] = frozenset(marks)
        self.changed_at = time.monotonic()
        self._wake.set()


class SlurmEyes:
    """Slurm, straight from slurmrestd and slurmctld, and the administrator's hand."""

    def __init__(self, session: aiohttp.ClientSession, lab: Lab) -> None:
        self._session, self._lab = session, lab
        self._url = f"{lab.slurm.direct_url}/slurm/{_PARSER}"
        self._headers = {"X-SLURM-USER-NAME": "slurm", "X-SLURM-USER-TOKEN": lab.slurm.token(lifespan_s=7200)}

    async def until(self, worker: str, *, drained: bool, within_s: float = 30) -> float:
        """Wait until the node bears DRAIN, or none; when the answer that shows it was read."""
        async with asyncio.timeout(within_s):
            while await self._is_drained(worker) is not drained:
                await asyncio.sleep(PAUSE_S)
        return time.monotonic()

    async def until_count(self, count: int, within_s: float = 120) -> float:
        """Wait until exactly so many nodes bear DRAIN; when the count that shows it was there."""
        async with asyncio.timeout(within_s):
            while await asyncio.to_thread(self._count) != count:
                await asyncio.sleep(COUNT_PAUSE_S)
        return time.monotonic()

    async def drain(self, workers: str, *, on: bool = True) -> float:
        """An administrator's drain of a hostlist, or its end; when slurmrestd answered."""
        body: dict[str, Any] = {"name": [workers], "state": ["DRAIN" if on else "UNDRAIN"]}
        if on:
            body["reason"] = "benchmark"
        async with self._session.post(f"{self._url}/nodes/", json=body, headers=self._headers) as answer:
            answer.raise_for_status()
            await answer.read()
        return time.monotonic()

    async def _is_drained(self, worker: str) -> bool:
        async with self._session.get(f"{self._url}/node/{worker}", headers=self._headers) as answer:
            answer.raise_for_status()
            return "DRAIN" in msgspec.json.decode(await answer.read())["nodes"][0]["state"]

    def _count(self) -> int:
        return sum(map(int, self._lab.slurm.sinfo("--noheader", "--states=drain", "--format=%D").split()))
