"""A worker's life as events: a cordon under a running job, a second hold meanwhile, a new pod, and the way back."""

from datetime import timedelta
from typing import Any

from lockstep.bus.envelope import Unknown
from lockstep.bus.events import EventSeen
from lockstep.cli.telling import Line, Teller
from lockstep.contracts import events as e
from lockstep.contracts.common import WorkerRef
from lockstep.contracts.facts import Progress
from lockstep.contracts.hold import HoldClass, JobBrief
from lockstep.contracts.subjects import event_subject
from tests.builders import HOST, NOW, a_view

KEY = ("main", "gpu-7")
REF = WorkerRef(cluster="main", name="gpu-7", kube_node=HOST)
CORDON = a_view(
    id=f"cordon/{HOST}", hold_class=HoldClass.CORDON, owner="kubectl-cordon", reason="Kubernetes node cordoned"
)
DIMM = a_view()
JOB = JobBrief(id=4242, user="u1017", partition="train", state="RUNNING")
WORDS = "lockstep: kubectl-cordon: Kubernetes node cordoned"


def at(seconds: float) -> dict[str, Any]:
    """The time of an event, so many seconds into the story."""
    return {"at": NOW + timedelta(seconds=seconds)}


def seen(event: e.Event | Unknown, sequence: int = 1, traceparent: str = "") -> EventSeen:
    """An event as it comes from the stream, which took it at once."""
    if isinstance(event, Unknown):
        return EventSeen(event, f"lockstep.event.{event.type}.main.gpu-7", b"{}", traceparent, sequence, NOW)
    return EventSeen(event, event_subject(event), b"{}", traceparent, sequence, event.at)


def told(*events: e.Event | Unknown) -> list[Line]:
    """The lines of these events, in the order of the stream."""
    teller = Teller()
    lines = [line for i, event in enumerate(events, 1) for line in teller.add(seen(event, i))]
    return lines + teller.flush()


def a_life() -> list[e.Event]:
    """All of it, in the order of the stream."""
    waits: dict[str, Any] = {"worker": REF, "waiting_for": [JOB]}
    return [
        e.NodeCordoned(id="cordoned", **at(0), node=HOST, by="alice", reason="firmware", workers=[REF]),
        e.HoldPlaced(id="held", **at(0.1), worker=REF, hold=CORDON, cause_id="cordoned"),
        e.DrainStarted(id="began", **at(0.1), before=Progress.NONE, after=Progress.WAITING, cause_id="held", **waits),
        e.DrainSet(id="set", **at(0.2), worker=REF, words=WORDS, cause_id="began"),
        e.SlurmStateChanged(
            id="state", **at(0.4), worker=REF, before="MIXED", after="MIXED+DRAIN", cause_id="set"
        ),
        e.SlurmPhaseChanged(id="phase", **at(0.4), worker=REF, before="busy", after="draining", cause_id="set"),
        e.SlurmReasonChanged(id="reason", **at(0.4), worker=REF, before="", after=WORDS, by="slurm", cause_id="set"),
        e.DrainWaiting(
            id="waits", **at(0.5), before=Progress.WAITING, after=Progress.DRAINING, cause_id="state", **waits
        ),
        e.SourceLost(id="lost", **at(1800), source="slurm.node", of="main", error="slurmrestd does not answer"),
        e.SourceBack(id="back", **at(1835), source="slurm.node", of="main", lost_for_s=35),
        e.RequestAccepted(
            id="accepted", **at(3600), cluster="main", request="req-77", verb="hold", by="ops", workers=1,
            hold="slurm/dimm", cause_id="req-77",
        ),
        e.HoldPlaced(id="held2", **at(3600.2), worker=REF, hold=DIMM, cause_id="req-77"),
        e.JobEnded(id="job", **at(7980), cluster="main", job_id=4242, user="u1017", nodes=["gpu-7"], node_count=1),
        e.SlurmStateChanged(id="state2", **at(7980.2), worker=REF, before="MIXED+DRAIN", after="IDLE+DRAIN"),
        e.SlurmPhaseChanged(id="phase2", **at(7980.2), worker=REF, before="draining", after="drained"),
        e.DrainDone(
            id="done", **at(7980.8), worker=REF, before=Progress.DRAINING, after=Progress.DRAINED, cause_id="state2"
        ),
        e.ProtectionOff(id="off", **at(7980.9), worker=REF, why="drained", cause_id="done"),
        e.PodTerminating(id="leaving", **at(8100), worker=REF, before="ready", after="terminating", uid="pod-1"),
        e.PodGone(id="gone", **at(8102), worker=REF, before="terminating", after="gone", uid="pod-1"),
        e.NodeRebooted(id="rebooted", **at(8700), node=HOST, before="a", after="b", workers=[REF]),
        e.PodReady(id="ready", **at(8760), worker=REF, before="bound", after="ready", uid="pod-2"),
        e.NodeUncordoned(id="uncordoned", **at(10800), node=HOST, workers=[REF]),
        e.HoldReleased(id="freed", **at(10800.1), worker=REF, hold=CORDON, standing=[DIMM.id], cause_id="uncordoned"),
        e.HoldReleased(id="freed2", **at(14400), worker=REF, hold=DIMM),
        e.DrainEnded(
            id="ended", **at(14400), worker=REF, before=Progress.DRAINED, after=Progress.NONE, cause_id="freed2"
        ),
        e.DrainLifted(id="lifted", **at(14400.2), worker=REF, words=WORDS, cause_id="ended"),
        e.SlurmPhaseChanged(id="phase3", **at(14400.5), worker=REF, before="drained", after="idle", cause_id="lifted"),
    ]  # fmt: skip
