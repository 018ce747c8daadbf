"""What is posted, and what an answer means. Data only."""

from typing import NamedTuple

from lockstep.bus.ordered import Received


class Item(NamedTuple):
    """An event of the stream, as far as its subject and headers tell."""

    received: Received
    kind: str
    """Its type, such as `drain.drained.v1`."""
    scope: str
    """The cluster, or `_site`."""
    identity: str
    """What it is about: for most events a worker."""

    @property
    def lane(self) -> tuple[str, str]:
        """Items of one lane are posted in the stream's order, one after the other."""
        return (self.scope, self.identity)


class Post(NamedTuple):
    """An HTTP request's headers and body."""

    headers: dict[str, str]
    body: bytes


class Taken(NamedTuple):
    """The endpoint has it."""


class Again(NamedTuple):
    """It is to be tried again after so many seconds."""

    after_s: float
    why: str


class Dead(NamedTuple):
    """It will not be taken; it becomes a dead letter."""

    why: str


class Off(NamedTuple):
    """The endpoint wants nothing any more (410)."""

    why: str


Verdict = Taken | Again | Dead | Off
