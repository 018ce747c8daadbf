"""`lockstep events`: from when, which, and in what words."""

import json
from datetime import timedelta
from typing import Any

import pytest

from lockstep.base.errors import BadInput
from lockstep.bus.envelope import Unknown
from lockstep.cli.events import start_of, text_of, wanted_of
from lockstep.contracts import events as e
from lockstep.contracts.common import WorkerRef
from lockstep.contracts.facts import Progress, Taint
from lockstep.contracts.subjects import tag_of
from lockstep.fleet import happened
from tests.builders import NOW, a_view
from tests.unit.cli.life import seen
from tests.unit.cli.seen import args

REF = WorkerRef(cluster="main", name="gpu-7")
PLACED = e.HoldPlaced(id="1", at=NOW, worker=REF, hold=a_view())


def test_without_follow_the_last_hour_is_shown_and_with_it_only_news() -> None:
    """`--since` says otherwise; the last hour is that before `--until`."""
    hour = timedelta(hours=1)
    assert start_of(None, None, NOW, follow=False).at == NOW - hour
    assert start_of(None, NOW - hour, NOW, follow=False).at == NOW - 2 * hour
    assert start_of(None, None, NOW, follow=True).new
    assert start_of(NOW - hour, None, NOW, follow=True).at == NOW - hour


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--kind", "hol"], "--kind 'hol': there is none; want one of drain.acted.v1"),
        (["--worker", "gpu-[1-"], "--worker 'gpu-\\[1-'"),
        (["--worker", ""], "--worker '': want a name, or a host list"),
        (["--node", ""], "--node '': want a name"),
        (["--hold", ""], "--hold '': want a name"),
        (["--block", ""], "--block '': want a name"),
    ],
)
def test_an_option_that_means_nothing_is_named(words: list[str], says: str) -> None:
    """With what is allowed."""
    with pytest.raises(BadInput, match=says):
        wanted_of(args("events", *words))


def test_an_event_is_a_line_for_people_or_json_for_scripts() -> None:
    """The same event in both forms."""
    assert text_of(seen(PLACED), "text") == (
        "2026-12-01 12:00:00Z main/gpu-7 held: hold/slurm/dimm of ops@example.com: DIMM B2"
    )
    assert json.loads(text_of(seen(PLACED), "json"))["type"] == "hold.placed.v1"


def test_an_event_of_a_newer_version_is_shown_as_such() -> None:
    """It is told, not hidden, and not taken for something else."""
    newer = seen(Unknown("gpu.healed.v1", "a newer kind"))

    assert "gpu.healed.v1 cannot be read: a newer kind" in text_of(newer, "text")
    assert json.loads(text_of(newer, "json")) == {"type": "gpu.healed.v1", "unreadable": "a newer kind"}


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
