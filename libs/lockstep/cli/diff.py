"""`lockstep diff T1 T2`: what changed in the fleet between two moments, from the events that NATS still has."""

from argparse import Namespace
from collections.abc import Iterator
from contextlib import aclosing
from datetime import datetime

import msgspec

from lockstep.base.clock import now
from lockstep.base.errors import BadInput
from lockstep.bus.connection import Connection
from lockstep.bus.events import EventSeen
from lockstep.bus.ordered import Start
from lockstep.cli import choose
from lockstep.cli.changes import TAGS, Change, Changes, Outage, WorkerChange, summary
from lockstep.cli.connect import Reach
from lockstep.cli.exits import Exit, Stop
from lockstep.cli.filters import Wanted
from lockstep.cli.history import events_of, known_since, opened
from lockstep.cli.moments import moment
from lockstep.cli.output import Out, document
from lockstep.cli.sources import facts_of, fleet_of
from lockstep.cli.view import Fleet, natural, old_sources
from lockstep.contracts.common import Aware
from lockstep.contracts.events import Event
from lockstep.contracts.facts import SITE


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that `diff` knows."""

    kind: str = "Diff"
    asked: Aware
    """The first moment that was asked for."""
    then: Aware
    """The first moment that is compared: the one asked for, or where the events begin."""
    now: Aware
    reaches_back: bool
    """The events reach back to the moment that was asked for."""
    summary: str
    unread: list[Outage]
    """Sources that were not read at one of the moments: what they tell is unknown there."""
    gaps: list[str]
    """Losses of facts or events between the moments."""
    items: list[WorkerChange]


async def run(args: Namespace) -> int:
    """Compares the two moments."""
    out = Out()
    then, until = moments_of(args.then, args.now, now())
    async with Reach.of(args) as reach:
        connection, state = await opened(reach)
        fleet = fleet_of(await facts_of(reach), reach.settings)
        choose.clusters(fleet, args.cluster)
        begins = known_since(state)
        if begins is None or begins >= until:
            known = f"the events begin at {begins:%Y-%m-%d %H:%M:%SZ}" if begins else "NATS has no events any more"
            raise Stop(Exit.NO, f"T2 {choose.quoted(args.now)}: nothing is known of then, {known}")
        start = max(then, begins)
        changes = await _read(connection, Changes(start, until, on_node(fleet)), fleet, args.cluster, out)
    items = sorted(changes.workers(args.cluster), key=lambda c: (c.cluster, natural(c.name)))
    answer = Answer(
        asked=then,
        then=start,
        now=until,
        reaches_back=start == then,
        summary=summary(items),
        unread=changes.unread(),
        gaps=changes.gaps,
        items=items,
    )
    for remark in remarks(answer):
        out.note(remark)
    if args.output != "table":
        out.raw(document(answer, args.output))
        return Exit.OK
    out.line(f"{start:%Y-%m-%d %H:%M:%SZ} → {until:%Y-%m-%d %H:%M:%SZ}: {answer.summary}")
    if items:
        rows = [row(change, several=len({c.cluster for c in items}) > 1) for change in items]
        out.table(list(rows[0]), [list(each.values()) for each in rows])
    return Exit.OK


def moments_of(then: str, until: str, at: datetime) -> tuple[datetime, datetime]:
    """The two moments.

    Raises:
        BadInput: one cannot be read, is to come, or they are not one after the other.
    """
    first, second = moment("T1", then, at), moment("T2", until, at)
    for field, text, found in (("T1", then, first), ("T2", until, second)):
        if found > at:
            raise BadInput([f"{field} {choose.quoted(text)}: is to come"])
    if first >= second:
        raise BadInput([f"T1 {choose.quoted(then)}: want a time before T2 {choose.quoted(until)}"])
    return first, second


def on_node(fleet: Fleet) -> dict[str, set[tuple[str, str]]]:
    """Which workers run on each Kubernetes node, or ran there last."""
    found: dict[str, set[tuple[str, str]]] = {}
    for node, wanted in fleet.table.last_on.items():
        found.setdefault(node, set()).update((each.cluster, each.name) for each in wanted.values())
    for node, pods in fleet.table.pods_on.items():
        found.setdefault(node, set()).update((pod.cluster, pod.worker) for pod in pods.values())
    return found


async def _read(connection: Connection, changes: Changes, fleet: Fleet, cluster: str | None, out: Out) -> Changes:
    """Reads on to the end of what there is: later events check those between."""
    for _, of, text in old_sources(fleet):
        out.note(f"Old: {text}" + ("" if of == SITE else f" ({of})"))
    for (source, of), health in fleet.table.sources.items():
        if health.failing_since is not None and (of == SITE or cluster in {None, of}):
            changes.failing(source, of, health.failing_since)
    subjects = Wanted(tags=TAGS, cluster=cluster).subjects()
    async with aclosing(events_of(connection, subjects, Start(at=changes.start), out)) as items:  # type: ignore[type-var]
        async for item in items:
            if isinstance(item, EventSeen) and isinstance(item.event, Event):
                changes.add(item.event, item.at or item.event.at)
    return changes


def remarks(answer: Answer) -> Iterator[str]:
    """What makes the answer less than whole."""
    if not answer.reaches_back:
        begins, asked = (f"{at:%Y-%m-%d %H:%M:%SZ}" for at in (answer.then, answer.asked))
        yield f"The events reach back to {begins} only, not to {asked}: what changed before is unknown."
    for outage in answer.unread:
        back = f"until {outage.back:%Y-%m-%d %H:%M:%SZ}" if outage.back else "and is not yet"
        of = "" if outage.of == SITE else f" of {outage.of}"
        yield f"{outage.source}{of} was not read from {outage.lost:%Y-%m-%d %H:%M:%SZ} {back}."
    if answer.gaps:
        yield f"Facts or events were lost {len(answer.gaps)} times between, first at {answer.gaps[0]}"


def row(change: WorkerChange, *, several: bool) -> dict[str, str]:
    """One row of the table."""
    holds = [*(f"+{hold.id}" for hold in change.placed), *(f"-{hold.id}" for hold in change.ended)]
    if change.passed:
        holds.append(f"{change.passed} came and went")
    also = [f"pod {change.pod}" if change.pod else "", f"node rebooted {change.reboots}x" if change.reboots else ""]
    return {
        "WORKER": f"{change.cluster}/{change.name}" if several else change.name,
        "PHASE": _arrow(change.phase, "absent"),
        "PROGRESS": _arrow(change.drain, "none"),
        "HOLDS": ", ".join(holds),
        "ALSO": ", ".join(filter(None, also)),
        "REASON": _arrow(change.reason, "none"),
    }


def _arrow(change: Change | None, nothing: str) -> str:
    return f"{change.then or nothing} → {change.now or nothing}" if change else ""
