"""What a call to Kubernetes can end in: one class per thing the caller can do about it.

KubeError
├── Unreachable    no connection, time-out, 5xx     Retry
├── Busy           429, with the wait it asks for   Retry
├── Denied         401, 403 after a fresh token     Retry, slowly: rights can be given, servers start without any
├── Conflict       409, another version or uid      Retry: look again, decide again
├── Expired        410, the version is compacted    Retry: list again
├── NotFound       404                              an answer
├── AlreadyExists  409 on create                    an answer
└── Invalid        400, 422: it will never do       Reject, with the server's words
"""

from lockstep.base.errors import LockstepError, Reject, Retry


class KubeError(LockstepError):
    """A call to Kubernetes did not do what it should."""


class Unreachable(KubeError, Retry):
    """No answer, or none that can be used."""


class Busy(KubeError, Retry):
    """The server asks us to come back after `after_s` seconds."""


class Denied(KubeError, Retry):
    """The server knows us not, or we may not do that. The token was read anew before this was raised."""

    def __init__(self, why: str, *, after_s: float | None = 30.0) -> None:
        super().__init__(why, after_s=after_s)


class Conflict(KubeError, Retry):
    """The object is not, or no longer, the one this was decided on."""


class Expired(KubeError, Retry):
    """The version asked for is too old; a list gives a new one."""


class NotFound(KubeError):
    """There is no such object."""


class AlreadyExists(KubeError):
    """There is such an object already."""


class Invalid(KubeError, Reject):
    """The server refuses the content. The text is the server's, bounded."""
