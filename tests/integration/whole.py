"""All services in one process and a real NATS, with a fake Kubernetes and Slurm; and the command as people run it."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aiohttp import web

from lockstep.base.clock import monotonic
from tests.fakes.kube import FakeKube
from tests.fakes.kube_store import Object
from tests.fakes.slurmrestd import FakeSlurmrestd

ME = "me@example.com"
START = datetime(2023, 1, 1, tzinfo=UTC).isoformat()


class Kube(FakeKube):
    """Also tells who asks, and records the owner of a Hold as the admission policy does."""

    def __init__(self) -> None:
        super().__init__()
        self.user = ME

    async def _answer(self, request: web.Request, query: dict[str, str]) -> web.StreamResponse:
        if request.path.endswith("/selfsubjectreviews"):
            return web.json_response({"status": {"userInfo": {"username": self.user}}}, status=201)
        return await super()._answer(request, query)

    def _create(self, resource: str, namespace: str, body: Object) -> Object:
        if resource == "holds":
            own = body["metadata"].get("annotations", {})
            body["metadata"] |= {"annotations": own | {"lockstep.sh/owner": self.user}, "generation": 1}
        return super()._create(resource, namespace, body)

    def worker(self, number: int) -> None:
        """A node with a worker's pod that is ready."""
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": START}
        self.put("nodes", f"host-{number}", spec={}, status={"conditions": [ready], "nodeInfo": {"bootID": "b"}})
        labels = {"app.kubernetes.io/name": "slurmd", "slinky.slurm.net/cluster": "main"}
        self.put(
            *("pods", f"gpu-{number}", "slurm"),
            metadata={"labels": labels},
            spec={"nodeName": f"host-{number}", "hostname": f"gpu-{number}"},
            status={"phase": "Running", "startTime": START, "conditions": [ready]},
        )

    def annotations(self, resource: str, name: str, namespace: str = "") -> dict[str, str]:
        """What is annotated on an object."""
        found: dict[str, str] = self.get(resource, name, namespace)["metadata"].get("annotations", {})
        return found

    def told(self) -> list[str]:
        """The messages of all Events."""
        return [str(o["message"]) for (resource, _, _), o in self._objects.items() if resource == "events"]


@dataclass
class Ran:
    """What a command left behind."""

    code: int
    out: str
    err: str


@dataclass
class Site:
    """Everything that runs."""

    kube: Kube
    slurm: FakeSlurmrestd
    env: dict[str, str]
    folder: Path
    services: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Starts the services, and waits until the first worker is in order."""
        with (self.folder / "log").open("ab") as log:
            self.services = await started("standalone", env=self.env, stderr=log.fileno())
        await self.until("gpu-1", phase="idle", protected=True, stale=[])

    async def stop(self) -> None:
        """Ends them in good order."""
        assert self.services is not None
        self.services.send_signal(signal.SIGTERM)
        await self.services.communicate()
        assert self.services.returncode == 0, (self.folder / "log").read_text()

    async def kill(self) -> None:
        """Ends them without warning."""
        assert self.services is not None
        self.services.kill()
        await self.services.communicate()

    async def run(self, *words: str, code: int = 0, **env: str) -> Ran:
        """Runs the command; it must end with this code, and never in a traceback."""
        process = await started(*words, env=self.env | env)
        try:
            async with asyncio.timeout(30):
                out, err = await process.communicate()
        finally:
            with suppress(ProcessLookupError):
                process.kill()
        ran = Ran(process.returncode or 0, out.decode(), err.decode())
        assert "Traceback" not in ran.err
        assert ran.code == code, f"{words} ended with {ran.code}: {ran.out} {ran.err}"
        return ran

    async def workers(self) -> dict[str, Any]:
        """The workers by name, as `get` tells them."""
        answer = json.loads((await self.run("get", "workers", "-o", "json")).out)
        return {item["name"]: item for item in answer["items"]}

    async def until(self, name: str, **wanted: Any) -> dict[str, Any]:
        """Waits until a worker is seen like this. Looks a third of the time: the command takes from the services."""
        end = monotonic() + 20
        while True:
            began = monotonic()
            seen: dict[str, Any] = (await self.workers())[name]
            if all(seen[key] == value for key, value in wanted.items()):
                return seen
            assert monotonic() < end, json.dumps(seen)
            await asyncio.sleep(2 * (monotonic() - began))


async def started(
    *words: str, env: dict[str, str], stderr: int = asyncio.subprocess.PIPE
) -> asyncio.subprocess.Process:
    """The command as a process; Ctrl-C ends it also where the tests themselves run in the background."""
    command = ("env", "--default-signal=INT", sys.executable, "-m", "lockstep.cli.main", *words)
    return await asyncio.create_subprocess_exec(*command, env=env, stdout=asyncio.subprocess.PIPE, stderr=stderr)


@asynccontextmanager
async def whole(folder: Path, *, workers: int = 6, **settings: Mapping[str, Any]) -> AsyncIterator[Site]:
    """A site with these workers on which the services run; `settings` are laid over its own."""
    names = [f"gpu-{number}" for number in range(1, workers + 1)]
    async with Kube() as kube, FakeSlurmrestd(names) as slurm:
        for number in range(1, workers + 1):
            kube.worker(number)
        (folder / "key").write_bytes(slurm.key)
        (folder / "key").chmod(0o600)
        ours: dict[str, Any] = {
            "clusters": [{"name": "main", "namespace": "slurm", "url": slurm.url, "key_file": str(folder / "key")}],
            "kube": {"kubeconfig": kube.kubeconfig(folder, token="mine")},
            "data_dir": str(folder / "data"),
            "lease": {"enabled": False},
            "health": {"port": 0},
            "policy": {"node_conditions": ["DiskPressure"], "stale_after_s": 60},
        }
        (folder / "lockstep.yaml").write_text(json.dumps(ours | settings))
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("LOCKSTEP_", "KUBE"))}
        site = Site(kube, slurm, kept | {"LOCKSTEP_CONFIG": str(folder / "lockstep.yaml")}, folder)
        await site.start()
        try:
            yield site
        finally:
            await site.stop()
