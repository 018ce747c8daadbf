"""What each user of NATS may publish and subscribe to: a service what it alone writes, and of JetStream what it needs.

The one who makes the streams is the pod watcher; the others wait until they are there. Nobody may delete or purge one.
"""

from collections.abc import Iterable

import msgspec

from lockstep.contracts import events as e
from lockstep.contracts import facts as f
from lockstep.contracts.subjects import DEAD, EVENTS, FACTS, REQUESTS, ROOT, STREAMS, Stream, tag_of, token

API = "$JS.API"
INBOX = "_INBOX.>"
DEAD_ROOT = DEAD.subjects[0].removesuffix(".>")
FLOW = "$JS.FC.>"
"""Answers to JetStream's flow control."""
STREAM_MAKER = "pod-watcher"
"""The one service whose processes create and update streams. Without it there is nothing to tell anyway."""
USER = "{user}"
"""Stands for the user's own name, as a subject's token, in the permissions of a requester."""

WRITES: dict[str, tuple[type[f.Fact | e.Event], ...]] = {
    "pod-watcher": (
        *(f.KubeNode, f.KubePod, f.KubeHold),
        *(kind for kind in e.EVENT_TYPES if issubclass(kind, e.PodEvent | e.NodeEvent)),
    ),
    "slurm-poller": (
        *(f.SlurmNode, f.SlurmJob, f.SlurmReservation),
        *(kind for kind in e.EVENT_TYPES if tag_of(kind).startswith(("slurm-node.", "job."))),
    ),
    "drain": (
        f.Desired,
        *(kind for kind in e.EVENT_TYPES if issubclass(kind, e.DrainEvent | e.RequestEvent)),
        *(e.HoldPlaced, e.HoldReleased, e.HoldExpired, e.HoldOverridden, e.HoldRefused, e.ForeignDrainRespected),
    ),
    "reconciler": (
        f.Wrote,
        *(kind for kind in e.EVENT_TYPES if tag_of(kind).startswith("worker.")),
        *(e.HoldReasserted, e.DrainActed),
    ),
    "forward": (f.ForwardPosition,),
}
"""Per service, as it is called on NATS: the facts and events that it writes. What all write is not among them."""
SOURCES = {"pod-watcher": ("kube",), "slurm-poller": ("slurm.node", "slurm.job", "slurm.reservation")}
"""Of which sources a service tells whether they can be read."""


class Permissions(msgspec.Struct, frozen=True, kw_only=True):
    """The subjects that one user may publish to and subscribe to."""

    publish: list[str]
    subscribe: list[str]


def permissions() -> dict[str, Permissions]:
    """Of each service, by its name, and of each kind of person or tool."""
    return {service: _service(service) for service in WRITES} | {
        "standalone": Permissions(
            publish=[f"{ROOT}.>", f"{API}.>", "$JS.ACK.>", FLOW, INBOX], subscribe=[f"{ROOT}.>", INBOX]
        ),
        "reader": Permissions(publish=_READER, subscribe=_READS),
        "requester": Permissions(publish=[_ASK, *_READER], subscribe=_READS),
        "overrider": Permissions(publish=[_ASK, f"{_event(e.HoldOverridden)}.>", *_READER], subscribe=_READS),
        "admin": Permissions(publish=_ADMIN, subscribe=[f"{ROOT}.event.>", f"{ROOT}.dead.>", INBOX]),
    }


def _service(service: str) -> Permissions:
    publish = [*_written(WRITES[service]), *_sources(SOURCES.get(service, ())), *_TOLD_BY_ALL]
    publish += [f"{API}.STREAM.INFO.{stream.name}" for stream in STREAMS]
    if service == STREAM_MAKER:
        publish += [f"{API}.STREAM.{verb}.{stream.name}" for verb in ("CREATE", "UPDATE") for stream in STREAMS]
    publish += [f"{API}.STREAM.MSG.GET.{FACTS.name}", *_follow(FACTS), FLOW]
    subscribe = [INBOX]
    if service == "drain":
        publish += [*_follow(EVENTS), *_work(REQUESTS, service), f"{DEAD_ROOT}.{service}.{ROOT}.request.>"]
    if service == "forward":
        publish += [*_follow(EVENTS), f"{DEAD_ROOT}.*.{ROOT}.event.>", INBOX]
        subscribe.append(f"{ROOT}.replay.*")
    return Permissions(publish=publish, subscribe=subscribe)


def _written(kinds: Iterable[type[f.Fact | e.Event]]) -> list[str]:
    return [f"{ROOT}.fact.{tag_of(k)}.>" if issubclass(k, f.Fact) else f"{_event(k)}.>" for k in kinds]


def _event(kind: type[e.Event]) -> str:
    """The beginning of an event's subjects, of whichever version: an upgrade may be undone."""
    return f"{ROOT}.event.{tag_of(kind).rpartition('.')[0]}.*"


def _sources(names: Iterable[str]) -> list[str]:
    of_facts = [f"{ROOT}.fact.{tag_of(f.SourceHealth)}.*.{token(name)}" for name in names]
    both = (e.SourceLost, e.SourceBack)
    return of_facts + [f"{_event(kind)}.*.{token(name)}" for kind in both for name in names]


def _follow(stream: Stream) -> list[str]:
    """Reads a stream by consumers that are gone when the reader is."""
    return [f"{API}.CONSUMER.CREATE.{stream.name}", f"{API}.CONSUMER.DELETE.{stream.name}.>"]


def _work(stream: Stream, reader: str) -> list[str]:
    """Takes messages from a queue as that reader."""
    asked = [f"{API}.CONSUMER.{verb}.{stream.name}.{reader}" for verb in ("CREATE", "MSG.NEXT")]
    return [*asked, f"$JS.ACK.{stream.name}.{reader}.>"]


def _ways_of_strangers(*streams: Stream) -> list[str]:
    """Reads streams in whichever way a NATS client does."""
    return [
        *(f"{API}.STREAM.INFO.{stream.name}" for stream in streams),
        *(f"{API}.CONSUMER.CREATE.{stream.name}{more}" for stream in streams for more in ("", ".>")),
    ]


_TOLD_BY_ALL = [
    f"{ROOT}.fact.{tag_of(f.StreamHealth)}.>",
    *_written((e.GapFound, e.StreamFilling)),
    f"{_event(e.SourceBack)}.{f.SITE}.nats",
]
"""Of the streams themselves; whoever is first says it."""
_ASK = f"{ROOT}.request.*.v1.{USER}.>"
"""Requests under one's own name. Who may override tells of what was ended by hand as well; nothing is decided on it."""
_READS = [f"{ROOT}.event.>", f"{ROOT}.fact.>", INBOX]
_READER = [
    *_ways_of_strangers(EVENTS, FACTS),
    *(f"{API}.STREAM.INFO.{stream.name}" for stream in (REQUESTS, DEAD)),
    f"{API}.CONSUMER.DURABLE.CREATE.{EVENTS.name}.>",
    *(f"{API}.CONSUMER.{verb}.{stream.name}.>" for verb in ("INFO", "MSG.NEXT") for stream in (EVENTS, FACTS)),
    *(f"$JS.ACK.{stream.name}.>" for stream in (EVENTS, FACTS)),
    FLOW,
]
_ADMIN = [
    *(f"{ROOT}.request.>", f"{ROOT}.replay.>"),
    *_ways_of_strangers(DEAD),
    *(f"{API}.STREAM.MSG.{verb}.{DEAD.name}" for verb in ("GET", "DELETE")),
    *_ways_of_strangers(EVENTS),
    FLOW,
]
