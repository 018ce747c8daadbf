"""How Lockstep reaches the Kubernetes API, and how hard it may lean on it."""

from typing import Annotated

import msgspec

Positive = Annotated[float, msgspec.Meta(gt=0)]


class KubeClientSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the Kubernetes client."""

    kubeconfig: str = ""
    """Path of a kubeconfig. Empty: `$KUBECONFIG`, else the pod's service account, else `~/.kube/config`."""
    context: str = ""
    """A context of the kubeconfig; empty is its current one."""
    service_account: str = "/var/run/secrets/kubernetes.io/serviceaccount"
    """Folder of the pod's `token` and `ca.crt`."""
    qps: Positive = 100.0
    """Requests a second in the long run. Watches do not count."""
    burst: Annotated[int, msgspec.Meta(ge=1)] = 200
    """Requests that may go at once after a quiet time."""
    concurrency: Annotated[int, msgspec.Meta(ge=1)] = 32
    """Requests that may be open at the same time."""
    timeout_s: Positive = 15.0
    """For one request, from start to end."""
    connect_s: Positive = 5.0
    """For a connection to come about."""
    reread_s: Positive = 30.0
    """A token or certificate file is read again when what we know is older than this; and at once after a 401."""
    page: Annotated[int, msgspec.Meta(ge=1)] = 500
    """Objects a page of a list."""
    watch_s: tuple[float, float] = (240.0, 480.0)
    """A watch asks to be ended by the server after a random time between these two."""
    progress_deadline_s: Positive = 90.0
    """A watch that says nothing for this long is not trusted any more. Bookmarks come about once a minute."""
