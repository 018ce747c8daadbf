"""Slurm's JSON, in every shape that data parsers v0.0.42 to v0.0.45 give it, and what becomes of it.

Only what somebody reads is named. A number may be plain, `{set, infinite, number}`, a sentinel, text, null or missing;
a list may be a comma-separated text, an array, or an object keyed by index. A record that cannot be read does not stop
the others: it becomes one whose state nobody knows.
"""

import re
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from lockstep.base.clock import from_epoch
from lockstep.base.text import one_line
from lockstep.contracts.facts import SlurmJob, SlurmNode, SlurmReservation
from lockstep.slurm import hostlist, reasons, states

REASON_MAX = 512
"""Characters kept of a reason or comment that somebody else wrote."""

_SENTINELS = frozenset({0xFFFE, 0xFFFF, 0xFFFFFFFE, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFE, 0xFFFFFFFFFFFFFFFF})
_UNREADABLE_NODE = "INVALID"
_UNREADABLE_JOB = "UNREADABLE"
_NOT_JSON = re.compile(
    rb'"(?:[^"\\]|\\.)*"'
    rb"|(-?\b(?:Infinity|NaN|inf|nan)\b|-?\d[\d.]*[eE]\+?\d{3,})"
)


class Number(msgspec.Struct):
    """A number that may be unset or without end."""

    set: bool = False
    infinite: bool = False
    number: int | float | None = None


Num = int | float | str | Number | None
Words = str | list[str] | None
Names = str | list[Any] | dict[str, Any] | None


class Fault(msgspec.Struct):
    """One entry of `errors`. Number 0 says nothing: a single unknown node is reported with it."""

    description: str | None = None
    error_number: Num = None
    error: str | None = None

    @property
    def code(self) -> int:
        """Slurm's error number, 0 where it has none."""
        return number(self.error_number) or 0

    @property
    def text(self) -> str:
        """Slurm's words for it."""
        return ": ".join(part for part in (self.error, self.description) if part)


class Warned(msgspec.Struct):
    """One entry of `warnings`."""

    description: str | None = None


class Reply(msgspec.Struct):
    """What every answer has."""

    errors: list[Fault] | None = None
    warnings: list[Warned] | None = None


class Node(msgspec.Struct):
    """A node as slurmrestd writes it."""

    name: str
    state: Words = None
    state_flags: Words = None
    reason: str | None = None
    reason_set_by_user: str | None = None
    reason_changed_at: Num = None
    boot_time: Num = None
    slurmd_start_time: Num = None
    alloc_cpus: Num = None
    alloc_memory: Num = None
    gres: str | None = None
    gres_used: str | None = None
    tres_used: str | None = None
    features: Words = None
    active_features: Words = None
    partitions: Words = None
    reservation: str | None = None
    topology: str | None = None
    comment: str | None = None
    version: str | None = None


class Job(msgspec.Struct):
    """A job as slurmrestd writes it. `nodes` is a host list."""

    job_id: int
    job_state: Words = None
    user_name: str | None = None
    partition: str | None = None
    nodes: Names = None
    start_time: Num = None
    end_time: Num = None
    requeue: bool | None = None
    batch_flag: Num | bool = None


class Reservation(msgspec.Struct):
    """A reservation as slurmrestd writes it."""

    name: str
    node_list: Names = None
    start_time: Num = None
    end_time: Num = None
    flags: Words = None


class PartitionNodes(msgspec.Struct):
    """The node part of a partition."""

    configured: Names = None


class Partition(msgspec.Struct):
    """A partition as slurmrestd writes it."""

    name: str
    nodes: PartitionNodes | None = None


class Nodes(Reply):
    """Answer to `nodes/` and `node/{name}`; no `nodes` at all is no empty list."""

    nodes: list[Node] | None = None
    last_update: Num = None


class Jobs(Reply):
    """Answer to `jobs/`."""

    jobs: list[Job] | None = None
    last_update: Num = None


