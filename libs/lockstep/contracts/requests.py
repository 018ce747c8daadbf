"""What others may ask for by a message. The tag is the verb; who asks is in the subject, where NATS vouches for it."""

from typing import Annotated, get_args

import msgspec

from lockstep.contracts.hold import HoldSpec

RequestId = Annotated[str, msgspec.Meta(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]*$")]
"""Chosen by whoever asks; the same id of the same user, cluster and verb is one request."""
ObjectName = Annotated[str, msgspec.Meta(max_length=253, pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$")]
"""The name of a Kubernetes object, or empty."""
Why = Annotated[str, msgspec.Meta(max_length=200)]


_OWNER = "nats:"


def owner_of(user: str) -> str:
    """What a NATS user is called as the owner of a Hold: never what somebody on Kubernetes is called."""
    return f"{_OWNER}{user}"


def user_of(owner: str) -> str:
    """The NATS user who is this owner; empty for any other."""
    return owner.removeprefix(_OWNER) if owner.startswith(_OWNER) else ""


class Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="verb"):
    """Common to all requests."""

    id: RequestId
    """Chosen by whoever asks; the same id twice is one request."""
    cluster: str
    """The Slurm cluster's name in Lockstep's settings."""

    @property
    def scope(self) -> str:
        """The cluster."""
        return self.cluster

    @property
    def identity(self) -> str:
        """The request's id."""
        return self.id


class HoldRequest(Request, frozen=True, kw_only=True, omit_defaults=True, tag="hold.v1"):
    """Keep workers out of service: a Hold resource is made, as `kubectl create` of one would.

    Answered by `request.accepted`, then `request.progressed`, and `request.done` with outcome `drained`, `overdue`, or
    `cancelled` when the Hold ended before that.
    """

    spec: HoldSpec
    """What the Hold is to say."""
    name: ObjectName = ""
    """The Hold's name; empty: made from the request's id."""


class ReleaseRequest(Request, frozen=True, kw_only=True, omit_defaults=True, tag="release.v1"):
    """End a Hold resource. Somebody else's needs `override`, and the right to it; that is recorded with `why`."""

    hold: Annotated[str, msgspec.Meta(min_length=1, max_length=253)]
    """The Hold's name, in the cluster's namespace."""
    override: bool = False
    """Somebody else's too."""
    why: Why = ""
    """In words for people."""


class CancelDrainRequest(Request, frozen=True, kw_only=True, omit_defaults=True, tag="cancel-drain.v1"):
    """End all Hold resources that keep out this one worker alone and that the asking user owns.

    Refused, naming them, while other holds stand (a cordon, somebody else's Hold, one for many workers).
    """

    worker: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    """Its name in Slurm."""
    why: Why = ""
    """In words for people."""


AnyRequest = HoldRequest | ReleaseRequest | CancelDrainRequest

REQUEST_TYPES: tuple[type[Request], ...] = get_args(AnyRequest)
