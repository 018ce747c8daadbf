"""The errors a handler may raise, one class per thing its caller can do about it.

LockstepError
├── Retry      not now; try again after `after_s`
├── Reject     never; say so and go on with the next one
├── Fatal      this process cannot go on; leave and be restarted
└── BadInput   somebody gave us something wrong; every fault is listed
"""

from collections.abc import Sequence


class LockstepError(Exception):
    """The root of all errors that Lockstep raises on purpose."""


class Retry(LockstepError):
    """It did not work now and may work later, after `after_s` seconds (None: the usual backoff)."""

    def __init__(self, why: str, *, after_s: float | None = None) -> None:
        super().__init__(why)
        self.after_s = after_s


class Reject(LockstepError):
    """It will never work; trying again is of no use."""


class Fatal(LockstepError):
    """The process cannot do its work; it ends and is started anew."""


class BadInput(LockstepError):
    """Input that cannot be used. `faults` names each field, its value and what is allowed."""

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__("\n".join(faults))
        self.faults = tuple(faults)
