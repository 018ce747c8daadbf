"""A slurmrestd that speaks Slurm's JSON, keeps Slurm's rules, and fails on order. It sits the exam of the real one.

async with FakeSlurmrestd(["gpu-1", "gpu-2"]) as slurm:
    slurm.fail(Fault(on="POST nodes/", cut=True))
    client = SlurmRest(Transport(slurm.url, slurm.tokens()), cluster="main")

What it is asked about is in `slurm.py`, how it listens and fails in `slurm_faults.py`.
"""

import base64
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from aiohttp import web

from lockstep.base import clock
from lockstep.slurm.hostlist import compress, expand
from lockstep.slurm.tokens import KeyTokens, mint
from tests.fakes.slurm import NEW, FakeSlurm, Release
from tests.fakes.slurm_faults import FailingServer, place
from tests.fakes.slurm_json import NUMBER, job_json, node_json, reservation_json


class FakeSlurmrestd(FakeSlurm, FailingServer):
    """The fake, listening. Everything in it may be changed at any time."""

    def __init__(
        self, nodes: Iterable[str], *, release: Release = NEW, cluster: str = "main", quiet_s: float = 1.0
    ) -> None:
        """Nothing listens yet."""
        FakeSlurm.__init__(self, nodes, release=release, cluster=cluster, quiet_s=quiet_s)
        FailingServer.__init__(self)
        self.key = b"a key that is as long as it has to be"
        self.users = {"slurm", "root"}
        self.posted: list[dict[str, Any]] = []
        """The bodies of `POST nodes/`."""
        self.slurmctld_up = True
        self._folder = TemporaryDirectory(prefix="fake-slurm-")

    def tokens(self, user: str = "slurm") -> KeyTokens:
        """Tokens that the fake accepts."""
        path = Path(self._folder.name, "key")
        path.write_bytes(self.key)
        return KeyTokens(path, user)

    async def __aexit__(self, *_: object) -> None:
        await super().__aexit__()
        self._folder.cleanup()

    # ---- who asks for what

    async def _answer(self, request: web.Request) -> web.Response:
        parser, route = place(request)
        if parser not in self.release.parsers:
            return _nowhere()
        token = request.headers.get("X-SLURM-USER-TOKEN")
        if token is None:
            return web.Response(status=401, text="Authentication failure")
        user = self._user(token)
        if route == "ping/":
            return self._ping(parser, known=user is not None)
        if not self.slurmctld_up:
            return self._error(502, 1800, "Unable to contact slurm controller (connect failure)")
        if user is None:
            return self._error(511, 1007, "Protocol authentication error")
        if request.method != "GET" and user not in self.users:
            return self._error(self.release.refused, 2010, "Invalid user id")
        match request.method, route:
            case "GET", "nodes/":
                return self._get_nodes(request)
            case "GET", "node/{name}":
                return self._get_node(request.path.rpartition("/")[2])
            case "POST", "nodes/":
                return self._post_nodes(await request.json())
            case "GET", "jobs/":
                return self._get_jobs(request)
            case "DELETE", "job/{name}":
                return self._cancel(int(request.path.rpartition("/")[2]))
            case "POST", "jobs/requeue" if parser == "v0.0.45":
                return self._requeue(int((await request.json())["jobs"][0]))
            case "GET", "reservations/":
                return self._reply(reservations=[reservation_json(name, on) for name, on in self.reservations.items()])
            case "GET", "partitions/":
                return self._reply(partitions=[{"name": "train", "nodes": {"configured": compress(self.nodes)}}])
        return _nowhere()

    def _user(self, token: str) -> str | None:
        """The token's user, if it was signed with the key and is still good."""
        payload = token.split(".")[1] if token.count(".") == 2 else ""
        try:
            claims = json.loads(_unpadded(payload))
        except ValueError:
            return None
        good = token == mint(self.key, claims) and claims["exp"] > clock.now().timestamp()
        return str(claims["sun"]) if good else None

    # ---- reading

    def _ping(self, parser: str, *, known: bool) -> web.Response:
        up = self.slurmctld_up and known
        one: dict[str, Any] = {"hostname": "host-1", "responding": up, "latency": 500, "primary": True}
        one |= {"status": "No error"} if parser == "v0.0.45" else {"pinged": "UP" if up else "DOWN", "mode": "primary"}
        return self._reply(pings=[one])

    def _get_nodes(self, request: web.Request) -> web.Response:
        since = int(request.query.get("update_time", 0))
        quiet = any(node.quiet_until for node in self.nodes.values())
        for node in self.nodes.values():
            self._settle(node)
        if quiet and not any(node.quiet_until for node in self.nodes.values()):
            self.touch()
        if since and since - 1 >= self._changed["nodes"]:
            return web.Response(status=304)
        if since and not self.release.stamp_works:
            return self._error(500, -1, "Unspecified error", "Unable to query partitions")
        return self._reply(
            nodes=[node_json(node, self.release.name) for node in self.nodes.values()], last_update=self._stamp()
        )

    def _get_node(self, name: str) -> web.Response:
        if name not in self.nodes:
            return self._error(200, 0, "No error", f"Failure to query node {name}")
        return self._reply(
            nodes=[node_json(self._settle(self.nodes[name]), self.release.name)], last_update=self._stamp()
        )

    def _get_jobs(self, request: web.Request) -> web.Response:
        since = int(request.query.get("update_time", 0))
        if since and since - 1 >= self._changed["jobs"]:
            warning = {"description": f"No job changes since update_time[{since}]", "source": "op_handler_jobs"}
            return self._reply(jobs=[], last_update=NUMBER | {"number": 0}, warnings=[warning])
        warnings = [] if self.jobs else [{"description": "Zero jobs to dump", "source": ""}]
        return self._reply(
            jobs=[job_json(job) for job in self.jobs.values()], last_update=self._stamp(), warnings=warnings
        )

    # ---- writing

    def _post_nodes(self, body: dict[str, Any]) -> web.Response:
        self.posted.append(body)
        given = ",".join(body["name"])
        wanted = list(self.nodes) if given.lower() == "all" else expand(given)
        number = max((self._update(name, body) for name in wanted), default=2018)
        if number:
            why = {2018: "Invalid node name specified", 2028: "Invalid node state specified"}[number]
            return self._error(self.release.refused, number, why, f"Failure to update node {given}")
        return self._reply()

    def _cancel(self, job_id: int) -> web.Response:
        job = self.jobs.get(job_id)
        if job is None or not {"RUNNING", "PENDING"} & set(job.states):
            code, why = (2017, "Invalid job id specified") if job is None else (2021, "Job/step already completed")
            return self._reply(status=[{"error": {"string": why, "code": code}, "step_id": str(job_id)}])
        self._leave(job, "CANCELLED")
        return self._reply(status=[])

    def _requeue(self, job_id: int) -> web.Response:
        job = self.jobs.get(job_id)
        if job is None:
            return self._error(404, 2017, "Invalid job id specified", status=[])
        if not job.can_requeue or "RUNNING" not in job.states:
            return self._error(self.release.refused, 2037, "Requested operation is presently disabled", status=[])
        self._leave(job, "PENDING")
        return self._reply(status=[])

    # ---- answers

    def _reply(self, *, status_code: int = 200, **parts: Any) -> web.Response:
        slurm = {"release": self.release.name, "cluster": self.cluster}
        whole = {"errors": [], "warnings": [], **parts, "meta": {"slurm": slurm}}
        return web.json_response(whole, status=status_code)

    def _error(self, status_code: int, number: int, error: str, description: str = "", **parts: Any) -> web.Response:
        one = {"error_number": number, "error": error, "description": description, "source": "fake"}
        return self._reply(status_code=status_code, errors=[one], **parts)

    def _stamp(self) -> dict[str, Any]:
        return NUMBER | {"number": self._now()}


@asynccontextmanager
async def fake_slurm(*nodes: str, release: Release = NEW) -> AsyncIterator[FakeSlurmrestd]:
    """A fake with these nodes, listening."""
    async with FakeSlurmrestd(nodes, release=release, quiet_s=0.2) as slurm:
        yield slurm


def _nowhere() -> web.Response:
    return web.Response(status=404, text="Unable to find requested URL endpoint.")


def _unpadded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
