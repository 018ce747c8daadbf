"""`lockstep events`: from when, which, and in what words."""

import json
from datetime import timedelta
from typing import Any

import pytest

from lockstep.base.errors import BadInput
from lockstep.bus.envelope import Unknown
from lockstep.bus.events import EventSeen
from lockstep.cli import happened
from lockstep.cli.events import start_of, subject_of, tags_of, text_of
from lockstep.contracts import events as e
from lockstep.contracts.common import WorkerRef
from lockstep.contracts.facts import Progress, Taint
from lockstep.contracts.subjects import tag_of
from tests.builders import NOW, a_view

REF = WorkerRef(cluster="main", name="gpu-7")
PLACED = e.HoldPlaced(id="1", at=NOW, worker=REF, hold=a_view())


def test_without_follow_the_last_hour_is_shown_and_with_it_only_news() -> None:
    """`--since` says otherwise."""
    assert start_of(None, NOW, follow=False).at == NOW - timedelta(hours=1)
    assert start_of(None, NOW, follow=True).new
    assert start_of("10m", NOW, follow=True).at == NOW - timedelta(minutes=10)
    assert start_of("2026-12-01T06:00:00Z", NOW, follow=False).at == NOW - timedelta(hours=6)


@pytest.mark.parametrize("text", ["", "10", "yesterday", "2026-12-01T06:00:00", "9" * 40 + "h"])
def test_a_time_that_cannot_be_read_is_refused(text: str) -> None:
    """The text says what is allowed."""
    with pytest.raises(BadInput, match=r"--since .*10m"):
        start_of(text, NOW, follow=False)


def test_a_kind_is_a_noun_a_type_or_a_version() -> None:
    """`hold` is all about holds; `hold.placed` is one type."""
    assert tags_of(["hold.placed"]) == tags_of(["hold.placed.v1"]) == {"hold.placed.v1"}
    assert tags_of(["hold"]) > {"hold.placed.v1", "hold.released.v1"}
    assert not any(tag.startswith("worker") for tag in tags_of(["hold"]))
    with pytest.raises(BadInput, match=r"'hol': there is none; want one of drain.acted.v1"):
        tags_of(["hol"])


@pytest.mark.parametrize(
    ("kinds", "cluster", "worker", "subject"),
    [
        ([], None, None, "lockstep.event.*.*.*.>"),
        (["hold.placed"], None, None, "lockstep.event.hold.placed.v1.>"),
        (["hold"], "main", None, "lockstep.event.*.*.*.main.*"),
        ([], None, "gpu-7", "lockstep.event.*.*.*.*.gpu-7"),
        ([], None, "main/gpu.7", "lockstep.event.*.*.*.main.gpu_2e7"),
        ([], "main", "gpu-7", "lockstep.event.*.*.*.main.gpu-7"),
    ],
)
def test_the_server_filters_what_it_can(
    kinds: list[str], cluster: str | None, worker: str | None, subject: str
) -> None:
    """Only what was asked for is sent over the wire."""
    assert subject_of(tags_of(kinds), cluster, worker) == subject


def seen(event: e.Event | Unknown) -> EventSeen:
    """An event as it comes from the stream."""
    return EventSeen(event, "lockstep.event.x", b"{}", "", 1, NOW)


def test_an_event_is_a_line_for_people_or_json_for_scripts() -> None:
    """The same event in both forms."""
    assert text_of(seen(PLACED), frozenset(), "text") == (
        "2026-12-01 12:00:00Z main/gpu-7 held: hold/slurm/dimm of ops@example.com: DIMM B2"
    )
    assert json.loads(text_of(seen(PLACED), frozenset(), "json"))["type"] == "hold.placed.v1"


def test_what_was_not_asked_for_is_left_out() -> None:
    """Several kinds are told apart here, for a subject has only one."""
    assert text_of(seen(PLACED), tags_of(["worker"]), "text") == ""


def test_an_event_of_a_newer_version_is_shown_as_such() -> None:
    """It is told, not hidden, and not taken for something else."""
    newer = seen(Unknown("gpu.healed.v1", "a newer kind"))

    assert "gpu.healed.v1 cannot be read: a newer kind" in text_of(newer, frozenset(), "text")
    assert json.loads(text_of(newer, frozenset(), "json")) == {"type": "gpu.healed.v1", "unreadable": "a newer kind"}


FIELDS: dict[str, Any] = {
    "worker": REF,
    "hold": a_view(),
    "before": "IDLE",
    "after": "IDLE+DRAIN",
    "node": "host-7",
    "cluster": "main",
    "name": "dimm",
    "fault": "spec.reason: is empty",
    "words": "lockstep: ops: DIMM",
    "holds": ["cordon/host-7"],
    "by": "eve",
    "act": "requeue",
    "jobs": [42],
    "protected": True,
    "write": "drain",
    "error": "refused\x1b[2J\nreally",
    "source": "kube",
    "of": "main",
    "where": "bus",
    "rule": "offered-while-held",
    "slurmd_start": NOW,
    "uid": "p-1",
    "condition": "DiskPressure",
    "added": [Taint(key="example.com/repair\x1b[2J")],
    "removed": [Taint(key="example.com/old")],
    "reservation": "weekly",
    "job_id": 42,
    "stream": "LOCKSTEP_EVENTS",
    "used_bytes": 81,
    "limit_bytes": 100,
    "request": "r-1",
    "verb": "hold",
    "outcome": "drained",
}


@pytest.mark.parametrize("kind", e.EVENT_TYPES, ids=tag_of)
def test_every_kind_of_event_has_words_of_its_own(kind: type[e.Event]) -> None:
    """None is shown by its type's name, and none can play with the terminal."""
    values = FIELDS | ({"before": Progress.NONE, "after": Progress.DRAINING} if issubclass(kind, e.DrainEvent) else {})
    event = kind(id="1", at=NOW, **{k: v for k, v in values.items() if k in kind.__struct_fields__})

    line = happened.line(event)

    assert kind.__name__ not in line
    assert line.isprintable()
    assert line.startswith("2026-12-01 12:00:00Z ")
