"""`lockstep story WORKER`: one worker's life, from the events that NATS still has."""

from argparse import Namespace
from collections import deque
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path

import msgspec

from lockstep.base.clock import now
from lockstep.base.errors import BadInput
from lockstep.base.text import one_line
from lockstep.bus.connection import Connection
from lockstep.bus.envelope import Unknown
from lockstep.bus.events import EventSeen
from lockstep.bus.ordered import Start
from lockstep.cli import choose
from lockstep.cli.cast import Cast
from lockstep.cli.connect import Reach
from lockstep.cli.exits import Exit, Stop
from lockstep.cli.history import events_of, opened, say_beginning
from lockstep.cli.moments import between
from lockstep.cli.output import Out
from lockstep.cli.sources import facts_of, fleet_of
from lockstep.cli.story_page import MAX_LINES, Heading, page
from lockstep.cli.story_read import Reading, Show, tell
from lockstep.cli.story_text import lines_of
from lockstep.cli.telling import Line, Teller
from lockstep.cli.view import Fleet
from lockstep.contracts.common import WorkerKey
from lockstep.contracts.events import WorkerEvent
from lockstep.contracts.subjects import ROOT, token
from lockstep.fleet.pairing import pair
from lockstep.runtime.telemetry import trace_link


async def run(args: Namespace) -> int:
    """Tells the story as text, as JSON, or writes it as a page."""
    out = Out()
    since, until = between(args.since, args.until, now())
    _check(args)
    async with Reach.of(args) as reach:
        connection, state = await opened(reach)
        fleet = fleet_of(await facts_of(reach), reach.settings)
        start = Start(at=since) if since else Start()
        cast = await _cast(connection, fleet, args, start, out)
        reading = Reading(connection=connection, cast=cast, learned_to=state.last, start=start, until=until, out=out)
        if since is not None:
            say_beginning(out, since, state)
        teller, link = Teller(), partial(trace_link, reach.settings)
        if args.html:
            await _write_page(args.html, reading, teller, link)
            return Exit.OK
        shown = _json(out, link) if args.output == "json" else partial(_text, out, link, [None])
        await tell(reading, teller, shown, follow=args.follow)
        if not teller.told:
            out.note("No events of it are kept from then.")
        elif args.output == "text" and (summary := teller.summary()):
            out.line()
            out.line(summary)
    return Exit.OK


def _check(args: Namespace) -> None:
    faults = []
    if args.follow and args.until is not None:
        faults.append(f"--until {choose.quoted(args.until)}: not with --follow, which has no end")
    if args.html is not None:
        if args.follow:
            faults.append(f"--html {choose.quoted(args.html)}: not with --follow, which has no end")
        if args.output != "text":
            faults.append(f"--html {choose.quoted(args.html)}: not with -o {args.output}, which is another form")
        if not args.html or not Path(args.html).parent.is_dir():
            faults.append(f"--html {choose.quoted(args.html)}: want a file in a folder that exists")
    if faults:
        raise BadInput(faults)


async def _cast(connection: Connection, fleet: Fleet, args: Namespace, start: Start, out: Out) -> Cast:
    """Who plays a part, as a first reading of the worker's own events tells."""
    key, node = await _key(connection, fleet, args, out)
    cast = Cast(key, node)
    async for item in events_of(connection, [cast.own], start, out):
        if isinstance(item, EventSeen):
            cast.learn(item.event)
    return cast


async def _key(connection: Connection, fleet: Fleet, args: Namespace, out: Out) -> tuple[WorkerKey, str]:
    """The worker that is meant and its node; one that is gone is known by its events alone."""
    known = choose.clusters(fleet, None)
    try:
        key = choose.worker(fleet, args.worker, choose.clusters(fleet, args.cluster))
        return key, pair(fleet.table, key, fleet.site).node_name
    except Stop as unknown:
        home, slash, name = args.worker.rpartition("/")
        cluster = home if slash else args.cluster
        scope = token(cluster) if cluster else "*"
        found: set[str] = set()
        async for item in events_of(connection, [f"{ROOT}.event.*.*.*.{scope}.{token(name)}"], Start(), out):
            if isinstance(item, EventSeen) and isinstance(item.event, WorkerEvent):
                found.add(item.event.worker.cluster)
        if not found:
            raise
        if len(found) > 1:
            choices = ", ".join(f"{each}/{name}" for each in sorted(found))
            raise BadInput(
                [f"worker {choose.quoted(args.worker)}: there were several, say which: {choices}"]
            ) from unknown
        cluster = found.pop()
        gone = "" if cluster in known else f", and cluster {cluster} neither"
        out.note(f"{cluster}/{name} is not known any more{gone}; this is what its events tell.")
        return (cluster, name), ""


def _text(out: Out, link: Callable[[str], str], last: list[datetime | None], lines: list[Line]) -> None:
    for line in lines:
        for text in lines_of(line, last[0], width=out.width, link=link):
            out.line(text)
        last[0] = line.at
    out.out.file.flush()


def _json(out: Out, link: Callable[[str], str]) -> Show:
    def show(lines: list[Line]) -> None:
        for each in (each for line in lines for each in line.all):
            out.raw(document_of(each, link) + "\n")
        out.out.file.flush()

    return show


def document_of(line: Line, link: Callable[[str], str]) -> str:
    """A line as JSON: how it is told, and the event itself."""
    event = line.event
    told = {
        "at": line.at,
        "type": line.type,
        "depth": line.depth,
        "text": line.text,
        "by": line.by,
        "because": line.because,
        "trace": link(line.traceparent) if line.traceparent else "",
        "sequence": line.sequence,
        "event": {"type": event.type, "unreadable": event.why} if isinstance(event, Unknown) else event,
    }
    return msgspec.json.encode(told).decode()


async def _write_page(file: str, reading: Reading, teller: Teller, link: Callable[[str], str]) -> None:
    """Writes the page, with the newest lines where there are more than it can have."""
    kept: deque[Line] = deque(maxlen=MAX_LINES)
    told = 0

    def keep(lines: list[Line]) -> None:
        nonlocal told
        kept.extend(lines)
        told += sum(len(line.all) for line in lines)

    await tell(reading, teller, keep, follow=False)
    heading = Heading(
        worker="/".join(reading.cast.key),
        since=reading.start.at,
        until=reading.until or now(),
        summary=teller.summary(),
        left_out=told - sum(len(line.all) for line in kept),
    )
    try:
        Path(file).write_text(page(heading, list(kept), link), encoding="utf-8")  # noqa: ASYNC240  nothing else runs
    except OSError as e:
        raise BadInput([f"--html {choose.quoted(file)}: {one_line(e.strerror or str(e), limit=100)}"]) from e
    reading.out.note(f"{file}: {told} events of {'/'.join(reading.cast.key)}")
