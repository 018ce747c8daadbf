"""What an error of a handler means for its job: the error's class is the answer."""

from random import Random

from lockstep.base.backoff import backoff
from lockstep.base.errors import Fatal, Reject, Retry


def again_after(error: Exception, attempt: int, jitter: Random | None = None) -> float | None:
    """Seconds until the job is tried again, or None: never. `attempt` is 1 after the first failure.

    Raises:
        Fatal: the error is one; the process must end.
    """
    match error:
        case Fatal():
            raise error
        case Reject():
            return None
        case Retry(after_s=float() | int() as after_s):
            return float(after_s)
        case _:
            return backoff(attempt - 1, jitter=jitter)
