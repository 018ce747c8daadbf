"""Who the person is, as the API server says it."""

import msgspec

from lockstep.base.text import one_line
from lockstep.cli.connect import Reach
from lockstep.kube.errors import NotFound

PATH = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


class _User(msgspec.Struct, frozen=True):
    username: str = ""


class _Info(msgspec.Struct, frozen=True, rename="camel"):
    user_info: _User = _User()


class _Review(msgspec.Struct, frozen=True):
    status: _Info = _Info()


async def whoami(reach: Reach) -> str:
    """The user's name; empty where the API server cannot tell (before Kubernetes 1.28).

    Raises:
        KubeError: it cannot be asked.
    """
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    try:
        answer = await (await reach.raw()).request("POST", PATH, body=body)
    except NotFound:
        return ""
    return one_line(msgspec.json.decode(answer, type=_Review).status.user_info.username, limit=128)
