"""What a watching service logs of what it saw: one line for each thing to which something happened."""

from collections.abc import Iterable
from typing import Any

from lockstep.contracts.events import Event
from lockstep.contracts.events.base import NodeEvent, SourceEvent, WorkerEvent
from lockstep.contracts.subjects import tag_of


def log_changes(log: Any, events: Iterable[Event]) -> None:
    """Logs a line at info for each worker, node or other thing, with all that happened to it.

    A source's outage is not among it: its two lines are said where it is noticed.
    """
    happened: dict[tuple[str, str], list[str]] = {}
    for event in events:
        if not isinstance(event, SourceEvent):
            happened.setdefault(_about(event), []).append(tag_of(type(event)))
    for (key, name), types in happened.items():
        log.info("Changed", **{key: name}, happened=types)


def _about(event: Event) -> tuple[str, str]:
    match event:
        case WorkerEvent(worker=worker):
            return "worker", str(worker)
        case NodeEvent(node=node):
            return "node", node
        case _:
            return "name", f"{event.scope}/{event.identity}"