class Reservations(Reply):
    """Answer to `reservations/`."""

    reservations: list[Reservation] | None = None


class Partitions(Reply):
    """Answer to `partitions/`."""

    partitions: list[Partition] | None = None


class Acted(msgspec.Struct):
    """What became of a job that was to be ended: `error.code` 0 when it worked."""

    error: "ActedError | None" = None


class ActedError(msgspec.Struct):
    """Why it was not ended."""

    code: Num = None
    string: str | None = None


class JobActs(Reply):
    """Answer to ending or requeueing a job: failures may hide in `status` of a 200."""

    status: list[Acted] | None = None


class Pinged(msgspec.Struct):
    """One controller's answer."""

    responding: bool = False


class Release(msgspec.Struct):
    """Who answered, inside `meta`."""

    release: str | None = None
    cluster: str | None = None


class Meta(msgspec.Struct):
    """About the answer."""

    slurm: Release | None = None


class Pings(Reply):
    """Answer to `ping/`."""

    pings: list[Pinged] | None = None
    meta: Meta | None = None


class _RawNodes(Reply):
    nodes: list[msgspec.Raw] | None = None
    last_update: Num = None


class _RawJobs(Reply):
    jobs: list[msgspec.Raw] | None = None
    last_update: Num = None


class _NodeName(msgspec.Struct):
    name: str


class _JobNodes(msgspec.Struct):
    job_id: int
    nodes: Names = None


R = TypeVar("R", bound=Reply)
T = TypeVar("T")


def decode(body: bytes, kind: type[R]) -> R:
    """The answer as `kind`, with Infinity, NaN and numbers without measure read as null.

    Raises:
        msgspec.DecodeError: it is no JSON, or cut off.
    """
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError:
        mended = _NOT_JSON.sub(lambda found: b"null" if found[1] else found[0], body)
    try:
        return msgspec.json.decode(mended, type=kind)
    except msgspec.ValidationError:
        if issubclass(kind, Nodes):
            raw = msgspec.json.decode(mended, type=_RawNodes)
            nodes = _each(raw.nodes, Node, _bad_node)
            return kind(errors=raw.errors, warnings=raw.warnings, nodes=nodes, last_update=raw.last_update)
        if issubclass(kind, Jobs):
            rows = msgspec.json.decode(mended, type=_RawJobs)
            jobs = _each(rows.jobs, Job, _bad_job)
            return kind(errors=rows.errors, warnings=rows.warnings, jobs=jobs, last_update=rows.last_update)
        raise


def _each(rows: list[msgspec.Raw] | None, kind: type[T], instead: Callable[[msgspec.Raw], T]) -> list[T] | None:
    """Each record by itself; `instead` makes something of one that cannot be read."""
    if rows is None:
        return None
    read: list[T] = []
    for row in rows:
        try:
            read.append(msgspec.json.decode(row, type=kind))
        except msgspec.ValidationError:
            read.append(instead(row))
    return read


def _bad_node(row: msgspec.Raw) -> Node:
    return Node(name=msgspec.json.decode(row, type=_NodeName).name, state=_UNREADABLE_NODE)


def _bad_job(row: msgspec.Raw) -> Job:
    known = msgspec.json.decode(row, type=_JobNodes)
    return Job(job_id=known.job_id, nodes=known.nodes, job_state=_UNREADABLE_JOB)


def number(value: Num | bool) -> int | None:
    """A whole number; None when it is unset, without end, a sentinel, or no number."""
    if type(value) is int:  # the usual case, and the list is long
        return None if value in _SENTINELS else value
    if isinstance(value, Number):
        return None if value.infinite or not value.set else number(value.number)
    if isinstance(value, str):
        return number(int(value)) if value.strip().isascii() and value.strip().isdigit() else None
    if value is None or value in _SENTINELS or value != value:  # noqa: PLR0124 - NaN differs from itself
        return None
    return int(value) if abs(value) < float("inf") else None


