"""How long to wait before the next try."""

from random import Random


def backoff(attempt: int, *, first_s: float = 0.2, limit_s: float = 30.0, jitter: Random | None = None) -> float:
    """Seconds before try number `attempt + 1`: doubling from `first_s`, never over `limit_s`.

    With `jitter` the answer lies between half and the whole of that, so that many do not come back at once.
    """
    whole = min(limit_s, first_s * 2.0 ** min(max(attempt, 0), 30))
    return whole if jitter is None else whole * (0.5 + jitter.random() / 2)
