"""A small Kubernetes API server in the process: lists, watches, patches, and every way in which a watch may fail.

It knows nothing of schemas: `tests/integration/kube/test_api.py` asks the same of a real kube-apiserver. What it keeps
is in `kube_store.py`, its watches in `kube_watches.py`; here is who may ask for what, and who answers.
"""

import json
from collections import deque
from pathlib import Path
from typing import Self

from aiohttp import web

from tests.fakes.kube_store import Answer
from tests.fakes.kube_watches import WatchedStore

RESOURCES = frozenset(
    {"nodes", "pods", "holds", "deployments", "leases", "events", "poddisruptionbudgets", "selfsubjectaccessreviews"}
)


class FakeKube(WatchedStore):
    """An API server at `url`. An async context manager."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens: set[str] | None = None
        """Tokens that are accepted; None: anybody may come."""
        self.failing: deque[tuple[int, str]] = deque()
        """Answers to the next requests (status, reason), whatever they ask for."""
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        """Method, path and query of everything that was asked."""
        self.traces: list[str] = []
        """The traceparents that came with it."""
        self.refused = 0
        """How many requests were answered 401."""
        self.allowed: set[tuple[str, str]] = set()
        """Verb and resource of what `can_i` allows."""
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self, port: int = 0) -> None:
        """Listen; what was stored is still there."""
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        """Close the port and cut all connections."""
        self.cut()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def kubeconfig(self, folder: Path, **user: str) -> str:
        """Write a kubeconfig and return its path. `user` is for example `tokenFile="…"` or `token="…"`."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "fake",
            "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "me"}}],
            "clusters": [{"name": "fake", "cluster": {"server": self.url}}],
            "users": [{"name": "me", "user": user}],
        }
        path = folder / "kubeconfig"
        path.write_text(json.dumps(config))
        return str(path)

    # What was asked

    @property
    def lists(self) -> int:
        """How many lists were asked for, pages counted singly."""
        return sum(
            method == "GET" and "watch" not in query and path.endswith(("s", "pods"))
            for method, path, query in self.requests
        )

    @property
    def opened(self) -> int:
        """How many watches were asked for."""
        return sum("watch" in query for _, _, query in self.requests)

    # Behind the scenes

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        query = dict(request.query)
        self.requests.append((request.method, request.path, query))
        self.traces.append(request.headers.get("traceparent", ""))
        try:
            self._admit(request)
            return await self._answer(request, query)
        except Answer as e:
            return web.json_response(e.body, status=e.code)

    def _admit(self, request: web.Request) -> None:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if self.tokens is not None and token not in self.tokens:
            self.refused += 1
            raise Answer(401, "Unauthorized", "Unauthorized")
        if self.failing:
            code, reason = self.failing.popleft()
            raise Answer(
                code, reason, f"scripted {code}", details={"retryAfterSeconds": {429: 2, 503: 30}.get(code, 0)}
            )

    async def _answer(self, request: web.Request, query: dict[str, str]) -> web.StreamResponse:
        if request.path == "/version":
            return web.json_response({"major": "1", "minor": "36+", "gitVersion": "v1.36.3-fake"})
        resource, namespace, name, subresource = _parts(request.path)
        if resource not in RESOURCES:
            raise Answer(404, "NotFound", "the server could not find the requested resource")
        body = json.loads(await request.read() or b"null")
        if resource == "selfsubjectaccessreviews":
            asked = body["spec"]["resourceAttributes"]
            return web.json_response({"status": {"allowed": (asked["verb"], asked["resource"]) in self.allowed}})
        if not name:
            if request.method == "POST":
                return web.json_response(self._create(resource, namespace, body), status=201)
            if "watch" in query:
                return await self._watch(request, resource, namespace, query)
            return web.json_response(self._list(resource, namespace, query))
        found = self._objects.get((resource, namespace, name))
        if found is None:
            raise Answer(404, "NotFound", f'{resource} "{name}" not found')
        match request.method:
            case "GET":
                return web.json_response(found)
            case "DELETE":
                self._check(found, (body or {}).get("preconditions", {}), name)
                self.remove(resource, name, namespace)
                return web.json_response(found)
            case "PUT":
                self._check(found, body["metadata"], name)
                return web.json_response(
                    self._store(resource, body | {"metadata": found["metadata"] | body["metadata"]}, "MODIFIED")
                )
            case _:
                manager = request.query.get("fieldManager", "kubectl")
                return web.json_response(
                    self._patch(resource, found, body, request.content_type, subresource, manager=manager)
                )


def _parts(path: str) -> tuple[str, str, str, str]:
    """Resource, namespace, name and subresource of a path."""
    parts = path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    namespace = ""
    if parts[0] == "namespaces":
        namespace, parts = parts[1], parts[2:]
    parts += ["", "", ""]
    return parts[0], namespace, parts[1], parts[2]
