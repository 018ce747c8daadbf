"""`lockstep events`: what happened, and with --follow what happens."""

from argparse import Namespace
from contextlib import aclosing
from datetime import datetime, timedelta

import msgspec

from lockstep.base.clock import now
from lockstep.base.errors import BadInput
from lockstep.base.text import one_line
from lockstep.bus.envelope import Unknown
from lockstep.bus.events import EventSeen
from lockstep.bus.ordered import CaughtUp, Start
from lockstep.cli import choose
from lockstep.cli.connect import Reach
from lockstep.cli.exits import Exit
from lockstep.cli.filters import Wanted, block_of, tags_of, workers_of
from lockstep.cli.history import events_of, opened, say_beginning
from lockstep.cli.moments import between
from lockstep.cli.output import Out
from lockstep.cli.sources import facts_of, fleet_of
from lockstep.fleet.happened import line

DEFAULT_S = 3600


async def run(args: Namespace) -> int:
    """Prints the events that were asked for."""
    out = Out()
    at = now()
    since, until = between(args.since, args.until, at)
    if args.follow and until is not None:
        raise BadInput([f"--until {choose.quoted(args.until)}: not with --follow, which has no end"])
    wanted = wanted_of(args)
    async with Reach.of(args) as reach:
        connection, state = await opened(reach)
        if since is not None and state.first > 1:
            say_beginning(out, since, state)
        if args.block is not None:
            wanted = await _with_block(wanted, args.block, reach)
        start = start_of(since, until, at, follow=args.follow)
        items = events_of(connection, wanted.subjects(), start, out, until=until, follow=args.follow)
        async with aclosing(items) as seen:  # type: ignore[type-var]
            async for item in seen:
                if not isinstance(item, CaughtUp) and wanted.takes(item):
                    text = text_of(item, args.output)
                    out.raw(f"{text}\n") if args.output == "json" else out.line(text)
                    out.out.file.flush()
    return Exit.OK


def wanted_of(args: Namespace) -> Wanted:
    """What the options ask for, but for the block, which only the facts know.

    Raises:
        BadInput: an option means nothing; names it.
    """
    for option in ("node", "hold", "block"):
        if getattr(args, option) == "":
            raise BadInput([f"--{option} '': want a name"])
    return Wanted(
        tags=tags_of(args.kind or []),
        cluster=args.cluster,
        workers=workers_of(args.worker or [], args.cluster),
        node=args.node or "",
        hold=args.hold or "",
    )


async def _with_block(wanted: Wanted, block: str, reach: Reach) -> Wanted:
    fleet = fleet_of(await facts_of(reach), reach.settings)
    members = block_of(fleet.table, block, choose.clusters(fleet, wanted.cluster))
    if wanted.workers:
        members = frozenset(m for m in members if m in wanted.workers or (None, m[1]) in wanted.workers)
    if not members:
        raise BadInput([f"--block {choose.quoted(block)}: none of --worker is in it"])
    return msgspec.structs.replace(wanted, workers=members)


def start_of(since: datetime | None, until: datetime | None, at: datetime, *, follow: bool) -> Start:
    """Where to start: where it was asked for, else with --follow now, else an hour back from the end."""
    if since is not None:
        return Start(at=since)
    return Start(new=True) if follow else Start(at=(until or at) - timedelta(seconds=DEFAULT_S))


def text_of(seen: EventSeen, form: str) -> str:
    """The event as a line."""
    event = seen.event
    if not isinstance(event, Unknown):
        return msgspec.json.encode(event).decode() if form == "json" else line(event)
    if form == "json":
        return msgspec.json.encode({"type": event.type, "unreadable": event.why}).decode()
    return one_line(
        f"{seen.at:%Y-%m-%d %H:%M:%SZ}  {event.type or seen.subject}  cannot be read: {event.why}", limit=300
    )
