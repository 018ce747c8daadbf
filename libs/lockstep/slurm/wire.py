"""Slurm's JSON, in every shape that data parsers v0.0.42 to v0.0.45 give it.

Only what somebody reads is named. A number may be plain, `{set, infinite, number}`, a sentinel, text, null or missing;
a list may be a comma-separated text, an array, or an object keyed by index. A record that cannot be read does not stop
the others: it becomes one whose state nobody knows.
"""

import re
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

SENTINELS = frozenset({0xFFFFFFFE, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFE, 0xFFFFFFFFFFFFFFFF})
"""Slurm's numbers for "no value" and "without end"."""

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
        return None if value in SENTINELS else value
    if isinstance(value, Number):
        return None if value.infinite or not value.set else number(value.number)
    if isinstance(value, str):
        return number(int(value)) if value.strip().isascii() and value.strip().isdigit() else None
    if value is None or value in SENTINELS or value != value:  # noqa: PLR0124 - NaN differs from itself
        return None
    return int(value) if abs(value) < float("inf") else None


def words(value: Words) -> list[str]:
    """The entries of a list or of a comma-separated text."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return value or []
