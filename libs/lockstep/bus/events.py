"""The events, from a moment on, as they come.

How to go on where a reader stopped, see `ordered.Start`; in which order events are, see `publisher.Publisher`. An event
that comes twice has the same id (and `Nats-Msg-Id`) both times.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import NamedTuple

from lockstep.bus.connection import Connection
from lockstep.bus.envelope import Unknown, traceparent_of, unpack_event
from lockstep.bus.ordered import CaughtUp, Missed, OrderedReader, Received, Reset, Start
from lockstep.contracts.events import Event
from lockstep.contracts.subjects import EVENTS


class EventSeen(NamedTuple):
    """An event (or one that this version cannot read), and where it is in the stream."""

    event: Event | Unknown
    subject: str
    body: bytes
    traceparent: str
    sequence: int
    at: datetime | None


async def subscribe_events(
    connection: Connection, filters: str | Sequence[str] = EVENTS.subjects[0], *, start: Start | None = None
) -> AsyncIterator[EventSeen | CaughtUp | Reset | Missed]:
    """Events that match one of the subjects, in order: from the oldest, a sequence, a time, or only news.

    `CaughtUp` says that the rest is live; `Missed` and `Reset` say that some were lost and which.
    """
    subjects = [filters] if isinstance(filters, str) else filters
    reader = OrderedReader(connection, EVENTS.name, subjects, start=start)
    async with aclosing(reader.items()) as items:  # type: ignore[type-var]
        async for item in items:
            if isinstance(item, Received):
                traceparent = traceparent_of(item.headers)
                event = unpack_event(item.body)
                yield EventSeen(event, item.subject, item.body, traceparent, item.sequence, item.at)
            else:
                yield item