def moment(value: Num) -> datetime | None:
    """A time in Unix seconds; None for "never" and for what is no time."""
    if isinstance(value, Number):
        value = value.number if value.set and not value.infinite else None
    return _moment(value if type(value) is int else number(value))


@lru_cache(maxsize=8192)
def _moment(seconds: int | None) -> datetime | None:
    if seconds is None or not 0 < seconds < 253_402_300_800 or seconds in _SENTINELS:
        return None
    return from_epoch(seconds)


def words(value: Words) -> list[str]:
    """The entries of a list or of a comma-separated text."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return value or []


def names(value: Names) -> list[str]:
    """Node names of a host list, an array, or an object keyed by index. A malformed list is kept as one name."""
    if isinstance(value, dict):
        value = [value[key] for key in sorted(value, key=lambda key: (len(key), key))]
    if isinstance(value, list):
        parts = [part if isinstance(part, str) else part.get("nodename") or part.get("name") for part in value]
        value = ",".join(part for part in parts if isinstance(part, str))
    return list(_expanded(value)) if value else []


@lru_cache(maxsize=2048)
def _expanded(text: str) -> tuple[str, ...]:
    if text in {"(null)", "None assigned", "N/A"}:
        return ()
    try:
        return tuple(hostlist.expand(text))
    except ValueError:
        return (one_line(text, limit=REASON_MAX),)


def shown(value: str | None) -> str:
    """Foreign text, unchanged where it is one bounded line without control characters."""
    if not value:
        return ""
    return value if value.isprintable() and len(value) <= REASON_MAX else one_line(value, limit=REASON_MAX)


def node(cluster: str, wire: Node) -> SlurmNode:
    """The fact. Slurm 24.11 leaves the reason behind at an UNDRAIN: ours, without a state it explains, is gone."""
    word, more = wire.state or (), wire.state_flags
    base, flags = states.split(word if not more else [*_list(word), *_list(more)])
    reason = shown(wire.reason)
    if reasons.is_ours(reason) and not states.has_reason(base, flags):
        reason = ""
    return SlurmNode(
        cluster=cluster,
        name=wire.name,
        base=base,
        flags=flags,
        reason=reason,
        reason_by=shown(wire.reason_set_by_user) if reason else "",
        reason_at=moment(wire.reason_changed_at) if reason else None,
        boot_time=moment(wire.boot_time),
        slurmd_start=moment(wire.slurmd_start_time),
        alloc_cpus=number(wire.alloc_cpus) or 0,
        alloc_memory_mib=number(wire.alloc_memory) or 0,
        gres=wire.gres or "",
        gres_used=wire.gres_used or "",
        tres_used=wire.tres_used or "",
        features=words(wire.active_features) or words(wire.features),
        partitions=words(wire.partitions),
        reservation=wire.reservation or "",
        topology=wire.topology or "",
        comment=shown(wire.comment),
        version=wire.version or "",
    )


def job(cluster: str, wire: Job) -> SlurmJob:
    """The fact. Only a batch job can be requeued, whatever its own setting says."""
    return SlurmJob(
        cluster=cluster,
        job_id=wire.job_id,
        states=[state.upper() for state in words(wire.job_state)],
        user=shown(wire.user_name),
        partition=shown(wire.partition),
        nodes=names(wire.nodes),
        start=moment(wire.start_time),
        end=moment(wire.end_time),
        can_requeue=bool(wire.requeue) and bool(number(wire.batch_flag)),
    )


def reservation(cluster: str, wire: Reservation) -> SlurmReservation:
    """The fact."""
    return SlurmReservation(
        cluster=cluster,
        name=wire.name,
        nodes=names(wire.node_list),
        start=moment(wire.start_time),
        end=moment(wire.end_time),
        maintenance=states.is_maintenance_reservation(words(wire.flags)),
    )


def _list(value: str | Iterable[str]) -> Iterable[str]:
    return (value,) if isinstance(value, str) else value
