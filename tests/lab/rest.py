"""The API server over plain HTTPS: milliseconds where starting kubectl takes tenths of a second."""

import http.client
import json
import ssl
import threading
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
    """A client with one kept connection for each thread."""

    def __init__(self, server: str, token: str, authority: Path) -> None:
        """Talk to ``https://ADDRESS:PORT`` with this token."""
        host, _, port = server.removeprefix("https://").partition(":")
        self._address = host, int(port)
        self._headers = {"Authorization": f"Bearer {token}"}
        self._authority = authority
        self._own = threading.local()

    def request(self, method: str, path: str, body: Any = None, *, kind: str = "application/json") -> Any:
        """One request; answers the decoded JSON.

        Args:
            method: GET, POST, PATCH, DELETE.
            path: With query, such as ``/api/v1/nodes?limit=5``.
            body: Sent as JSON.
            kind: Content type; a patch's kind.

        Raises:
            ApiError: The status is 400 or more.
            OSError: No connection. A kept one that the server has closed meanwhile is replaced first.
        """
        data = None if body is None else json.dumps(body)
        kept: http.client.HTTPSConnection | None = getattr(self._own, "connection", None)
        if kept is not None:
            try:
                return self._ask(kept, method, path, data, kind)
            except (OSError, http.client.HTTPException):
                self._own.connection = None
        fresh = self._connect(timeout_s=30)
        answer = self._ask(fresh, method, path, data, kind)
        self._own.connection = fresh
        return answer

    def watch(self, path: str, timeout_s: float) -> Iterator[dict[str, Any]]:
        """The events of a watch, until the server ends it."""
        with closing(self._connect(timeout_s)) as connection:
            connection.request("GET", path, headers=self._headers)
            for line in connection.getresponse():
                yield json.loads(line)

    def _ask(self, connection: http.client.HTTPSConnection, method: str, path: str, data: str | None, kind: str) -> Any:
        connection.request(method, path, data, self._headers | {"Content-Type": kind})
        answer = connection.getresponse()
        content = answer.read()
        if answer.status >= 400:
            self._own.connection = connection
            raise ApiError(answer.status, content.decode(errors="replace"))
        return json.loads(content) if content[:1] == b"{" else content.decode()

    def _connect(self, timeout_s: float) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(*self._address, context=self._tls, timeout=timeout_s)

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self._authority))
