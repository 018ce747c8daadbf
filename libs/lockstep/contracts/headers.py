"""The headers of messages, as they are on the wire: CloudEvents' binary mode for NATS, and a few of our own."""

from typing import Annotated

import msgspec

from lockstep.contracts.common import Aware

TraceParent = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$")]


class Headers(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What all messages of Lockstep carry. Values of `ce-*` are percent-encoded where they are not plain ASCII."""

    ce_specversion: str = msgspec.field(name="ce-specversion")
    """The version of CloudEvents: 1.0."""
    ce_id: str = msgspec.field(name="ce-id")
    """An event's id, or what tells one content of a fact from another."""
    ce_type: str = msgspec.field(name="ce-type")
    """The type in the body."""
    ce_source: str = msgspec.field(name="ce-source")
    """The service that sent it, such as `lockstep/drain`."""
    ce_subject: str = msgspec.field(name="ce-subject")
    """What it is about: `<scope>/<identity>`, as in the subject but readable."""
    ce_time: Aware | None = msgspec.field(name="ce-time", default=None)
    """When it happened, or was read."""
    ce_datacontenttype: str = msgspec.field(name="ce-datacontenttype")
    """`application/json`."""
    content_type: str = msgspec.field(name="content-type")
    """The same, for readers that do not know CloudEvents."""
    traceparent: TraceParent | None = None
    """The W3C trace context of the flow in which it came about."""


class EventHeaders(Headers, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The headers of an event."""

    msg_id: str = msgspec.field(name="Nats-Msg-Id")
    """The same as `ce-id`: within two minutes the server stores an id once."""


class FactHeaders(Headers, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The headers of a fact."""

    cause: str | None = msgspec.field(name="lockstep-cause", default=None)
    """The id of the event (or request) because of which the thing is as it is: the newest that is known."""
    ttl: str | None = msgspec.field(name="Nats-TTL", default=None)
    """On what is gone: the seconds after which the stream forgets it."""
    expected: str | None = msgspec.field(name="Nats-Expected-Last-Subject-Sequence", default=None)
    """What the writer believed to be the last message of the subject; the server refused anything else."""


class RequestHeaders(msgspec.Struct, frozen=True, kw_only=True):
    """The headers of a request; any others are ignored."""

    msg_id: str | None = msgspec.field(name="Nats-Msg-Id", default=None)
    """The request's subject, so that the stream stores it once; the id alone might be another user's or verb's too.
    Beyond two minutes the id in the body does that."""
    traceparent: TraceParent | None = None
    """The W3C trace context in which the answers go on."""
