"""Where the API server is and how we prove who we are, from a kubeconfig or a pod's service account."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from lockstep.base.errors import BadInput
from lockstep.base.text import one_line
from lockstep.kube.settings import KubeClientSettings

if TYPE_CHECKING:
    from kubernetes_asyncio.client import Configuration


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """One reading of the configuration."""

    config: "Configuration"
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
    # Half of the time that a command takes to start: those that ask NATS alone do without.
    from kubernetes_asyncio.client import Configuration  # noqa: PLC0415
    from kubernetes_asyncio.config import load_incluster_config, load_kube_config  # noqa: PLC0415

    config = Configuration()
    path = _kubeconfig(settings)
    try:
        if path:
            loader: Any = await load_kube_config(path, settings.context or None, config)
            rereadable = not hasattr(loader, "exec_plugin_expiry") and loader.provider is None
        else:
            folder = Path(settings.service_account)
            load_incluster_config(  # type: ignore[no-untyped-call]
                config,
                try_refresh_token=False,
                token_filename=str(folder / "token"),
                cert_filename=str(folder / "ca.crt"),
            )
            rereadable = True
        trust = (str(config.host), _content(config.ssl_ca_cert), _content(config.cert_file), _content(config.key_file))
    except Exception as e:
        where = path or settings.service_account
        raise BadInput([one_line(f"kubernetes access: {where}: {type(e).__name__} {e}", limit=300)]) from e
    authorization = str(config.api_key.get("BearerToken", "")).strip()
    return Access(config=config, authorization=authorization, rereadable=rereadable, trust=trust)


def _kubeconfig(settings: KubeClientSettings) -> str:
    """The kubeconfig's path; empty for the pod's service account."""
    named = settings.kubeconfig or os.environ.get("KUBECONFIG", "")
    if named or "KUBERNETES_SERVICE_HOST" in os.environ:
        return named
    return str(Path.home() / ".kube" / "config")


def _content(path: str | None) -> bytes:
    return Path(path).read_bytes() if path else b""
