"""A slurmrestd that speaks Slurm's JSON, keeps Slurm's rules, and fails on order. It sits the exam of the real one.

async with FakeSlurmrestd(["gpu-1", "gpu-2"]) as slurm:
    slurm.fail(Fault("POST nodes/", cut=True))
    client = SlurmRest(Transport(slurm.url, slurm.tokens()), cluster="main")
"""

import asyncio
import base64
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

from aiohttp import web

from lockstep.base import clock
from lockstep.slurm.hostlist import compress, expand
from lockstep.slurm.tokens import KeyTokens, mint

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
NUMBER = {"set": True, "infinite": False}


@dataclass(kw_only=True)
class Release:
    """What differs between the releases of Slurm that were looked at."""

    name: str
    parsers: tuple[str, ...]
    refused: int
    """HTTP status of a refusal."""
    undrain_clears_reason: bool
    stamp_works: bool
    """`update_time` is answered with everything when a node changed; else with 500."""


NEW = Release(
    name="26.05.5",
    parsers=("v0.0.42", "v0.0.43", "v0.0.44", "v0.0.45"),
    refused=422,
    undrain_clears_reason=True,
    stamp_works=True,
)
OLD = Release(
    name="24.11.5",
    parsers=("v0.0.40", "v0.0.41", "v0.0.42"),
    refused=500,
    undrain_clears_reason=False,
    stamp_works=False,
)


@dataclass(kw_only=True)
class FakeNode:
    """A node of the fake."""

    name: str
    base: str = "IDLE"
    flags: set[str] = field(default_factory=lambda: {"DYNAMIC_NORM"})
    reason: str = ""
    reason_at: int = 0
    boot_time: int = 1_700_000_000
    quiet_until: float = 0.0
    """Slurm waits for slurmd's next answer (after an UNDRAIN)."""


@dataclass(kw_only=True)
class FakeJob:
    """A job of the fake."""

    job_id: int
    nodes: list[str]
    states: list[str] = field(default_factory=lambda: ["RUNNING"])
    can_requeue: bool = True
    started: int = 0


@dataclass(kw_only=True)
class Fault:
    """One failure: which request it hits, how often, and how."""

    on: str
    """Method and route, `POST nodes/` or `GET node/{name}`; `*` is any."""
    times: int = 1
    after_acting: bool = False
    """The request is carried out first."""
    status: int = 0
    body: str = ""
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    hang_s: float = 0.0
    """Wait so long before answering as usual."""
    cut: bool = False
    """Send half of the answer, then close."""


