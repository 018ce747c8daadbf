"""What goes over the wire: a JSON body, and headers in CloudEvents' binary mode for NATS."""

import re
from collections.abc import Mapping
from datetime import datetime
from hashlib import blake2b
from typing import Any, NamedTuple, TypeVar, get_args
from urllib.parse import quote, unquote

import msgspec

from lockstep.base.text import one_line
from lockstep.contracts.events import EVENT_TYPES, AnyEvent, Event
from lockstep.contracts.facts import AnyFact, Fact
from lockstep.contracts.subjects import event_subject, fact_subject, tag_of

TRACEPARENT = "traceparent"
CAUSE = "lockstep-cause"
"""On a fact: the id of the event because of which it is as it is. Events carry theirs in `cause_id`."""
MAX_CAUSE = 512
MSG_ID = "Nats-Msg-Id"
EXPECTED_SEQUENCE = "Nats-Expected-Last-Subject-Sequence"
"""The message is taken only while the newest with its subject has this sequence; 0: while there is none."""
TTL = "Nats-TTL"
GONE_FOR_S = 24 * 3600
"""So long a stream remembers that a thing is gone, where the server can (NATS 2.11); then its subject is free again."""

JSON = "application/json"
_SAFE = "".join(chr(c) for c in range(0x21, 0x7F) if chr(c) not in '%"')
"""What CloudEvents' binding for NATS leaves as it is in header values (section 3.1.3.2)."""
_is_safe = re.compile(f"[{re.escape(_SAFE)}]*").fullmatch
_FACT_TYPES: tuple[type[Fact], ...] = get_args(AnyFact)

_encode = msgspec.json.Encoder().encode
_decode_fact = msgspec.json.Decoder[Fact](AnyFact).decode
_decode_event = msgspec.json.Decoder[Event](AnyEvent).decode

T = TypeVar("T")


class Message(NamedTuple):
    """A message as it is sent."""

    subject: str
    headers: dict[str, str]
    body: bytes


class Unknown(msgspec.Struct, frozen=True):
    """A message that this version cannot read: a newer kind, or a body that is broken. It is passed over."""

    type: str
    why: str


class _FactTag(msgspec.Struct):
    kind: str = ""


class _EventTag(msgspec.Struct):
    type: str = ""


def pack_fact(fact: Fact, source: str, traceparent: str = "", cause: str = "") -> Message:
    """The message for a fact. It has no Nats-Msg-Id: a state that comes back within minutes is news, no duplicate."""
    body = _encode(fact)
    subject = fact_subject(fact)
    headers = _cloud_event(fact, blake2b(subject.encode() + body, digest_size=12).hexdigest(), source, fact.read_at)
    if fact.gone:
        headers[TTL] = str(GONE_FOR_S)
    if traceparent:
        headers[TRACEPARENT] = traceparent
    if cause:
        headers[CAUSE] = _shown(cause)
    return Message(subject, headers, body)


def pack_event(event: Event, source: str, traceparent: str = "") -> Message:
    """The message for an event; its id is the Nats-Msg-Id, so that sending it twice stores it once."""
    headers = _cloud_event(event, event.id, source, event.at)
    headers[MSG_ID] = headers["ce-id"]
    if traceparent:
        headers[TRACEPARENT] = traceparent
    return Message(event_subject(event), headers, _encode(event))


def unpack_fact(body: bytes) -> Fact | Unknown:
    """The fact in a body. Never raises."""
    try:
        return _decode_fact(body)
    except msgspec.MsgspecError as e:
        return _unknown(body, _FactTag, {tag_of(kind) for kind in _FACT_TYPES}, e)


def unpack_event(body: bytes) -> Event | Unknown:
    """The event in a body. Never raises."""
    try:
        return _decode_event(body)
    except msgspec.MsgspecError as e:
        return _unknown(body, _EventTag, {tag_of(kind) for kind in EVENT_TYPES}, e)


def traceparent_of(headers: Mapping[str, str] | None) -> str:
    """The W3C trace context that came with a message; empty when there is none."""
    return headers.get(TRACEPARENT, "") if headers else ""


def cause_of(headers: Mapping[str, str] | None) -> str:
    """The id of the event because of which a fact is as it is; empty when that is not known. Bounded, on one line."""
    said = headers.get(CAUSE, "") if headers else ""
    return one_line(unquote(said), limit=MAX_CAUSE) if said else ""


def _cloud_event(what: Fact | Event, ident: str, source: str, at: datetime | None) -> dict[str, str]:
    headers = {
        "ce-specversion": "1.0",
        "ce-id": _shown(ident),
        "ce-type": tag_of(type(what)),
        "ce-source": f"lockstep/{source}",
        "ce-subject": _shown(f"{what.scope}/{what.identity}"),
        "ce-datacontenttype": JSON,
        "content-type": JSON,
    }
    if at is not None:
        headers["ce-time"] = at.isoformat()
    return headers


def _shown(text: str) -> str:
    """As CloudEvents writes header values: visible ASCII, and the rest, spaces too, percent-encoded."""
    return text if _is_safe(text) else quote(text, safe=_SAFE)


def _unknown(body: bytes, shape: type[Any], known: set[str], error: Exception) -> Unknown:
    try:
        tag = msgspec.json.decode(body, type=shape)
    except msgspec.MsgspecError:
        return Unknown("", one_line(str(error), limit=200))
    name = one_line(str(tag.kind if isinstance(tag, _FactTag) else tag.type), limit=80)
    return Unknown(name, one_line(str(error), limit=200) if name in known else "a newer kind")
