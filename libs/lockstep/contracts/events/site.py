"""What happened to the sources, to the streams, and to what others asked for."""

from lockstep.contracts.events.base import ClusterEvent, Event, SourceEvent


class SourceLost(SourceEvent, frozen=True, kw_only=True, omit_defaults=True, tag="source.lost.v1"):
    """A source cannot be read; nothing is done that depends on it."""

    error: str
    """Why it cannot be read."""


class SourceBack(SourceEvent, frozen=True, kw_only=True, omit_defaults=True, tag="source.back.v1"):
    """A source answers again, and everything of it was read anew."""

    lost_for_s: float = 0.0
    """Seconds."""


class GapFound(Event, frozen=True, kw_only=True, omit_defaults=True, tag="fleet.gap-found.v1"):
    """Facts or events were lost between two parts; everything is read anew."""

    where: str
    """The stream or the source."""
    detail: str = ""
    """How it was found."""

    @property
    def identity(self) -> str:
        """Where the gap is."""
        return self.where


class StreamFilling(Event, frozen=True, kw_only=True, omit_defaults=True, tag="fleet.stream-filling.v1"):
    """A stream nears its limit: soon its oldest messages are dropped before their time."""

    stream: str
    used_bytes: int
    limit_bytes: int

    @property
    def identity(self) -> str:
        """The stream."""
        return self.stream


class RequestEvent(ClusterEvent, frozen=True, kw_only=True, omit_defaults=True):
    """Common to the answers to one request; `cause_id` is the request's id too."""

    request: str
    """The request's id."""
    verb: str
    """What was asked for: `hold`, `release`, `cancel-drain`."""
    by: str
    """The NATS user that asked, as its subject says; the NATS server vouches for it."""

    @property
    def identity(self) -> str:
        """The request's id."""
        return self.request


class RequestAccepted(RequestEvent, frozen=True, kw_only=True, omit_defaults=True, tag="request.accepted.v1"):
    """A request is valid and its user may ask for it; it is being carried out."""

    workers: int = 0
    """How many workers it concerns now."""
    hold: str = ""
    """`namespace/name` of the Hold that stands for it."""


class RequestRefused(RequestEvent, frozen=True, kw_only=True, omit_defaults=True, tag="request.refused.v1"):
    """A request is not carried out. `fault` names the field or the right, the value and what is allowed."""

    fault: str
    """In words for people."""
    code: str = ""
    """What kind of fault: `invalid`, `denied`, `not-found`, `busy`, or `failed` (tried, and set aside)."""


class RequestProgressed(RequestEvent, frozen=True, kw_only=True, omit_defaults=True, tag="request.progressed.v1"):
    """How far the request's workers are."""

    selected: int = 0
    """Workers that it concerns."""
    draining: int = 0
    """Of them, those that still drain."""
    drained: int = 0
    """Of them, those that are drained."""


class RequestDone(RequestEvent, frozen=True, kw_only=True, omit_defaults=True, tag="request.done.v1"):
    """The request's outcome.

    Of a hold: `drained`, `overdue` when the deadline came first, or `cancelled` when the Hold ended first. Of a
    release: `released`. Of a cancel-drain: `cancelled`.
    """

    outcome: str
    """One of these four words."""
    selected: int = 0
    """Workers that it concerns."""
    drained: int = 0
    """Of them, those that were drained then."""
