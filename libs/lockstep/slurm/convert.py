"""From Slurm's JSON to our facts."""

from collections.abc import Iterable
from datetime import datetime
from functools import lru_cache

from lockstep.base.clock import from_epoch
from lockstep.base.text import one_line
from lockstep.contracts.facts import SlurmJob, SlurmNode, SlurmReservation
from lockstep.slurm import hostlist, reasons, states
from lockstep.slurm.wire import SENTINELS, Job, Names, Node, Num, Number, Reservation, number, words

TEXT_MAX = 512
"""Characters kept of a reason or comment that somebody else wrote."""

NOT_SAID = -1
"""An allocation that the answer does not say. It is not 0, so it never reads as "nothing is in use"."""

_NO_NODES = frozenset({"(null)", "None assigned", "N/A"})
_END_OF_TIME = 253_402_300_800


def moment(value: Num) -> datetime | None:
    """A time in Unix seconds; None for "never" and for what is no time."""
    if isinstance(value, Number):
        value = value.number if value.set and not value.infinite else None
    return _moment(value if type(value) is int else number(value))


@lru_cache(maxsize=8192)
def _moment(seconds: int | None) -> datetime | None:
    if seconds is None or not 0 < seconds < _END_OF_TIME or seconds in SENTINELS:
        return None
    return from_epoch(seconds)


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
    if text in _NO_NODES:
        return ()
    try:
        return tuple(hostlist.expand(text))
    except ValueError:
        return (one_line(text, limit=TEXT_MAX),)


def shown(value: str | None) -> str:
    """Foreign text, unchanged where it is one bounded line without control characters."""
    if not value:
        return ""
    return value if value.isprintable() and len(value) <= TEXT_MAX else one_line(value, limit=TEXT_MAX)


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
        alloc_cpus=_used(wire.alloc_cpus),
        alloc_memory_mib=_used(wire.alloc_memory),
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


def job_states(wire: Job) -> list[str]:
    """The job's state words."""
    return [state.upper() for state in words(wire.job_state)]


def job(cluster: str, wire: Job) -> SlurmJob:
    """The fact. Only a batch job can be requeued, whatever its own setting says."""
    return SlurmJob(
        cluster=cluster,
        job_id=wire.job_id,
        states=job_states(wire),
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


def _used(value: Num) -> int:
    known = number(value)
    return NOT_SAID if known is None else known


def _list(value: str | Iterable[str]) -> Iterable[str]:
    return (value,) if isinstance(value, str) else value