class FakeSlurmrestd:
    """The fake. Everything in it may be changed at any time; `touch` after changing a node or job by hand."""

    def __init__(
        self, nodes: Iterable[str], *, release: Release = NEW, cluster: str = "main", quiet_s: float = 1.0
    ) -> None:
        """Nothing listens yet."""
        self.nodes = {name: FakeNode(name=name) for name in nodes}
        self.jobs: dict[int, FakeJob] = {}
        self.reservations: dict[str, list[str]] = {}
        self.release = release
        self.cluster = cluster
        self.quiet_s = quiet_s
        self.key = b"a key that is as long as it has to be"
        self.users = {"slurm", "root"}
        self.calls: list[str] = []
        """Each request: method and route."""
        self.posted: list[dict[str, Any]] = []
        """The bodies of `POST nodes/`."""
        self.headers: list[dict[str, str]] = []
        self.queries: dict[str, dict[str, str]] = {}
        """The query of the last request of each kind."""
        self.most_at_once = 0
        """The most requests that were being answered at one time."""
        self._at_once = 0
        self.slurmctld_up = True
        self.url = ""
        self._faults: list[Fault] = []
        self._changed = {"nodes": self._now(), "jobs": self._now()}
        self._folder = TemporaryDirectory(prefix="fake-slurm-")

    def tokens(self, user: str = "slurm") -> KeyTokens:
        """Tokens that the fake accepts."""
        path = Path(self._folder.name, "key")
        path.write_bytes(self.key)
        return KeyTokens(path, user)

    def fail(self, *faults: Fault) -> None:
        """Fail so, in this order, from now on."""
        self._faults.extend(faults)

    def age(self, what: str, seconds: int) -> None:
        """The last change of nodes (or jobs) was so long ago."""
        self._changed[what] = self._now() - seconds

    def touch(self, what: str = "nodes") -> None:
        """Nodes (or jobs) changed now."""
        self._changed[what] = self._now()

    def start_job(self, nodes: list[str], *, can_requeue: bool = True) -> int:
        """A job that runs on these nodes from now on."""
        job_id = max(self.jobs, default=0) + 1
        self.jobs[job_id] = FakeJob(job_id=job_id, nodes=nodes, can_requeue=can_requeue, started=self._now())
        for name in nodes:
            self.nodes[name].base = "MIXED"
        self.touch("nodes")
        self.touch("jobs")
        return job_id

    def end_job(self, job_id: int, state: str = "CANCELLED") -> None:
        """The job has given its nodes back."""
        self._leave(self.jobs[job_id], state)

    def count(self, call: str) -> int:
        """How often a request was made."""
        return self.calls.count(call)

    async def __aenter__(self) -> Self:
        app = web.Application(middlewares=[self._middleware])
        app.router.add_route("*", "/{tail:.*}", self._answer)
        self.runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self.runner.setup()
        listener = socket.create_server(("127.0.0.1", 0))
        await web.SockSite(self.runner, listener).start()
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.runner.cleanup()
        self._folder.cleanup()

    # ---- what happens to a request

    @web.middleware
    async def _middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            return await self._misbehave(request, handler)
        finally:
            self._at_once -= 1

    async def _misbehave(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        call = f"{request.method} {_place(request)[1]}"
        self.calls.append(call)
        self.headers.append(dict(request.headers))
        self.queries[call] = dict(request.query)
        fault = next((fault for fault in self._faults if fault.times > 0 and fault.on in {"*", call}), None)
        if fault is None:
            return await handler(request)
        fault.times -= 1
        usual = await handler(request) if fault.after_acting or fault.hang_s or fault.cut else None
        if fault.hang_s:
            await asyncio.sleep(fault.hang_s)
        if fault.status:
            return web.Response(
                status=fault.status, text=fault.body, content_type=fault.content_type, headers=fault.headers
            )
        if fault.cut or usual is None:
            return await _half(request, usual.body if isinstance(usual, web.Response) else b"")
        return usual

    async def _answer(self, request: web.Request) -> web.Response:
        parser, route = _place(request)
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
                return self._reply(reservations=[_reservation(name, on) for name, on in self.reservations.items()])
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
        return self._reply(nodes=[self._node(node) for node in self.nodes.values()], last_update=self._stamp())

    def _get_node(self, name: str) -> web.Response:
        if name not in self.nodes:
            return self._error(200, 0, "No error", f"Failure to query node {name}")
        return self._reply(nodes=[self._node(self._settle(self.nodes[name]))], last_update=self._stamp())

    def _get_jobs(self, request: web.Request) -> web.Response:
        since = int(request.query.get("update_time", 0))
        if since and since - 1 >= self._changed["jobs"]:
            warning = {"description": f"No job changes since update_time[{since}]", "source": "op_handler_jobs"}
            return self._reply(jobs=[], last_update=NUMBER | {"number": 0}, warnings=[warning])
        warnings = [] if self.jobs else [{"description": "Zero jobs to dump", "source": ""}]
        return self._reply(jobs=[_job(job) for job in self.jobs.values()], last_update=self._stamp(), warnings=warnings)

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

    def _update(self, name: str, body: dict[str, Any]) -> int:
        """Slurm's error number for one node, 0 when done; the others are changed whatever it is."""
        node = self.nodes.get(name)
        if node is None:
            return 2018
        for state in body.get("state", []):
            if state == "DRAIN":
                node.flags -= {"FAIL", "UNDRAIN"}
                node.flags.add("DRAIN")
            elif state != "UNDRAIN" or "INVALID_REG" in node.flags:
                return 2028
            else:
                node.flags.discard("DRAIN")
                node.quiet_until = clock.monotonic() + self.quiet_s
                if self.release.undrain_clears_reason:
                    node.reason, node.reason_at = "", 0
        if body.get("reason") and body["reason"] != node.reason:
            node.reason, node.reason_at = body["reason"], self._now()
        self.touch()
        return 0

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

    def _leave(self, job: FakeJob, state: str) -> None:
        job.states = [state]
        for name in job.nodes:
            if name in self.nodes and not any(name in other.nodes for other in self._running()):
                self.nodes[name].base = "IDLE"
        self.touch("nodes")
        self.touch("jobs")

    def _running(self) -> list[FakeJob]:
        return [job for job in self.jobs.values() if "RUNNING" in job.states]

    # ---- Slurm's JSON

    def _settle(self, node: FakeNode) -> FakeNode:
        if node.quiet_until and clock.monotonic() >= node.quiet_until:
            node.quiet_until = 0.0
        return node

    def _node(self, node: FakeNode) -> dict[str, Any]:
        busy = node.base in {"MIXED", "ALLOCATED"}
        flags = node.flags | ({"NOT_RESPONDING"} if node.quiet_until else set())
        return {
            "name": node.name,
            "state": [node.base, *sorted(flags)],
            "reason": node.reason,
            "reason_set_by_user": "slurm" if node.reason else "",
            "reason_changed_at": NUMBER | {"number": node.reason_at},
            "boot_time": NUMBER | {"number": 0 if node.quiet_until else node.boot_time},
            "slurmd_start_time": NUMBER | {"number": node.boot_time + 60},
            "alloc_cpus": 2 if busy else 0,
            "alloc_memory": 2000 if busy else 0,
            "gres": "gpu:h100:8",
            "gres_used": "gpu:h100:2(IDX:0-1)" if busy else "gpu:h100:0(IDX:N/A)",
            "tres_used": "cpu=2,mem=2000M" if busy else "",
            "features": ["worker"],
            "active_features": ["worker"],
            "partitions": ["train"],
            "version": self.release.name,
        }

    def _reply(self, *, status_code: int = 200, **parts: Any) -> web.Response:
        slurm = {"release": self.release.name, "cluster": self.cluster}
        whole = {"errors": [], "warnings": [], **parts, "meta": {"slurm": slurm}}
        return web.json_response(whole, status=status_code)

    def _error(self, status_code: int, number: int, error: str, description: str = "", **parts: Any) -> web.Response:
        one = {"error_number": number, "error": error, "description": description, "source": "fake"}
        return self._reply(status_code=status_code, errors=[one], **parts)

    def _stamp(self) -> dict[str, Any]:
        return NUMBER | {"number": self._now()}

    def _now(self) -> int:
        return int(clock.now().timestamp())


@asynccontextmanager
async def fake_slurm(*nodes: str, release: Release = NEW) -> AsyncIterator[FakeSlurmrestd]:
    """A fake with these nodes, listening."""
    async with FakeSlurmrestd(nodes, release=release, quiet_s=0.2) as slurm:
        yield slurm


def _place(request: web.Request) -> tuple[str, str]:
    """The parser of the address, and the rest of it without names."""
    parser, _, path = request.path.removeprefix("/slurm/").partition("/")
    head, _, tail = path.partition("/")
    return parser, f"{head}/{{name}}" if head in {"node", "job"} and tail else path


def _job(job: FakeJob) -> dict[str, Any]:
    return {
        "job_id": job.job_id,
        "job_state": job.states,
        "user_name": "root",
        "partition": "train",
        "nodes": compress(job.nodes) if "PENDING" not in job.states else "",
        "start_time": NUMBER | {"number": job.started},
        "end_time": {"set": False, "infinite": True, "number": 0},
        "requeue": job.can_requeue,
        "batch_flag": True,
    }


def _reservation(name: str, nodes: list[str]) -> dict[str, Any]:
    return {
        "name": name,
        "node_list": compress(nodes),
        "start_time": NUMBER | {"number": 1_700_000_000},
        "end_time": NUMBER | {"number": 1_700_003_600},
        "flags": ["MAINT", "IGNORE_JOBS", "SPEC_NODES"],
    }


def _nowhere() -> web.Response:
    return web.Response(status=404, text="Unable to find requested URL endpoint.")


def _unpadded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


async def _half(request: web.Request, body: Any) -> web.StreamResponse:
    """Half of the answer, then the connection is closed."""
    content = bytes(body) if isinstance(body, bytes) else b"{}"
    response = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": str(len(content) + 9)})
    await response.prepare(request)
    await response.write(content[: len(content) // 2])
    assert request.transport
    request.transport.abort()
    return response
