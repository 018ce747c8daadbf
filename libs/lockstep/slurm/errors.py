"""What can go wrong with Slurm, one class per thing that its caller can do about it.

SlurmError
├── Unreachable    no whole answer: connect, time-out, cut body, a proxy's page   → Retry; READ BEFORE WRITING AGAIN
├── Busy           429, 503                                                      → Retry, after `after_s`
├── Denied         401, 403, also with a token just minted or read again          → Retry: keys and tokens are rotated
├── Unsupported    no data parser in common                                       → Retry: it is looked for again
├── NoSuchNode     Slurm does not know the name                                   → an answer, not a fault; never retry
└── Refused        understood and not done; `errors` holds Slurm's words          → Reject

A text is one line of at most 256 characters and never holds a token or a request.
"""

from collections.abc import Collection, Sequence

from lockstep.base.errors import LockstepError, Reject, Retry
from lockstep.base.text import one_line

TEXT_MAX = 256
"""Characters of an error's text."""


class SlurmError(LockstepError):
    """The root of all that this package raises on purpose."""


class Unreachable(SlurmError, Retry):
    """No whole answer came. A write may have been carried out: read before writing again."""

    def __init__(self, why: str, *, after_s: float | None = None, status: int = 0) -> None:
        """`status` is HTTP's where a proxy or slurmrestd itself answered in place of Slurm, else 0."""
        super().__init__(one_line(why, limit=TEXT_MAX), after_s=after_s)
        self.status = status


class Busy(SlurmError, Retry):
    """Slurm asks to come back later, after `after_s` seconds where it says so. Nothing was changed."""

    def __init__(self, why: str, *, after_s: float | None = None, status: int = 0) -> None:
        """`status` is HTTP's where that alone says so, else 0."""
        super().__init__(one_line(why, limit=TEXT_MAX), after_s=after_s)
        self.status = status


class Denied(SlurmError, Retry):
    """The token or the user is not accepted. Nothing was changed."""

    def __init__(self, why: str, *, after_s: float | None = None) -> None:
        super().__init__(one_line(why, limit=TEXT_MAX), after_s=after_s)


class Unsupported(SlurmError, Retry):
    """slurmrestd answers, and speaks none of the data parsers that we speak."""

    def __init__(self, why: str, *, after_s: float | None = None) -> None:
        super().__init__(one_line(why, limit=TEXT_MAX), after_s=after_s)


class NoSuchNode(SlurmError, Reject):
    """Slurm has no node of that name."""

    def __init__(self, name: str) -> None:
        self.name = one_line(name, limit=64)
        super().__init__(f"Slurm has no node {self.name}")


class Refused(SlurmError, Reject):
    """Slurm understood and did not do it. `errors` are its words, bounded; `numbers` its error numbers."""

    def __init__(self, errors: Sequence[str], *, numbers: Collection[int] = ()) -> None:
        self.numbers = frozenset(numbers)
        self.errors = tuple(one_line(text, limit=TEXT_MAX) for text in errors[:8])
        super().__init__(one_line("; ".join(self.errors) or "refused without a word", limit=TEXT_MAX))
