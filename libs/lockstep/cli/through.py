"""Which way a wish goes: with the person's own rights on Kubernetes, or as a request over NATS; and the latter."""

import asyncio
import getpass
import secrets
from argparse import Namespace
from contextlib import aclosing

import msgspec

from lockstep.base.errors import BadInput, Retry
from lockstep.bus.ask import NotPermitted, answers, ask, verb_of
from lockstep.cli import choose
from lockstep.cli.connect import Reach
from lockstep.cli.exits import Exit, Stop
from lockstep.cli.output import Out
from lockstep.contracts.events import RequestAccepted, RequestDone, RequestEvent, RequestProgressed, RequestRefused
from lockstep.contracts.requests import Request, RequestId

UNHEARD_S = 10.0
"""After so long without an answer the person is told that nobody may be there."""
PATIENCE_S = 60.0
"""For the first answer: longer than it takes another replica to take over. The request stays in the queue."""
CODES = {"invalid": Exit.BAD_INPUT, "denied": Exit.DENIED, "not-found": Exit.NOT_FOUND}
"""What a refusal means for the exit code; any other is a no."""


async def goes_by_nats(args: Namespace, reach: Reach) -> bool:
    """Whether the wish is to be a request; by itself where no kubeconfig is to be found."""
    if args.through != "auto":
        return bool(args.through == "nats")
    try:
        await reach.kube()
    except BadInput:
        return True
    return False


def nats_user(args: Namespace, reach: Reach) -> str:
    """Who the person is on NATS, where the server vouches for the name."""
    return args.nats_user or reach.settings.nats.user or getpass.getuser()


def faults_of_way(args: Namespace) -> list[str]:
    """What is wrong with the options about the way, whatever the fleet is."""
    found = []
    if args.through == "kubernetes":
        given = [o for o, value in (("--nats-user", args.nats_user), ("--request-id", args.request_id)) if value]
        found += [f"{option}: is for requests, which --through kubernetes does not make" for option in given]
    if args.request_id:
        try:
            msgspec.convert(args.request_id, RequestId)
        except msgspec.ValidationError:
            want = "want letters, digits, dots, dashes, underscores and colons, at most 128"
            found.append(f"--request-id {choose.quoted(args.request_id)}: {want}")
    return found


def request_id(args: Namespace) -> str:
    """The id that was given, or a new one."""
    return args.request_id or secrets.token_hex(8)


async def request(reach: Reach, what: Request, user: str, out: Out, *, to_the_end: bool) -> Exit:
    """Asks, and tells the answers: until it is accepted, or `to_the_end`.

    Raises:
        Stop: it was refused, or NATS lets this user not ask, or nobody answers.
        Retry: NATS does not take it.
    """
    connection = await reach.bus()
    out.tell(f"request {what.id} of {user}", {"request": what.id, "by": user, "verb": verb_of(what)})
    try:
        await ask(connection, what, user)
    except NotPermitted as e:
        raise Stop(Exit.DENIED, f"NATS does not let you ask as {user!r}: {e}") from e
    silence = f"request {what.id}: is in the queue, and nobody has answered yet; do Lockstep's services run?"
    for patience_s in (UNHEARD_S, PATIENCE_S - UNHEARD_S):
        try:
            async with asyncio.timeout(patience_s) as patience:
                async with aclosing(answers(connection, what, user)) as items:  # type: ignore[type-var]
                    async for event in items:
                        patience.reschedule(None)
                        if (end := told(event, out, to_the_end=to_the_end)) is not None:
                            return end
        except TimeoutError:
            out.note(silence)
    raise Retry(f"request {what.id}: no answer in {PATIENCE_S:g} s; to look again, give the same --request-id")


def told(event: RequestEvent, out: Out, *, to_the_end: bool) -> Exit | None:
    """Tells one answer; the exit code if there is nothing more to wait for.

    Raises:
        Stop: it is a refusal.
    """
    match event:
        case RequestRefused():
            if out.form == "json":
                out.tell("", event)
            raise Stop(CODES.get(event.code, Exit.NO), f"refused: {event.fault}")
        case RequestAccepted():
            out.tell(f"accepted: {event.hold}, {event.workers} worker{'s' if event.workers != 1 else ''}", event)
            return None if to_the_end else Exit.OK
        case RequestProgressed():
            moving = f", {event.draining} draining" if event.draining else ""
            out.tell(f"progress: {event.drained} of {event.selected} drained{moving}", event)
        case RequestDone():
            out.tell(f"done: {event.outcome}", event)
            missed = event.outcome == "overdue" or (event.verb == "hold" and event.outcome == "cancelled")
            return Exit.NO if missed else Exit.OK
    return None
