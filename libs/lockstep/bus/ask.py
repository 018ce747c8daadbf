"""Asks for something by a message, and reads the answers to it."""

from collections.abc import AsyncIterator
from contextlib import aclosing, suppress

import msgspec

from lockstep.base.errors import Reject, Retry
from lockstep.base.text import one_line
from lockstep.bus.acks import Acks, Answer
from lockstep.bus.connection import Connection
from lockstep.bus.envelope import MSG_ID, TRACEPARENT, Message
from lockstep.bus.events import EventSeen, subscribe_events
from lockstep.contracts.events import RequestEvent
from lockstep.contracts.requests import Request
from lockstep.contracts.subjects import ROOT, request_subject, scope_token, tag_of, token

ASK_WITHIN_S = 5.0
_REFUSED = "permissions violation"


class NotPermitted(Reject):
    """The NATS server does not let this user publish there."""


def verb_of(request: Request) -> str:
    """What is asked for, without its version: `hold`."""
    return tag_of(type(request)).partition(".")[0]


def pack_request(request: Request, user: str, traceparent: str = "") -> Message:
    """The message for a request; sent twice within two minutes it is stored once."""
    subject = request_subject(request, user)
    headers = {MSG_ID: subject, "content-type": "application/json"}
    if traceparent:
        headers[TRACEPARENT] = traceparent
    return Message(subject, headers, msgspec.json.encode(request))


async def ask(connection: Connection, request: Request, user: str, *, traceparent: str = "") -> None:
    """Puts a request in the queue; returns when the stream has it.

    Raises:
        NotPermitted: NATS lets this user not publish it.
        Retry: it may not be there; asking again with the same id is right.
    """
    message = pack_request(request, user, traceparent)
    before = connection.client.last_error
    answer: Answer = Retry("NATS did not acknowledge in time")
    with suppress(TimeoutError):
        async with connection.asking(message.subject, ASK_WITHIN_S):
            [answer] = await Acks(connection.client).send([message], ASK_WITHIN_S)
    if isinstance(answer, Retry):
        error = connection.client.last_error
        if error is not before and _REFUSED in (text := str(error)).lower():
            raise NotPermitted(one_line(text, limit=200))
        raise answer


async def answers(connection: Connection, request: Request, user: str) -> AsyncIterator[RequestEvent]:
    """What was answered to a request of this user so far, and then each answer as it comes. Never ends by itself."""
    subject = f"{ROOT}.event.request.*.*.{scope_token(request.scope)}.{token(request.identity)}"
    async with aclosing(subscribe_events(connection, subject)) as items:  # type: ignore[type-var]
        async for item in items:
            if not isinstance(item, EventSeen) or not isinstance(event := item.event, RequestEvent):
                continue
            if (event.by, event.verb) == (user, verb_of(request)):
                yield event
