"""What changed between two readings of Slurm, what happened, and how soon to read again. Pure."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Generic, NamedTuple, TypeVar

import msgspec

from lockstep.contracts.common import WorkerRef
from lockstep.contracts.events import (
    Event,
    ReservationEntered,
    ReservationLeft,
    SlurmNodeRegistered,
    SlurmNodeVanished,
    SlurmPhaseChanged,
    SlurmReasonChanged,
    SlurmStateChanged,
)
from lockstep.contracts.facts import SlurmJob, SlurmNode, SlurmReservation
from lockstep.slurm import states

F = TypeVar("F", bound=SlurmNode | SlurmJob | SlurmReservation)

UNDRAIN_GRACE = timedelta(seconds=3)
"""So long after the end of a DRAIN is NOT_RESPONDING no news: Slurm sets it itself, until its next ping."""
BURST_S = 1.0
"""Seconds of Slurm's time that may be spent at once after a quiet while."""
DRAINING_SHARE = 5.0
"""So many times the usual share may be spent while drains wait for jobs to end."""
MAX_SHARE = 0.5


class Difference(NamedTuple, Generic[F]):
    """What has to be told of one kind of thing."""

    changed: list[F]
    gone: list[F]


def difference(known: Mapping[str, F], read: Iterable[F], at: datetime) -> Difference[F]:
    """What differs between what was told (by identity) and everything that was read, as facts.

    `known` and `read` are bare: without epoch and read_at.
    """
    left, changed = dict(known), list[F]()
    for each in read:
        if left.pop(each.identity, None) != each:
            changed.append(msgspec.structs.replace(each, read_at=at))
    return Difference(changed, [msgspec.structs.replace(each, read_at=at, gone=True) for each in left.values()])


def bare(fact: F) -> F:
    """The fact as the client gives it: without what the bus and we have put on it."""
    return msgspec.structs.replace(fact, epoch=0, read_at=None)


def is_suspicious(known: int, gone: int) -> bool:
    """More than half of the nodes are missing: that is read again before it is believed."""
    return gone * 2 > known


RefOf = Callable[[SlurmNode], WorkerRef]
EchoOf = Callable[[SlurmNode | None, SlurmNode], str]
"""The event that tells of the write of ours which a change between two readings shows; empty if it shows none."""


class Quiet(NamedTuple):
    """A node whose DRAIN has just ended: until when a new NOT_RESPONDING is no news, and the state last told."""

    until: datetime
    told: str


class Watchman:
    """Remembers what was told about nodes' states, so that each happening is told once. Reads no clock."""

    def __init__(
        self,
        allowed_flags: Collection[str] = (),
        ref_of: RefOf | None = None,
        echo_of: EchoOf | None = None,
    ) -> None:
        """`ref_of` says where a worker is, for the events about it; `echo_of` which write of ours they show."""
        self._allowed = frozenset(allowed_flags)
        self._echo_of = echo_of or _no_echo
        self._ref = ref_of or _bare_ref
        self._named: set[str] = set()
        """Words that nobody here knows and that were named already."""
        self._quiet: dict[str, Quiet] = {}

    def first(self, nodes: Iterable[SlurmNode], at: datetime) -> list[Event]:
        """What is worth telling of nodes that were there before anybody looked: words that nobody here knows."""
        told = (e for node in nodes for e in self._changed(None, node, at))
        return [e for e in told if isinstance(e, SlurmStateChanged) and e.unknown_flags]

    def events(self, known: Mapping[str, SlurmNode], told: Difference[SlurmNode], at: datetime) -> list[Event]:
        """What happened, told by the difference to `known` and by the time that has passed."""
        found: list[Event] = []
        for node in told.changed:
            before = known.get(node.name)
            found += [
                *self._changed(before, node, at),
                *self._registered(before, node, at),
                *self._reserved(before, node, at),
            ]
        for node in told.gone:
            self._quiet.pop(node.name, None)
            was = states.text(node.base, node.flags)
            found.append(SlurmNodeVanished(id=_mark(node, at, "vanished"), at=at, worker=self._ref(node), before=was))
        return found + self._overdue({**known, **{node.name: node for node in told.changed}}, at)

    def _changed(self, before: SlurmNode | None, after: SlurmNode, at: datetime) -> list[Event]:
        said = self._quiet.pop(after.name, None)
        was = said.told if said else states.text(before.base, before.flags) if before else ""
        until = said.until if said else at
        if before is not None and _drain_ended(before, after):
            until = at + UNDRAIN_GRACE
        now = _without_its_ping(was, after) if at < until else states.text(after.base, after.flags)
        if at < until:
            self._quiet[after.name] = Quiet(until, now)
        echo = self._echo_of(before, after)
        found: list[Event] = self._state_changed(after, at, was, now, echo) if was != now else []
        reason = before.reason if before else ""
        if reason != after.reason:
            mark = _mark(after, at, "reason")
            found.append(
                SlurmReasonChanged(
                    id=mark,
                    at=at,
                    cause_id=echo,
                    worker=self._ref(after),
                    before=reason,
                    after=after.reason,
                    by=after.reason_by,
                )
            )
        return found

    def _registered(self, before: SlurmNode | None, after: SlurmNode, at: datetime) -> Iterator[Event]:
        start = after.slurmd_start
        if before is not None and start is not None and start != before.slurmd_start:
            mark = f"{after.cluster}/{after.name}:{start.isoformat()}:registered"
            yield SlurmNodeRegistered(id=mark, at=at, worker=self._ref(after), slurmd_start=start)

    def _reserved(self, before: SlurmNode | None, after: SlurmNode, at: datetime) -> Iterator[Event]:
        """Slurm names on a node the reservation that it is under, from its start to its end (24.11 and 26.05)."""
        was = before.reservation if before else ""
        if was and was != after.reservation:
            mark = _mark(after, at, f"left {was}")
            yield ReservationLeft(id=mark, at=at, worker=self._ref(after), reservation=was)
        if after.reservation and was != after.reservation:
            mark = _mark(after, at, f"entered {after.reservation}")
            yield ReservationEntered(id=mark, at=at, worker=self._ref(after), reservation=after.reservation)

    def _overdue(self, nodes: Mapping[str, SlurmNode], at: datetime) -> list[Event]:
        """What was kept quiet and did not go by itself."""
        found: list[Event] = []
        for name in [name for name, quiet in self._quiet.items() if quiet.until <= at]:
            was, node = self._quiet.pop(name).told, nodes[name]
            if (now := states.text(node.base, node.flags)) != was:
                found += self._state_changed(node, at, was, now)
        return found

    def _state_changed(self, node: SlurmNode, at: datetime, was: str, now: str, echo: str = "") -> list[Event]:
        ref = self._ref(node)
        changed = SlurmStateChanged(
            id=_mark(node, at, now),
            at=at,
            cause_id=echo,
            worker=ref,
            before=was,
            after=now,
            reason=node.reason,
            by=node.reason_by,
            unknown_flags=self._new_words(node),
        )
        before, after = self._phase(was), self._phase(now)
        if before == after:
            return [changed]
        mark = _mark(node, at, f"phase {after}")
        return [changed, SlurmPhaseChanged(id=mark, at=at, cause_id=echo, worker=ref, before=before, after=after)]

    def _phase(self, state: str) -> str:
        return states.phase_of(*states.split(state), allow=self._allowed).value if state else ""

    def _new_words(self, node: SlurmNode) -> list[str]:
        words = states.unknown_flags(node.flags, allow=self._allowed)
        if node.base not in states.BASES:
            words = [node.base, *words]
        new = [word for word in words if word not in self._named]
        self._named.update(new)
        return new


