"""`lockstep events`: what happened, and with --follow what happens."""

from argparse import Namespace
from contextlib import aclosing
from datetime import datetime, timedelta

import msgspec

from lockstep.base.clock import now
from lockstep.base.errors import BadInput, Fatal
from lockstep.base.text import one_line
from lockstep.bus.envelope import Unknown
from lockstep.bus.events import EventSeen, subscribe_events
from lockstep.bus.ordered import CaughtUp, Missed, Reset, Start
from lockstep.bus.streams import stream_state
from lockstep.cli import choose
from lockstep.cli.connect import Reach
from lockstep.cli.exits import Exit, Stop
from lockstep.cli.happened import line
from lockstep.cli.output import Out
from lockstep.contracts.events import EVENT_TYPES
from lockstep.contracts.hold import seconds_of
from lockstep.contracts.subjects import EVENTS, ROOT, scope_token, tag_of, token

DEFAULT_S = 3600
KINDS = sorted(tag_of(kind) for kind in EVENT_TYPES)


async def run(args: Namespace) -> int:
    """Prints the events that were asked for."""
    out = Out()
    start = start_of(args.since, now(), follow=args.follow)
    tags = tags_of(args.kind or [])
    subject = subject_of(tags, args.cluster, args.worker)
    async with Reach.of(args) as reach:
        connection = await reach.bus()
        if await stream_state(connection, EVENTS.name) is None:
            raise Stop(Exit.UNREACHABLE, "NATS has no events; have Lockstep's services been running?")
        async with aclosing(subscribe_events(connection, subject, start=start)) as items:  # type: ignore[type-var]
            async for item in items:
                match item:
                    case EventSeen():
                        if text := text_of(item, tags, args.output):
                            out.raw(f"{text}\n") if args.output == "json" else out.line(text)
                            out.out.file.flush()
                    case CaughtUp():
                        if not args.follow:
                            return Exit.OK
                    case Missed():
                        out.note(f"{item.last - item.first + 1} events are no longer kept.")
                    case Reset():
                        out.note("The events were lost; what NATS has now is told anew.")
    raise Fatal("the events ended")


def start_of(since: str | None, at: datetime, *, follow: bool) -> Start:
    """Where to start: `10m` ago, or at an RFC 3339 time.

    Raises:
        BadInput: it cannot be read.
    """
    if since is None:
        return Start(new=True) if follow else Start(at=at - timedelta(seconds=DEFAULT_S))
    try:
        return Start(at=at - timedelta(seconds=seconds_of(since)))
    except (ValueError, OverflowError):
        try:
            moment = datetime.fromisoformat(since)
        except ValueError:
            moment = None
    if moment is None or moment.tzinfo is None:
        raise BadInput(
            [f"--since {choose.quoted(since)}: want how long ago, as 10m, or a time as 2026-12-01T06:00:00Z"]
        )
    return Start(at=moment)


def tags_of(kinds: list[str]) -> frozenset[str]:
    """The types of events that `hold`, `hold.placed` or `hold.placed.v1` mean; empty: all.

    Raises:
        BadInput: there is no such kind; says which there are.
    """
    found: set[str] = set()
    for kind in kinds:
        tags = {tag for tag in KINDS if f"{tag}.".startswith(f"{kind}.")}
        if not tags:
            raise BadInput([f"--kind {choose.quoted(kind)}: there is none; want one of {', '.join(KINDS)}"])
        found |= tags
    return frozenset(found)


def subject_of(tags: frozenset[str], cluster: str | None, worker: str | None) -> str:
    """The narrowest subject that has all of them."""
    tag = next(iter(tags)) if len(tags) == 1 else "*.*.*"
    home, slash, name = (worker or "").rpartition("/")
    scope = home if slash else cluster
    if worker is None and scope is None:
        return f"{ROOT}.event.{tag}.>"
    return f"{ROOT}.event.{tag}.{scope_token(scope) if scope else '*'}.{token(name) if worker else '*'}"


def text_of(seen: EventSeen, tags: frozenset[str], form: str) -> str:
    """The event as a line; empty when it was not asked for."""
    event = seen.event
    if isinstance(event, Unknown):
        if tags:
            return ""
        if form == "json":
            return msgspec.json.encode({"type": event.type, "unreadable": event.why}).decode()
        return one_line(
            f"{seen.at:%Y-%m-%d %H:%M:%SZ}  {event.type or seen.subject}  cannot be read: {event.why}", limit=300
        )
    if tags and tag_of(type(event)) not in tags:
        return ""
    return msgspec.json.encode(event).decode() if form == "json" else line(event)
