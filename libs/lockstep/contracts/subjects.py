"""Subjects and streams, derived from the types; nobody writes a subject by hand."""

import re
from enum import StrEnum

import msgspec

from lockstep.contracts.events import Event
from lockstep.contracts.facts import Fact
from lockstep.contracts.requests import Request

ROOT = "lockstep"
REPLAY_OF = "lockstep-replay-of"
"""Header of a replay: the subject that the message came with."""
_PLAIN = re.compile(r"[A-Za-z0-9-]").fullmatch


class Full(StrEnum):
    """What a stream does when it is full."""

    DROP_OLD = "old"
    """Its oldest messages go."""
    REFUSE_NEW = "new"
    """The publisher is told that there is no room."""


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """A JetStream stream as it must be. Zero means no limit."""

    name: str
    subjects: list[str]
    last_only: bool = False
    """Keep only the newest message of each subject."""
    append_only: bool = False
    """Nothing takes messages out but age and want of room."""
    until_handled: bool = False
    """Each message goes when its one reader has handled it."""
    when_full: Full = Full.DROP_OLD
    max_age_s: int = 0
    max_bytes: int = 0
    duplicate_window_s: int = 120
    replicas: int = 1
    """Servers that keep a copy. An existing stream that has more keeps them."""


FACTS = Stream(
    name="LOCKSTEP_FACTS",
    subjects=[f"{ROOT}.fact.>"],
    last_only=True,
    when_full=Full.REFUSE_NEW,
    max_bytes=512 << 20,
)
"""A source that finds no room falls silent, which stops everybody; old facts that go unseen would not."""
EVENTS = Stream(
    name="LOCKSTEP_EVENTS",
    subjects=[f"{ROOT}.event.>"],
    append_only=True,
    max_age_s=7 * 24 * 3600,
    max_bytes=2 << 30,
)
REQUESTS = Stream(
    name="LOCKSTEP_REQUESTS",
    subjects=[f"{ROOT}.request.>"],
    until_handled=True,
    when_full=Full.REFUSE_NEW,
    max_age_s=24 * 3600,
    max_bytes=64 << 20,
)
DEAD = Stream(name="LOCKSTEP_DEAD", subjects=[f"{ROOT}.dead.>"], max_age_s=30 * 24 * 3600, max_bytes=256 << 20)
STREAMS = (FACTS, EVENTS, REQUESTS, DEAD)


def token(name: str) -> str:
    """`name` as one subject token, reversibly: everything but letters, digits and dashes becomes `_xx` (hex, UTF-8).

    The empty name becomes `_`.
    """
    if not name:
        return "_"
    return "".join(
        c if c.isascii() and (c.isalnum() or c == "-") else "".join(f"_{b:02x}" for b in c.encode()) for c in name
    )


def name_of(tok: str) -> str:
    """What `token` was made from.

    Raises:
        ValueError: it is no token.
    """
    if tok == "_":
        return ""
    raw = bytearray()
    i = 0
    while i < len(tok):
        if tok[i] == "_":
            raw.append(int(tok[i + 1 : i + 3], 16))
            i += 3
        else:
            raw += tok[i].encode()
            i += 1
    return raw.decode()


def tag_of(kind: type[Fact | Event | Request]) -> str:
    """The tag of a fact's, event's or request's type, such as `slurm.node`, `hold.placed.v1` or `hold.v1`."""
    return str(kind.__struct_config__.tag)


def fact_subject(fact: Fact) -> str:
    """`lockstep.fact.<source>.<kind>.<scope>.<identity>`."""
    return f"{ROOT}.fact.{tag_of(type(fact))}.{scope_token(fact.scope)}.{token(fact.identity)}"


def event_subject(event: Event) -> str:
    """`lockstep.event.<noun>.<past-tense>.v<N>.<scope>.<identity>`."""
    return f"{ROOT}.event.{tag_of(type(event))}.{scope_token(event.scope)}.{token(event.identity)}"


def request_subject(request: Request, user: str) -> str:
    """`lockstep.request.<verb>.v<N>.<user>.<cluster>.<id>`: NATS lets each user publish under its own name only."""
    about = f"{token(user)}.{scope_token(request.scope)}.{token(request.identity)}"
    return f"{ROOT}.request.{tag_of(type(request))}.{about}"


def dead_subject(reader: str, subject: str) -> str:
    """`lockstep.dead.<reader>.<the message's own subject>`: what a reader could not handle."""
    return f"{ROOT}.dead.{token(reader)}.{subject}"


def replay_subject(reader: str) -> str:
    """`lockstep.replay.<reader>`: where a reader without a stream of its own is asked to handle a message again.

    Body and headers are the message's own, `lockstep-replay-of` is its subject. The answer is `ok` once it is done, or
    the error in one line. No stream keeps it: somebody must be there.
    """
    return f"{ROOT}.replay.{token(reader)}"


def facts_of(kind: type[Fact], scope: str = "") -> str:
    """The filter for all facts of one kind, in one scope or (empty) in all."""
    return f"{ROOT}.fact.{tag_of(kind)}.{scope_token(scope) + '.*' if scope else '>'}"


def scope_token(scope: str) -> str:
    """A cluster's name as a token; `_site` stays as it is."""
    return scope if scope.startswith("_") else token(scope)