def leaving_names(nodes: Iterable[SlurmNode]) -> frozenset[str]:
    """The nodes that are being drained, have failed, or are down with work on them: somebody waits for their jobs."""
    return frozenset(node.name for node in nodes if _is_leaving(node))


def jobs_on(jobs: Iterable[SlurmJob], names: frozenset[str]) -> list[SlurmJob]:
    """The jobs that hold one of these nodes."""
    return [job for job in jobs if not names.isdisjoint(job.nodes)]


def is_draining(nodes: Iterable[SlurmNode]) -> bool:
    """A drain is under way: DRAIN stands, and work is still on the node."""
    return any(states.is_drain(n.base, n.flags) and states.is_busy(n.base, n.flags) for n in nodes)


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How soon to read again: at the shortest interval while there is Slurm's time left to spend, else when there is.

    Time is earned at `max_share` of what passes, at most `BURST_S` of it is kept, and every answer costs what it took.
    So a change is followed quickly, and constant change does not cost more than the share.
    """

    min_s: float
    max_s: float
    max_share: float
    left_s: float = BURST_S

    def after(self, cost_s: float, passed_s: float, *, draining: bool) -> "Pace":
        """With the cost of one reading taken off, and what `passed_s` (the reading included) has earned."""
        share = self._share(draining=draining)
        left_s = min(BURST_S, self.left_s + passed_s * share) - cost_s
        return msgspec.structs.replace(self, left_s=max(left_s, -share * self.max_s))

    def wait_s(self, *, draining: bool, took_s: float = 0.0) -> float:
        """Seconds until the next reading, `took_s` after the last one began: the shortest interval counts from then."""
        until_paid = -self.left_s / self._share(draining=draining)
        return min(max(self.min_s - took_s, until_paid), self.max_s)

    def _share(self, *, draining: bool) -> float:
        return max(self.max_share, min(MAX_SHARE, self.max_share * DRAINING_SHARE)) if draining else self.max_share


def with_nodes(reservations: Sequence[SlurmReservation]) -> list[SlurmReservation]:
    """Those that concern nodes."""
    return [each for each in reservations if each.nodes]


def _is_leaving(node: SlurmNode) -> bool:
    base, flags = node.base, node.flags
    if states.is_drain(base, flags) or states.is_fail(base, flags):
        return True
    return states.is_down(base, flags) and bool(node.alloc_cpus)


def _drain_ended(before: SlurmNode, after: SlurmNode) -> bool:
    return states.is_drain(before.base, before.flags) and not states.is_drain(after.base, after.flags)


def _without_its_ping(was: str, node: SlurmNode) -> str:
    """The state, without a NOT_RESPONDING that was not told before."""
    flags = node.flags
    if states.NOT_RESPONDING not in states.split(was)[1]:
        flags = [flag for flag in flags if flag != states.NOT_RESPONDING]
    return states.text(node.base, flags)


def _bare_ref(node: SlurmNode) -> WorkerRef:
    return WorkerRef(cluster=node.cluster, name=node.name)


def _no_echo(_before: SlurmNode | None, _after: SlurmNode) -> str:
    return ""


def _mark(node: SlurmNode, at: datetime, what: str) -> str:
    """Slurm has no version of a node: when it was read tells one happening from the next."""
    return f"{node.cluster}/{node.name}:{at.isoformat()}:{what}"
