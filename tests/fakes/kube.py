"""A small Kubernetes API server in the process: lists, watches, patches, and every way in which a watch may fail.

It keeps objects as the JSON they came in, gives each change a version, and checks versions and uids as the real one
does. It knows nothing of schemas: `tests/integration/test_kube_api.py` asks the same of a real kube-apiserver.
"""

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from aiohttp import web

Object = dict[str, Any]
Line = tuple[int, str, str, Object]
"""Version, resource, type and object of one change."""

SINGULAR = {
    "nodes": "Node",
    "pods": "Pod",
    "holds": "Hold",
    "deployments": "Deployment",
    "leases": "Lease",
    "events": "Event",
    "poddisruptionbudgets": "PodDisruptionBudget",
    "selfsubjectaccessreviews": "SelfSubjectAccessReview",
}
WITH_STATUS = {"nodes", "pods", "holds", "deployments"}


class Answer(Exception):
    """A Status instead of an object."""

    def __init__(self, code: int, reason: str, message: str, **more: Any) -> None:
        super().__init__(message)
        self.code, self.body = code, status_object(code, reason, message, **more)


def status_object(code: int, reason: str, message: str, **more: Any) -> Object:
    """How Kubernetes says that something went wrong."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
        **more,
    }


class FakeKube:
    """An API server at `url`. An async context manager."""

    def __init__(self) -> None:
        self.version = 100
        self.oldest = 0
        """Versions below this are compacted: asking for them is answered with 410."""
        self.gone_in_stream = False
        """410 comes as an ERROR object in a 200 answer, not as HTTP status."""
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
        self._objects: dict[tuple[str, str, str], Object] = {}
        self._log: list[Line] = []
        self._grown = asyncio.Condition()
        self._streams: set[Stream] = set()
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

    # What is stored

    def put(self, resource: str, name: str, namespace: str = "", **fields: Any) -> Object:
        """Create an object, or change its metadata, spec and status (each as a whole), and tell the watchers."""
        before = self._objects.get((resource, namespace, name))
        obj: Object = before or {"metadata": {"name": name, "uid": f"uid-{self.version + 1}"}}
        meta = obj["metadata"] | ({"namespace": namespace} if namespace else {}) | fields.pop("metadata", {})
        return self._store(resource, obj | fields | {"metadata": meta}, "MODIFIED" if before else "ADDED")

    def remove(self, resource: str, name: str, namespace: str = "") -> None:
        """Delete an object and tell the watchers."""
        obj = self._objects.pop((resource, namespace, name))
        self._tell(resource, "DELETED", obj)

    def get(self, resource: str, name: str, namespace: str = "") -> Object:
        """An object as it is stored.

        Raises:
            KeyError: there is none.
        """
        return self._objects[resource, namespace, name]

    def objects(self, resource: str) -> list[Object]:
        """All objects of one kind as they are stored."""
        return [obj for (kind, _, _), obj in self._objects.items() if kind == resource]

    def compact(self) -> None:
        """Forget all changes so far: whoever watches from before must list."""
        self.oldest = self.version

    # What happens to watches

    @property
    def watches(self) -> int:
        """How many are open."""
        return len(self._streams)

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

    def end_watches(self) -> None:
        """End all watches as a server does after `timeoutSeconds`. Frozen ones never say what they held back."""
        for stream in self._streams:
            stream.end()

    def cut(self) -> None:
        """Cut the connections of all watches."""
        for stream in self._streams:
            stream.cut()

    def freeze(self) -> None:
        """From now on the open watches say nothing, and do not end: half-open connections."""
        for stream in self._streams:
            stream.frozen = True

    def bookmark(self) -> None:
        """Send a bookmark with the current version to all watches."""
        for stream in self._streams:
            stream.say({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(self.version)}}})

    def say(self, line: Object | bytes) -> None:
        """Send anything to all watches."""
        for stream in self._streams:
            stream.say(line)

    # Behind the scenes

    def _store(self, resource: str, obj: Object, what: str) -> Object:
        meta = obj["metadata"]
        obj = obj | {"metadata": meta | {"resourceVersion": str(self.version + 1)}}
        self._objects[resource, meta.get("namespace", ""), meta["name"]] = obj
        self._tell(resource, what, obj)
        return obj

    def _tell(self, resource: str, what: str, obj: Object) -> None:
        self.version += 1
        obj = obj | {"metadata": obj["metadata"] | {"resourceVersion": str(self.version)}}
        self._log.append((self.version, resource, what, obj))
        for stream in self._streams:
            stream.tell(self._log[-1])

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
        if resource not in SINGULAR:
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

    def _create(self, resource: str, namespace: str, body: Object) -> Object:
        name = body["metadata"]["name"]
        if (resource, namespace, name) in self._objects:
            raise Answer(409, "AlreadyExists", f'{resource} "{name}" already exists')
        stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")  # noqa: TID251  the API server's clock
        meta = {k: v for k, v in body["metadata"].items() if v}
        meta |= {"creationTimestamp": stamp, "uid": f"uid-{self.version + 1}"}
        meta |= {"namespace": namespace} if namespace else {}
        return self._store(resource, body | {"metadata": meta}, "ADDED")

    def _patch(self, resource: str, found: Object, body: Any, kind: str, subresource: str, *, manager: str) -> Object:
        name = found["metadata"]["name"]
        self._check(found, body.get("metadata", {}), name)
        after = _merged(found, body, strategic=kind.startswith("application/strategic"))
        if resource in WITH_STATUS:
            kept = "status" if not subresource else "spec"
            after = after | ({kept: found[kept]} if kept in found else {})
        if "unschedulable" in body.get("spec", {}):
            after["metadata"] = after["metadata"] | {"managedFields": _set_by(manager, body["spec"]["unschedulable"])}
        return self._store(resource, after, "MODIFIED")

    def _check(self, found: Object, wanted: Object, name: str) -> None:
        meta = found["metadata"]
        if wanted.get("uid") not in {None, meta["uid"]}:
            raise Answer(409, "Conflict", f"{name}: the UID in the precondition ({wanted['uid']}) is not {meta['uid']}")
        if wanted.get("resourceVersion") not in {None, "", meta["resourceVersion"]}:
            raise Answer(409, "Conflict", f"{name}: the object has been modified")

    def _list(self, resource: str, namespace: str, query: dict[str, str]) -> Object:
        start, version = 0, self.version
        if token := query.get("continue"):
            start, version = map(int, token.split("@"))
            if version < self.oldest:
                raise Answer(410, "Expired", "The provided continue parameter is too old")
        items = [o for (r, _, _), o in sorted(self._objects.items()) if r == resource and _matches(o, namespace, query)]
        limit = int(query.get("limit", 0)) or len(items)
        more = f"{start + limit}@{version}" if start + limit < len(items) else ""
        return {
            "kind": "List",
            "metadata": {"resourceVersion": str(version), "continue": more},
            "items": items[start : start + limit],
        }

    async def _watch(
        self, request: web.Request, resource: str, namespace: str, query: dict[str, str]
    ) -> web.StreamResponse:
        since = int(query["resourceVersion"])
        if since < self.oldest and not self.gone_in_stream:
            raise Answer(410, "Expired", f"too old resource version: {since} ({self.oldest})")
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        if since < self.oldest:
            line = {"type": "ERROR", "object": status_object(410, "Expired", f"too old resource version: {since}")}
            await response.write(json.dumps(line).encode() + b"\n")
            return response
        stream = Stream(request, lambda line: line[1] == resource and _matches(line[3], namespace, query))
        for line in self._log:
            if line[0] > since:
                stream.tell(line)
        self._streams.add(stream)
        try:
            await stream.run(response.write)
        finally:
            self._streams.discard(stream)
        return response


class Stream:
    """One open watch."""

    def __init__(self, request: web.Request, wants: Callable[[Line], bool]) -> None:
        self._request = request
        self._wants = wants
        self._lines: asyncio.Queue[Object | bytes | None] = asyncio.Queue()
        self._thawed = asyncio.Event()
        self.frozen = False

    def tell(self, line: Line) -> None:
        """Send one change, if it is for this watch."""
        if self._wants(line):
            self.say({"type": line[2], "object": line[3]})

    def say(self, line: Object | bytes) -> None:
        """Send one line."""
        self._lines.put_nowait(line)

    def end(self) -> None:
        """Close the answer in good order."""
        self._lines.put_nowait(None)
        self._thawed.set()

    def cut(self) -> None:
        """Reset the connection."""
        if self._request.transport is not None:
            self._request.transport.abort()

    async def run(self, write: Callable[[bytes], Awaitable[None]]) -> None:
        """Send until the end."""
        while (line := await self._lines.get()) is not None:
            if self.frozen:
                await self._thawed.wait()
                return
            await write(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n")


def _parts(path: str) -> tuple[str, str, str, str]:
    """Resource, namespace, name and subresource of a path."""
    parts = path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    namespace = ""
    if parts[0] == "namespaces":
        namespace, parts = parts[1], parts[2:]
    parts += ["", "", ""]
    return parts[0], namespace, parts[1], parts[2]


def _matches(obj: Object, namespace: str, query: dict[str, str]) -> bool:
    labels = obj["metadata"].get("labels", {})
    wanted = [pair.split("=", 1) for pair in query.get("labelSelector", "").split(",") if pair]
    inside = not namespace or obj["metadata"].get("namespace", "") == namespace
    return inside and all(labels.get(key) == value for key, value in wanted)


def _set_by(manager: str, value: object) -> list[Object]:
    """Who set `spec.unschedulable`; an empty record, but a record, when it was removed."""
    fields = {"f:spec": {"f:unschedulable": {}}} if value else {"f:metadata": {}}
    return [{"manager": manager, "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": fields}]


def _merged(before: Any, patch: Any, *, strategic: bool) -> Any:
    """RFC 7386; with `strategic`, lists of conditions are merged by their type."""
    if not isinstance(patch, dict):
        return patch
    after = dict(before) if isinstance(before, dict) else {}
    for key, value in patch.items():
        if value is None:
            after.pop(key, None)
        elif strategic and key == "conditions":
            after[key] = _conditions(after.get(key, []), value)
        else:
            after[key] = _merged(after.get(key), value, strategic=strategic)
    return after


def _conditions(before: list[Object], patch: list[Object]) -> list[Object]:
    after = {c["type"]: c for c in before}
    for condition in patch:
        if condition.get("$patch") == "delete":
            after.pop(condition["type"], None)
        else:
            after[condition["type"]] = after.get(condition["type"], {}) | condition
    return list(after.values())
