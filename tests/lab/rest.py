"""The API server over plain HTTPS: milliseconds where starting kubectl takes tenths of a second."""

import http.client
import json
import ssl
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import Any


class ApiError(RuntimeError):
    """The API server refused; ``status`` is the HTTP status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text[:500]}")
        self.status = status


class Rest:
    """A client that keeps its connections, one for each thread that is asking at the same time."""

    def __init__(self, server: str, token: str, authority: Path) -> None:
        """Talk to ``https://ADDRESS:PORT`` with this token."""
        host, _, port = server.removeprefix("https://").partition(":")
        self._address = host, int(port)
        self._headers = {"Authorization": f"Bearer {token}"}
        self._authority = authority
        self._idle: deque[http.client.HTTPSConnection] = deque()
        self._kinds: dict[tuple[str, str], dict[str, Any]] = {}
        weakref.finalize(self, _close_all, self._idle)

    def request(self, method: str, path: str, body: Any = None, *, kind: str = "application/json") -> Any:
        """One request; answers the decoded JSON.

        Args:
            method: GET, POST, PATCH, DELETE.
            path: With query, such as ``/api/v1/nodes?limit=5``.
            body: Sent as JSON.
            kind: Content type; a patch's kind.

        Raises:
            ApiError: The status is 400 or more.
            OSError: No connection, also at the second try: the server may have closed a kept one meanwhile.
        """
        data = None if body is None else json.dumps(body)
        headers = self._headers | {"Content-Type": kind}
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._connect(timeout_s=30)
        try:
            answer, content = _ask(connection, method, path, data, headers)
        except (OSError, http.client.HTTPException):
            answer, content = _ask(connection, method, path, data, headers)
        self._idle.append(connection)
        if answer.status >= 400:
            raise ApiError(answer.status, content.decode(errors="replace"))
        return json.loads(content) if content[:1] == b"{" else content.decode()

    def apply(self, manifest: dict[str, Any]) -> None:
        """Apply an object on the server side, as ``kubectl apply --server-side --force-conflicts`` does.

        Raises:
            ApiError: It was refused, or the server does not (yet) know its kind.
        """
        query = "fieldManager=kubectl&force=true&fieldValidation=Strict"
        self.request("PATCH", f"{self._path_of(manifest)}?{query}", manifest, kind="application/apply-patch+yaml")

    def watch(self, path: str, timeout_s: float) -> Iterator[dict[str, Any]]:
        """The events of a watch, until the server ends it."""
        with closing(self._connect(timeout_s)) as connection:
            connection.request("GET", path, headers=self._headers)
            for line in connection.getresponse():
                yield json.loads(line)

    def _path_of(self, manifest: dict[str, Any]) -> str:
        version, kind, meta = manifest["apiVersion"], manifest["kind"], manifest["metadata"]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        if (version, kind) not in self._kinds:
            known = self.request("GET", root)["resources"]
            self._kinds |= {(version, each["kind"]): each for each in known if "/" not in each["name"]}
        try:
            of_kind = self._kinds[version, kind]
        except KeyError as error:
            raise ApiError(404, f"{kind} not found in {version}") from error
        namespace = f"/namespaces/{meta.get('namespace', 'default')}" if of_kind["namespaced"] else ""
        return f"{root}{namespace}/{of_kind['name']}/{meta['name']}"

    def _connect(self, timeout_s: float) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(*self._address, context=self._tls, timeout=timeout_s)

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self._authority))


def _ask(
    connection: http.client.HTTPSConnection, method: str, path: str, data: str | None, headers: dict[str, str]
) -> tuple[http.client.HTTPResponse, bytes]:
    """Ask over a connection, which opens itself; it is closed again after a failure."""
    try:
        connection.request(method, path, data, headers)
        answer = connection.getresponse()
        return answer, answer.read()
    except (OSError, http.client.HTTPException):
        connection.close()
        raise


def _close_all(connections: deque[http.client.HTTPSConnection]) -> None:
    while connections:
        connections.pop().close()
