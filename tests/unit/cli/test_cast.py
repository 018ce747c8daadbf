"""Whose events belong to a worker's story."""

import pytest

from lockstep.bus.envelope import Unknown
from lockstep.bus.events import EventSeen
from lockstep.cli.cast import MAX_BESIDE, Cast
from lockstep.contracts import events as e
from lockstep.contracts.common import WorkerRef
from lockstep.contracts.facts import Progress
from lockstep.contracts.hold import JobBrief
from tests.builders import NOW, a_view
from tests.unit.cli.life import CORDON, JOB, KEY, REF, a_life, at, seen


def a_cast(*events: e.Event) -> Cast:
    """A cast that has learned of these."""
    cast = Cast(KEY)
    for event in events:
        cast.learn(event)
    return cast


def on(node: str, ident: str = "x") -> e.Event:
    """The worker's pod on a node."""
    ref = WorkerRef(cluster="main", name="gpu-7", kube_node=node)
    return e.PodReady(id=ident, at=NOW, worker=ref, before="bound", after="ready", uid="u")


def rebooted(node: str) -> EventSeen:
    """A node's event that names no workers."""
    return seen(e.NodeRebooted(id=node, at=NOW, node=node, before="a", after="b"))


def test_it_is_read_of_the_worker_its_node_its_sources_requests_and_jobs() -> None:
    """And of nothing else: the rest of the fleet is not sent over the wire."""
    assert a_cast(*a_life()).subjects() == [
        "lockstep.event.*.*.*.main.gpu-7",
        "lockstep.event.fleet.*.*._site.*",
        "lockstep.event.source.*.*._site.kube",
        "lockstep.event.source.*.*.main.slurm_2enode",
        "lockstep.event.source.*.*.main.slurm_2ejob",
        "lockstep.event.node.*.*._site.host-7",
        "lockstep.event.request.*.*.main.req-77",
        "lockstep.event.job.*.*.main.4242",
    ]


@pytest.mark.parametrize("name", ["4242", "req-77"])
def test_no_subject_overlaps_another(name: str) -> None:
    """NATS refuses a reader with two subjects of which one holds the other: a worker may be called like a job."""
    ref = WorkerRef(cluster="main", name=name)
    cast = Cast(ref.key)
    cast.learn(e.HoldPlaced(id="1", at=NOW, worker=ref, hold=a_view(), cause_id="req-77"))
    waits = {"before": Progress.NONE, "after": Progress.WAITING, "waiting_for": [JOB]}
    cast.learn(e.DrainStarted(id="2", at=NOW, worker=ref, **waits))  # type: ignore[arg-type]

    beside = [subject for subject in cast.subjects() if subject.endswith(f".main.{name}")]

    assert beside == [cast.own]


def test_every_event_of_the_life_belongs_to_it() -> None:
    """Those of node, sources, request and job too."""
    cast = a_cast(*a_life())

    assert [event.id for event in a_life() if not cast.has(seen(event))] == []


def test_others_events_do_not_belong_to_it() -> None:
    """Of another worker, another cluster, a job or request that nobody here waited for."""
    cast = a_cast(*a_life())
    other = WorkerRef(cluster="main", name="gpu-8")
    found = [
        e.HoldPlaced(id="1", **at(0), worker=other, hold=CORDON),
        e.SourceLost(id="2", **at(0), source="slurm.node", of="spare", error="x"),
        e.JobEnded(id="3", **at(0), cluster="main", job_id=1, nodes=["gpu-8"]),
        e.RequestRefused(id="4", **at(0), cluster="main", request="other", verb="hold", by="eve", fault="no"),
        e.HoldRefused(id="5", **at(0), cluster="main", name="gpu-7", fault="no"),
        e.StreamFilling(id="6", **at(0), stream="LOCKSTEP_EVENTS", used_bytes=1, limit_bytes=2),
    ]

    assert [event.id for event in found if cast.has(seen(event))] == []


def test_a_node_plays_a_part_while_the_worker_is_on_it() -> None:
    """After the worker has moved, what happens to its old node is another's story."""
    cast = a_cast(on("host-1"), on("host-2"))

    assert cast.has(rebooted("host-1"))
    cast.has(seen(on("host-1")))
    assert cast.has(rebooted("host-1"))
    assert not cast.has(rebooted("host-2"))
    cast.has(seen(on("host-2")))
    assert cast.has(rebooted("host-2"))
    assert not cast.has(rebooted("host-1"))


def test_a_node_that_names_the_worker_is_believed() -> None:
    """The watcher knows best who was on it."""
    event = e.NodeCordoned(id="1", at=NOW, node="host-9", workers=[REF])

    assert Cast(KEY).has(seen(event))


def test_a_gap_is_in_every_story() -> None:
    """Something of this worker may be what was lost."""
    assert Cast(KEY).has(seen(e.GapFound(id="1", **at(0), where="bus")))


def test_who_is_new_is_said_once() -> None:
    """So that it is read of from then on."""
    cast = Cast(KEY)

    assert cast.learn(on("host-1"))
    assert not cast.learn(on("host-1"))
    assert not cast.learn(Unknown("x", "newer"))


def test_the_cast_is_bounded() -> None:
    """A worker that waited for thousands of jobs is told with the newest."""
    cast = Cast(KEY)
    for number in range(MAX_BESIDE * 3):
        jobs = [JobBrief(id=number, user="u", partition="p", state="RUNNING")]
        cast.learn(
            e.DrainWaiting(
                id="1", at=NOW, worker=REF, before=Progress.WAITING, after=Progress.DRAINING, waiting_for=jobs
            )
        )

    subjects = cast.subjects()
    assert len(subjects) <= MAX_BESIDE + 8
    assert f"lockstep.event.job.*.*.main.{MAX_BESIDE * 3 - 1}" in subjects


def test_an_event_of_a_newer_version_belongs_to_it_by_its_subject() -> None:
    """Its body cannot be read."""
    assert Cast(KEY).has(seen(Unknown("gpu.healed.v1", "a newer kind")))
