"""What a watching service logs of what it saw."""

import structlog
from structlog.testing import capture_logs

from lockstep.contracts.common import WorkerRef
from lockstep.contracts.events import (
    GapFound,
    NodeCordoned,
    SlurmNodeRegistered,
    SlurmStateChanged,
    SourceLost,
)
from lockstep.runtime.changes import log_changes
from lockstep.runtime.telemetry import KEYS
from tests.builders import NOW


def test_each_thing_has_one_line_with_all_that_happened_to_it() -> None:
    """A worker whose state and slurmd changed at once is one line; an outage is told elsewhere."""
    one, two = WorkerRef(cluster="main", name="gpu-1"), WorkerRef(cluster="main", name="gpu-2")
    events = [
        SlurmStateChanged(id="1", at=NOW, worker=one, before="IDLE", after="IDLE+DRAIN"),
        SlurmStateChanged(id="2", at=NOW, worker=two, before="DOWN", after="IDLE"),
        SlurmNodeRegistered(id="3", at=NOW, worker=two, slurmd_start=NOW),
        NodeCordoned(id="4", at=NOW, node="host-1"),
        SourceLost(id="5", at=NOW, source="kube", of="_site", error="no route"),
        GapFound(id="6", at=NOW, where="LOCKSTEP_FACTS"),
    ]
    with capture_logs() as lines:
        log_changes(structlog.get_logger(), events)

    said = {"event": "Changed", "log_level": "info"}
    assert lines == [
        said | {"worker": "main/gpu-1", "happened": ["slurm-node.state-changed.v1"]},
        said | {"worker": "main/gpu-2", "happened": ["slurm-node.state-changed.v1", "slurm-node.registered.v1"]},
        said | {"node": "host-1", "happened": ["node.cordoned.v1"]},
        said | {"name": "_site/LOCKSTEP_FACTS", "happened": ["fleet.gap-found.v1"]},
    ]
    assert all(line.keys() - {"log_level"} <= KEYS for line in lines)
