"""The events that NATS still has, for the commands that look back."""

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from datetime import datetime

from lockstep.base.errors import Fatal
from lockstep.bus.connection import Connection
from lockstep.bus.events import EventSeen, subscribe_events
from lockstep.bus.ordered import CaughtUp, Missed, Reset, Start
from lockstep.bus.streams import StreamState, stream_state
from lockstep.cli.connect import Reach
from lockstep.cli.exits import Exit, Stop
from lockstep.cli.output import Out
from lockstep.contracts.subjects import EVENTS


async def opened(reach: Reach) -> tuple[Connection, StreamState]:
    """NATS, and the stream of events as it stands.

    Raises:
        Stop: there is no such stream yet.
        Retry: NATS cannot be reached.
    """
    connection = await reach.bus()
    state = await stream_state(connection, EVENTS.name)
    if state is None:
        raise Stop(Exit.UNREACHABLE, "NATS has no events; have Lockstep's services been running?")
    return connection, state


def known_since(state: StreamState) -> datetime | None:
    """From when on the stream has every event; None when it has none any more."""
    return state.created_at if state.first <= 1 else state.first_at


def say_beginning(out: Out, since: datetime, state: StreamState) -> None:
    """Tells beside the result when the events do not reach back to what was asked for."""
    begins = known_since(state)
    if begins is None or since < begins:
        where = f"begin at {begins:%Y-%m-%d %H:%M:%SZ}" if begins else "of then are no longer kept"
        out.note(f"The events {where}; nothing before is known.")


async def events_of(
    connection: Connection,
    subjects: Sequence[str],
    start: Start,
    out: Out,
    *,
    until: datetime | None = None,
    follow: bool = False,
) -> AsyncIterator[EventSeen | CaughtUp]:
    """The events in the order of the stream. Ends with what the stream has, or when it took one after `until`.

    With `follow` it goes on with what comes, and says `CaughtUp` where that begins. Losses are told beside the result.
    """
    async with aclosing(subscribe_events(connection, subjects, start=start)) as items:  # type: ignore[type-var]
        async for item in items:
            match item:
                case EventSeen():
                    if until is not None and item.at is not None and item.at > until:
                        return
                    yield item
                case CaughtUp():
                    if not follow:
                        return
                    yield item
                case Missed():
                    out.note(f"{item.last - item.first + 1} events are no longer kept.")
                case Reset():
                    out.note("The events were lost; what NATS has now is told anew.")
    raise Fatal("the events ended")
