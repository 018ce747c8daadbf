"""Where the API server is and how we prove who we are, from a kubeconfig or a pod's service account."""

import os
from pathlib import Path
from typing import Any

import msgspec

from lockstep.base.errors import BadInput
from lockstep.base.text import one_line
from lockstep.kube.kubeconfig import read_plain
from lockstep.kube.server import Server, pem
from lockstep.kube.settings import KubeClientSettings


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """One reading of the configuration."""

    server: Server
    authorization: str
    """The header's value; empty with a client certificate."""
    rereadable: bool
    """Reading it again now and then is cheap: no login program is run for it."""


async def read_access(settings: KubeClientSettings) -> Access:
    """Read everything from its files.

    Raises:
        BadInput: there is no usable configuration; says where it was looked for.
    """
    path = _kubeconfig(settings)
    try:
        server, authorization, rereadable = await _of_file(path, settings.context) if path else _of_pod(settings)
    except Exception as e:
        where = path or settings.service_account
        raise BadInput([one_line(f"kubernetes access: {where}: {type(e).__name__} {e}", limit=300)]) from e
    return Access(server=server, authorization=authorization, rereadable=rereadable)


def _of_pod(settings: KubeClientSettings) -> tuple[Server, str, bool]:
    """As Kubernetes tells each pod ("Accessing the Kubernetes API from a Pod").

    The library would do the same, and loads a class for each of Kubernetes' kinds for it: 35 MiB in every pod.
    """
    host, port = (os.environ.get(f"KUBERNETES_SERVICE_{name}", "") for name in ("HOST", "PORT"))
    token, authority = (pem(Path(settings.service_account, name)) for name in ("token", "ca.crt"))
    said = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
    if empty := [name for name, value in said.items() if not value]:
        raise ValueError(f"{', '.join(empty)}: empty")
    address = f"[{host}]" if ":" in host else host
    return Server(host=f"https://{address}:{port}", authority=authority), f"Bearer {token.decode().strip()}", True


async def _of_file(path: str, context: str) -> tuple[Server, str, bool]:
    plain = read_plain(path, context)
    return (*plain, True) if plain else await _by_library(path, context)


async def _by_library(path: str, context: str) -> tuple[Server, str, bool]:
    from kubernetes_asyncio.client import Configuration  # noqa: PLC0415  slow: only for those that need it
    from kubernetes_asyncio.config import load_kube_config  # noqa: PLC0415

    config = Configuration()
    loader: Any = await load_kube_config(path, context or None, config)
    files = (config.ssl_ca_cert, config.cert_file, config.key_file)
    authority, certificate, key = (pem(file) if file else None for file in files)
    server = Server(
        host=str(config.host),
        authority=authority,
        certificate=certificate,
        key=key,
        verify=config.verify_ssl,
        name=config.tls_server_name,
        proxy=config.proxy,
    )
    authorization = str(config.api_key.get("BearerToken", "")).strip()
    logs_in = loader.provider is not None or "exec" in (loader._user or ())  # noqa: SLF001  it is told nowhere else
    return server, authorization, not logs_in


def _kubeconfig(settings: KubeClientSettings) -> str:
    """The kubeconfig's path; empty for the pod's service account."""
    named = settings.kubeconfig or os.environ.get("KUBECONFIG", "")
    if named or "KUBERNETES_SERVICE_HOST" in os.environ:
        return named
    return str(Path.home() / ".kube" / "config")
