"""The HTTP session to one API server.

kubernetes_asyncio's own asks the environment for a proxy and for a password at each request, each in a thread; here the
environment is asked once.
"""

import ssl
from collections.abc import Mapping
from tempfile import NamedTemporaryFile
from typing import Any
from urllib.parse import urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import msgspec

from lockstep.kube.server import Server

READ_BUFFER = 2**21
"""Bytes; one line of a watch is a whole object, and etcd takes objects of up to 1.5 MiB."""


class Session:
    """Connections to `server`, with its certificates. `close` it."""

    def __init__(self, server: Server, *, connections: int) -> None:
        self.host = server.host
        """The server's address."""
        self._options: dict[str, Any] = {"proxy": server.proxy or _proxy_for(self.host)}
        if server.name:
            self._options["server_hostname"] = server.name
        connector = aiohttp.TCPConnector(limit=connections, ssl=tls_of(server))
        self._http = aiohttp.ClientSession(connector=connector, read_bufsize=READ_BUFFER)

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None,
        headers: Mapping[str, str],
        body: Any,
        limits: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        """The head of the answer; the body, if any, is sent as JSON. Raises what aiohttp raises."""
        url = f"{self.host}{path}?{urlencode(query)}" if query else f"{self.host}{path}"
        data = None if body is None else msgspec.json.encode(body)
        return await self._http.request(method, url, headers=headers, data=data, timeout=limits, **self._options)

    async def close(self) -> None:
        """Close all connections."""
        await self._http.close()


def tls_of(server: Server) -> ssl.SSLContext:
    """Whom to trust, and who we are.

    Certificates are judged as Kubernetes' own clients do: Python's strict rules, the default since 3.13, refuse every
    cluster whose authority was made without a key usage or a key identifier.
    """
    tls = ssl.create_default_context(cadata=server.authority.decode("ascii", "ignore") if server.authority else None)
    if server.certificate:
        with NamedTemporaryFile() as file:  # for its owner only; Python takes these from nowhere else
            file.write(server.certificate + b"\n" + (server.key or b""))
            file.flush()
            tls.load_cert_chain(file.name)
    if not server.verify:
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
    tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return tls


def _proxy_for(url: str) -> str | None:
    """What the environment (HTTPS_PROXY, NO_PROXY) says about this address."""
    parts = urlsplit(url)
    return None if proxy_bypass(parts.hostname or "") else getproxies().get(parts.scheme)
