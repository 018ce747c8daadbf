"""What an answer of slurmrestd means. Pure: the one place that reads status, content type and `errors[]`.

The status alone says little: releases disagree (a refusal is 500 in 24.11 and 422 in 26.05, an unknown node 200 with
`errors[]`, a bad token 511, slurmctld away 502). Slurm's own error number decides first.
"""

from typing import TypeVar

import msgspec

from lockstep.slurm.errors import Busy, Denied, Refused, SlurmError, Unreachable, Unsupported
from lockstep.slurm.wire import Fault, Reply, decode

R = TypeVar("R", bound=Reply)

_BACK_OFF = frozenset({1804})
_AUTH = frozenset({1007, 2002, 2010, 9008, *range(6000, 6012)})
_AWAY = frozenset({*range(1001, 1005), *range(1019, 1026), *range(1800, 1806), 2027, 2131, 5003, 5004, 5005})
_PLUGIN = frozenset({1011, *range(8002, 8011), 9213})
UNKNOWN_NODE = frozenset({2018})
"""What a write says of a name that Slurm does not know."""
NO_NODE_READ = UNKNOWN_NODE | {0, 9003}
"""What a read of one node says of such a name; releases differ, and 0 is the usual one."""
_NOTHING_SAID = frozenset({0, -1})


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came over the wire."""

    status: int
    content_type: str = ""
    body: bytes = b""
    retry_after_s: float | None = None


def check(answer: Answer, kind: type[R]) -> R | None:
    """The answer as `kind`; None for 304, nothing changed.

    Raises:
        SlurmError: whatever else it is, by what the caller can do about it.
    """
    if answer.status == 304:
        return None
    if answer.status in {401, 403, 511}:
        raise Denied(f"slurmrestd does not accept who asks (HTTP {answer.status}){_words(answer)}")
    if answer.status in {429, 503}:
        raise Busy(f"slurmrestd is busy (HTTP {answer.status})", after_s=answer.retry_after_s, status=answer.status)
    if "json" not in answer.content_type.lower():
        raise _without_json(answer)
    try:
        reply = decode(answer.body, kind)
    except msgspec.DecodeError as error:
        raise Unreachable(f"answer cannot be read (HTTP {answer.status}, {len(answer.body)} bytes): {error}") from error
    if reply.errors or answer.status >= 300:
        raise fault(answer.status, reply.errors or [])
    return reply


def fault(status: int, errors: list[Fault]) -> SlurmError:
    """The error of an answer that says one."""
    codes = {error.code for error in errors}
    texts = [f"{error.text} ({error.code})" if error.code > 0 else error.text for error in errors]
    said = "; ".join(texts) or "without a word"
    if codes & _AUTH:
        return Denied(f"Slurm does not accept who asks: {said}")
    if codes & _BACK_OFF:
        return Busy(f"slurmctld is busy: {said}")
    if codes & _AWAY:
        return Unreachable(f"slurmctld does not answer slurmrestd: {said}", status=status)
    if codes & _PLUGIN:
        return Unsupported(f"slurmrestd lacks a plugin: {said}")
    if status >= 500 and codes <= _NOTHING_SAID:
        return Unreachable(f"slurmrestd failed (HTTP {status}): {said}", status=status)
    return Refused(texts or [f"HTTP {status} without a word"], numbers=codes)


def _without_json(answer: Answer) -> SlurmError:
    if answer.status == 404:
        return Unsupported(f"slurmrestd does not know the address{_words(answer)}")
    if answer.status in {400, 405, 406, 413, 415}:
        return Refused([f"HTTP {answer.status}{_words(answer)}"])
    kind = answer.content_type or "no content type"
    return Unreachable(f"not slurmrestd's answer (HTTP {answer.status}, {kind})", status=answer.status)


def _words(answer: Answer) -> str:
    """The text of a plain answer; a page is a proxy's and says nothing."""
    return f": {answer.body[:200].decode('utf-8', 'replace')}" if answer.content_type.startswith("text/plain") else ""
