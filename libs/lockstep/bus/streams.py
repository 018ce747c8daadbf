"""Makes the streams what `contracts.subjects` says they must be, and tells how they are; see `keeper` for who looks."""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from lockstep.base.errors import Fatal, Retry
from lockstep.bus.connection import STREAM_NOT_FOUND, ApiError, Connection
from lockstep.contracts.subjects import STREAMS, Stream

_NS = 1_000_000_000
_UNAVAILABLE = 503
_TOO_FEW_SERVERS = {10005, 10074}
"""No suitable peers for placement; replicas > 1 not supported in non-clustered mode."""
AGAIN_AFTER_S = 0.5


class StreamState(msgspec.Struct, frozen=True, kw_only=True):
    """What tells one life of a stream from the next. A lower `last` with the same `created` means lost messages."""

    created: str
    first: int
    last: int
    messages: int = 0
    bytes: int = 0
    max_bytes: int = -1
    """-1: no limit."""
    max_age_s: float = 0.0
    """0: no limit."""
    first_at: datetime | None = None
    """When it took its oldest message; None while it has none."""

    @property
    def created_at(self) -> datetime:
        """When it was made."""
        return datetime.fromisoformat(self.created)


async def stream_state(connection: Connection, name: str) -> StreamState | None:
    """The stream as it stands, or None if there is none.

    Raises:
        Retry: no answer.
    """
    try:
        info = await connection.call(f"STREAM.INFO.{name}")
    except ApiError as e:
        if e.err_code == STREAM_NOT_FOUND:
            return None
        raise
    state = info["state"]
    return StreamState(
        created=info["created"],
        first=state["first_seq"],
        last=state["last_seq"],
        messages=state["messages"],
        bytes=state["bytes"],
        max_bytes=info["config"].get("max_bytes", -1),
        max_age_s=info["config"].get("max_age", 0) / _NS,
        first_at=datetime.fromisoformat(state["first_ts"]) if state["messages"] else None,
    )


async def ensure(connection: Connection, streams: Sequence[Stream] = STREAMS) -> None:
    """Creates or updates each stream, then reads it back and compares.

    A difference in storage or retention cannot be applied; somebody must move that stream out of the way.

    Raises:
        Fatal: a stream cannot be what it must be; says which setting, as it is and as it must be.
        Retry: no answer, or there are fewer servers than it needs by now.
    """
    for stream in streams:
        wanted = _config(stream)
        try:
            answer = await _apply(connection, stream.name, wanted)
        except ApiError as e:
            if e.err_code in _TOO_FEW_SERVERS:
                few = f"nats.replicas is {stream.replicas}, and there are not so many servers with JetStream and room"
                raise Retry(f"stream {stream.name}: {few}: {e}") from e
            if e.code == _UNAVAILABLE:
                raise
            raise Fatal(f"stream {stream.name}: {e}") from e
        config = answer["config"]
        wrong = [f"{k} is {config.get(k)!r}, not {v!r}" for k, v in wanted.items() if config.get(k) != v]
        if wrong:
            raise Fatal(f"stream {stream.name}: {'; '.join(wrong)}")


async def there(connection: Connection, streams: Sequence[Stream] = STREAMS) -> None:
    """Returns when each stream exists, for whoever does not make them.

    Raises:
        Retry: no answer, or one does not exist yet.
    """
    for stream in streams:
        if await stream_state(connection, stream.name) is None:
            raise Retry(f"stream {stream.name} does not exist yet; the pod watcher makes it")


async def _apply(connection: Connection, name: str, wanted: dict[str, Any]) -> dict[str, Any]:
    try:
        found = await connection.call(f"STREAM.INFO.{name}")
    except ApiError as e:
        if e.err_code != STREAM_NOT_FOUND:
            raise
        return await _create(connection, name, wanted)
    wanted["num_replicas"] = max(wanted["num_replicas"], found["config"].get("num_replicas", 1))
    if all(found["config"].get(key) == value for key, value in wanted.items()):
        return found
    return await connection.call(f"STREAM.UPDATE.{name}", found["config"] | wanted)


async def _create(connection: Connection, name: str, wanted: dict[str, Any]) -> dict[str, Any]:
    """Creates a stream, or finds the one that another process creates in the same moment.

    While both are at it, the server counts the space of both, and may refuse one for want of it.
    """
    try:
        return await connection.call(f"STREAM.CREATE.{name}", wanted)
    except ApiError as refused:
        await asyncio.sleep(AGAIN_AFTER_S)
        try:
            return await connection.call(f"STREAM.INFO.{name}")
        except ApiError:
            raise refused from None


def _config(stream: Stream) -> dict[str, Any]:
    return {
        "name": stream.name,
        "subjects": stream.subjects,
        "retention": "workqueue" if stream.until_handled else "limits",
        "storage": "file",
        "discard": stream.when_full.value,
        "num_replicas": stream.replicas,
        "max_msgs_per_subject": 1 if stream.last_only else -1,
        "max_age": stream.max_age_s * _NS,
        "max_bytes": stream.max_bytes or -1,
        "duplicate_window": stream.duplicate_window_s * _NS,
        "allow_msg_ttl": True,
        "allow_direct": True,
    }


def is_loss(before: StreamState, after: StreamState) -> bool:
    """Whether the stream was made anew, or its newest messages are missing."""
    return before.created != after.created or after.last < before.last
