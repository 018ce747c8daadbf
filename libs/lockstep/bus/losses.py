"""What two looks at a stream tell: whether messages were lost, whether it fills up, and which events say so. Pure."""

from datetime import datetime, timedelta

import msgspec

from lockstep.bus.streams import StreamState, is_loss
from lockstep.contracts.events import Event, GapFound, SourceBack, StreamFilling
from lockstep.contracts.facts import SITE, StreamHealth
from lockstep.contracts.subjects import Stream

FILLING = 0.8
"""From this share of its limit on a stream counts as filling."""
ROOMY = 0.7
"""Below this share it no longer does."""
_YOUNG = 0.9
"""A message that has lived for a smaller share of its time, in a stream that is less full, went before its time."""
_TICK = timedelta(microseconds=1)


def loss(stream: Stream, before: StreamState, after: StreamState, at: datetime, *, standing: int = 0) -> str:
    """Which messages were lost between two looks; empty if none.

    `standing` is how many messages must be there at least, as somebody knew before the second look.
    """
    if before.created != after.created:
        return "the stream was made anew"
    if is_loss(before, after):
        return f"the stream ends with {after.last}; it had {before.last}"
    if after.messages < standing:
        return f"the stream has {after.messages} messages; {standing} facts stand"
    if stream.append_only and after.first > before.first and _is_early(before, after, at):
        return f"messages {before.first} to {after.first - 1} were removed before their time"
    return ""


def _is_early(before: StreamState, after: StreamState, at: datetime) -> bool:
    """Whether neither age nor want of room can have taken the oldest message, by the bounds that now are."""
    is_full = after.max_bytes > 0 and before.bytes >= _YOUNG * after.max_bytes
    if before.first_at is None or is_full:
        return False
    return not after.max_age_s or at - before.first_at < timedelta(seconds=_YOUNG * after.max_age_s)


def used(state: StreamState) -> float:
    """The share of its limit that a stream takes; 0 when it has none."""
    return state.bytes / state.max_bytes if state.max_bytes > 0 else 0.0


def is_later(one: StreamHealth, other: StreamHealth) -> bool:
    """Whether one says a loss that was found after the newest of the other.

    Their counts do not tell: what is said goes with the facts, and then each process counts on from what it knew.
    """
    return one.lost_at is not None and (other.lost_at is None or one.lost_at > other.lost_at)


def agreed(
    known: StreamHealth,
    there: StreamHealth | None,
    state: StreamState,
    at: datetime,
    *,
    lost: str = "",
    stuck_for_s: float = 0.0,
) -> StreamHealth:
    """What must be said of a stream, given what we knew, what is said, and what we found.

    A loss that is said already is not said again: `lost` counts only while nobody has said a later one than we knew of.
    """
    health = known if there is None or is_later(known, there) else there
    if lost and not (there and is_later(there, known)):
        losses = max(known.losses, health.losses) + 1
        lost_at = max(at, health.lost_at + _TICK) if health.lost_at else at
        health = msgspec.structs.replace(health, losses=losses, lost_at=lost_at, detail=lost)
    if used(state) >= FILLING and health.filling_since is None:
        health = msgspec.structs.replace(
            health, filling_since=at, used_bytes=state.bytes, limit_bytes=max(state.max_bytes, 0)
        )
    elif used(state) < ROOMY and health.filling_since is not None:
        health = msgspec.structs.replace(health, filling_since=None)
    began = at - timedelta(seconds=stuck_for_s)
    if stuck_for_s and (health.stuck_until is None or health.stuck_until < began):
        health = msgspec.structs.replace(health, stuck_until=at, stuck_for_s=round(stuck_for_s, 1))
    return health


def happened(before: StreamHealth, after: StreamHealth) -> list[Event]:
    """The events between two sayings. Whoever tells them tells the same, so that each is stored once."""
    found: list[Event] = []
    name = after.stream
    if after.lost_at is not None and is_later(after, before):
        mark = f"{name}:gap:{after.lost_at.isoformat()}"
        found.append(GapFound(id=mark, at=after.lost_at, where=name, detail=after.detail))
    if after.filling_since is not None and after.filling_since != before.filling_since:
        mark = f"{name}:filling:{after.filling_since.isoformat()}"
        found.append(
            StreamFilling(
                id=mark,
                at=after.filling_since,
                stream=name,
                used_bytes=after.used_bytes,
                limit_bytes=after.limit_bytes,
            )
        )
    if after.stuck_until is not None and after.stuck_until != before.stuck_until:
        mark = f"nats:back:{after.stuck_until.isoformat()}"
        found.append(SourceBack(id=mark, at=after.stuck_until, source="nats", of=SITE, lost_for_s=after.stuck_for_s))
    return found
