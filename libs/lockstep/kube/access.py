"""Where the API server is and how we prove who we are, from a kubeconfig or a pod's service account."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from lockstep.base.errors import BadInput
from lockstep.base.text import one_line
from lockstep.kube.settings import KubeClientSettings


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """Where the API server is, whom to trust there, and which certificate we show. The files are PEM."""

    host: str
    """With scheme and port."""
    authority: str | None = None
    """File; None trusts whom the machine trusts."""
    certificate: str | None = None
    key: str | None = None
    verify: bool = True
    name: str | None = None
    """In the server's certificate, if not the host's."""
    proxy: str | None = None
    proxy_headers: Mapping[str, str] | None = None


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """One reading of the configuration."""

    server: Server
    authorization: str
    """The header's value; empty with a client certificate."""
    rereadable: bool
    """Reading it again now and then is cheap: no login program is run for it."""
    trust: tuple[str, bytes, bytes, bytes]
    """Address, CA, certificate and key. When one changes, connections must be made anew."""


async def read_access(settings: KubeClientSettings) -> Access:
    """Read everything from its files.

    Raises:
        BadInput: there is no usable configuration; says where it was looked for.
    """
    path = _kubeconfig(settings)
    try:
        server, authorization, rereadable = await _of_file(path, settings.context) if path else _of_pod(settings)
        trust = (server.host, _content(server.authority), _content(server.certificate), _content(server.key))
    except Exception as e:
        where = path or settings.service_account
        raise BadInput([one_line(f"kubernetes access: {where}: {type(e).__name__} {e}", limit=300)]) from e
    return Access(server=server, authorization=authorization, rereadable=rereadable, trust=trust)


def _of_pod(settings: KubeClientSettings) -> tuple[Server, str, bool]:
    """As Kubernetes tells each pod ("Accessing the Kubernetes API from a Pod").

    The library would do the same, and loads a class for each of Kubernetes' kinds for it: 35 MiB in every pod.
    """
    host, port = (os.environ.get(f"KUBERNETES_SERVICE_{name}", "") for name in ("HOST", "PORT"))
    token, authority = (Path(settings.service_account, name) for name in ("token", "ca.crt"))
    said = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
    said |= {file.name: file.read_text().strip() for file in (token, authority)}
    if empty := [name for name, value in said.items() if not value]:
        raise ValueError(f"{', '.join(empty)}: empty")
    address = f"[{host}]" if ":" in host else host
    return Server(host=f"https://{address}:{port}", authority=str(authority)), f"Bearer {said['token']}", True


async def _of_file(path: str, context: str) -> tuple[Server, str, bool]:
    # Half of the time that a command takes to start: those that ask NATS alone do without, and pods.
    from kubernetes_asyncio.client import Configuration  # noqa: PLC0415
    from kubernetes_asyncio.config import load_kube_config  # noqa: PLC0415

    config = Configuration()
    loader: Any = await load_kube_config(path, context or None, config)
    server = Server(
        host=str(config.host),
        authority=config.ssl_ca_cert,
        certificate=config.cert_file,
        key=config.key_file,
        verify=config.verify_ssl,
        name=config.tls_server_name,
        proxy=config.proxy,
        proxy_headers=config.proxy_headers,
    )
    authorization = str(config.api_key.get("BearerToken", "")).strip()
    return server, authorization, not hasattr(loader, "exec_plugin_expiry") and loader.provider is None


def _kubeconfig(settings: KubeClientSettings) -> str:
    """The kubeconfig's path; empty for the pod's service account."""
    named = settings.kubeconfig or os.environ.get("KUBECONFIG", "")
    if named or "KUBERNETES_SERVICE_HOST" in os.environ:
        return named
    return str(Path.home() / ".kube" / "config")


def _content(path: str | None) -> bytes:
    return Path(path).read_bytes() if path else b""
