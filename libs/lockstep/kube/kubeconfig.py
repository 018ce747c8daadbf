"""A kubeconfig as most are: one file, with certificates or a token (client-go: `clientcmd/api/v1/types.go`).

kubernetes-asyncio reads these too, and loads a class for each of Kubernetes' kinds before: 0.3 s of each command.
"""

from pathlib import Path
from typing import Any, TypeVar

import msgspec

from lockstep.kube.server import Server, pem

T = TypeVar("T")


class _Strict(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True):
    """What is not here is for the library: login programs, passwords, somebody else's name."""


class _Cluster(_Strict, frozen=True, kw_only=True):
    server: str
    certificate_authority: str = ""
    certificate_authority_data: bytes = b""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str | None = None
    proxy_url: str | None = None
    disable_compression: bool = False
    extensions: Any = None


class _User(_Strict, frozen=True, kw_only=True):
    client_certificate: str = ""
    client_certificate_data: bytes = b""
    client_key: str = ""
    client_key_data: bytes = b""
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")


class _Context(_Strict, frozen=True, kw_only=True):
    cluster: str
    user: str
    namespace: str = ""
    extensions: Any = None


def read_plain(name: str, context: str) -> tuple[Server, str] | None:
    """The server and the `Authorization` header that this kubeconfig names; None when it asks for more than is here.

    Also when it is no kubeconfig at all: the library says so. Relative names of files begin at the kubeconfig.

    Raises:
        OSError: a file cannot be read.
        ValueError: a certificate's file is empty.
    """
    path = Path(name).expanduser()
    try:
        said = msgspec.yaml.decode(path.read_bytes(), type=dict[str, Any])
        chosen = _named(said, "context", context or said["current-context"], _Context)
        cluster = _named(said, "cluster", chosen.cluster, _Cluster)
        user = _named(said, "user", chosen.user, _User)
    except (FileNotFoundError, KeyError, TypeError, ValueError):  # msgspec's errors are ValueErrors
        return None

    def content(data: bytes, file: str) -> bytes | None:
        return data or (pem(path.parent / file) if file else None)

    server = Server(
        host=cluster.server.rstrip("/"),
        authority=content(cluster.certificate_authority_data, cluster.certificate_authority),
        certificate=content(user.client_certificate_data, user.client_certificate),
        key=content(user.client_key_data, user.client_key),
        verify=not cluster.insecure_skip_tls_verify,
        name=cluster.tls_server_name,
        proxy=cluster.proxy_url,
    )
    token = user.token or (user.token_file and (path.parent / user.token_file).read_text()).strip()
    return server, f"Bearer {token}" if token else ""


def _named(said: dict[str, Any], kind: str, name: str, struct: type[T]) -> T:
    (found,) = (entry for entry in said[f"{kind}s"] if entry["name"] == name)
    return msgspec.convert(found[kind], struct)
