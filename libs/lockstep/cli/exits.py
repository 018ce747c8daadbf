"""How the command ends: exit codes, and the one line that says why."""

from enum import IntEnum

from lockstep.base.errors import BadInput, LockstepError, Retry
from lockstep.base.text import one_line
from lockstep.kube import errors as kube
from lockstep.slurm import errors as slurm

MAX_LINE = 600


class Exit(IntEnum):
    """What the number that the command ends with means."""

    OK = 0
    NO = 1
    """The answer is no, or a check failed."""
    BAD_INPUT = 2
    NOT_FOUND = 3
    UNREACHABLE = 4
    """Kubernetes, Slurm or NATS cannot be reached."""
    DENIED = 5
    """The rights are missing, or the thing is somebody else's."""
    INTERRUPTED = 130


class Stop(LockstepError):
    """The command ends here, with this code; the text says why in one line."""

    def __init__(self, code: Exit, why: str) -> None:
        super().__init__(why)
        self.code = code


MEANINGS = {
    Exit.OK: "done, or the answer is yes",
    Exit.NO: "the answer is no, or a check failed",
    Exit.BAD_INPUT: "the input cannot be used; nothing was changed",
    Exit.NOT_FOUND: "there is no such worker, hold, cluster",
    Exit.UNREACHABLE: "Kubernetes, Slurm or NATS cannot be reached",
    Exit.DENIED: "not allowed, or it is somebody else's",
}
"""For `--help` and the documentation."""


def code_of(error: LockstepError) -> Exit:
    """The exit code that an error means."""
    match error:
        case Stop():
            return error.code
        case kube.Denied() | slurm.Denied():
            return Exit.DENIED
        case kube.NotFound() | slurm.NoSuchNode():
            return Exit.NOT_FOUND
        case BadInput() | kube.Invalid():
            return Exit.BAD_INPUT
        case kube.Conflict() | kube.AlreadyExists() | slurm.Refused():
            return Exit.NO
        case Retry():
            return Exit.UNREACHABLE
        case _:
            return Exit.NO


def lines_of(error: LockstepError) -> list[str]:
    """What is said about an error: one line, or one for each fault of the input."""
    faults = error.faults if isinstance(error, BadInput) else (str(error),)
    return [one_line(fault, limit=MAX_LINE) or type(error).__name__ for fault in faults]
