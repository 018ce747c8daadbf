"""What a watching service logs of what it saw: one line for each thing to which something happened."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from lockstep.contracts.events import Event, JobEvent
from lockstep.contracts.events.base import NodeEvent, SourceEvent, WorkerEvent
from lockstep.contracts.subjects import tag_of
from lockstep.runtime.telemetry import traced_as

_NO_TRACES: Mapping[str, str] = MappingProxyType({})


def log_changes(log: Any, events: Iterable[Event], traces: Mapping[str, str] = _NO_TRACES) -> None:
    """Logs a line at info for each worker, node or other thing, with all that happened to it.

    A source's outage is not among it: its two lines are said where it is noticed. Nor are jobs: there may be very many.
    `traces` says per event's id in which trace it arose.
    """
    happened: dict[tuple[str, str], list[Event]] = {}
    for event in events:
        if not isinstance(event, SourceEvent | JobEvent):
            happened.setdefault(_about(event), []).append(event)
    for (key, name), each in happened.items():
        trace = traced_as(traces.get(each[0].id, ""))
        log.info("Changed", **{key: name}, happened=[tag_of(type(event)) for event in each], **trace)


def _about(event: Event) -> tuple[str, str]:
    match event:
        case WorkerEvent(worker=worker):
            return "worker", str(worker)
        case NodeEvent(node=node):
            return "node", node
        case _:
            return "name", f"{event.scope}/{event.identity}"
