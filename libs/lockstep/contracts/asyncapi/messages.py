"""All messages that cross the border, and what can be told of one from its type alone."""

from collections.abc import Iterable
from typing import NamedTuple, get_args

import msgspec

from lockstep.contracts.asyncapi.docstrings import property_said
from lockstep.contracts.events import EVENT_TYPES, Event
from lockstep.contracts.facts import SITE, AnyFact, Fact
from lockstep.contracts.headers import EventHeaders, FactHeaders, RequestHeaders
from lockstep.contracts.requests import REQUEST_TYPES, Request
from lockstep.contracts.subjects import EVENTS, FACTS, REQUESTS, ROOT, Stream, tag_of

Payload = type[Event] | type[Fact] | type[Request]
FACT_TYPES: tuple[type[Fact], ...] = get_args(AnyFact)


class Sort(NamedTuple):
    """One of the three sorts of messages."""

    word: str
    """Follows the root in subjects."""
    base: Payload
    stream: Stream
    headers: type[msgspec.Struct]
    action: str
    """What Lockstep does with them, in AsyncAPI's words."""
    parameters: tuple[str, ...]
    """The tokens of a subject after the type."""


EVENT = Sort("event", Event, EVENTS, EventHeaders, "send", ("scope", "identity"))
FACT = Sort("fact", Fact, FACTS, FactHeaders, "send", ("scope", "identity"))
REQUEST = Sort("request", Request, REQUESTS, RequestHeaders, "receive", ("user", "scope", "identity"))
_OF_NO_CLUSTER = (Event.scope, Fact.scope)
_USER = "The NATS user that asks, as a token; its permissions let it publish under its own name only."


class About(NamedTuple):
    """A message, before anything is known but its type."""

    sort: Sort
    payload: Payload

    @property
    def tag(self) -> str:
        """The type, such as `hold.placed.v1`."""
        return tag_of(self.payload)

    @property
    def name(self) -> str:
        """The sort and the type, such as `event.hold.placed.v1`: how files and channels are called."""
        return f"{self.sort.word}.{self.tag}"

    @property
    def address(self) -> str:
        """The subject with parameters, such as `lockstep.event.hold.placed.v1.{scope}.{identity}`."""
        tokens = [f"{{{p}}}" if p in self.parameters else SITE for p in self.sort.parameters]
        return ".".join([ROOT, self.name, *tokens])

    @property
    def parameters(self) -> dict[str, str]:
        """The parameters of the address, and what each stands for."""
        return {
            name: _USER if name == "user" else property_said(self.payload, name)
            for name in self.sort.parameters
            if not (name == "scope" and self.payload.scope in _OF_NO_CLUSTER)
        }


def messages() -> list[About]:
    """All of them: events in the order of a worker's life, then facts, then requests."""
    kinds: list[tuple[Sort, Iterable[Payload]]] = [(EVENT, EVENT_TYPES), (FACT, FACT_TYPES), (REQUEST, REQUEST_TYPES)]
    return [About(sort, payload) for sort, payloads in kinds for payload in payloads]
