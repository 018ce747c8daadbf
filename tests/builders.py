"""Facts and workers for tests: a healthy, idle, protected worker, and keywords for what differs.

Everything was read long enough ago that it counts as read twice, and every source is alive at `NOW`.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from lockstep.contracts.facts import (
    SITE,
    Desired,
    Fact,
    HoldView,
    KubeHold,
    KubeNode,
    KubePod,
    SlurmJob,
    SlurmNode,
    SlurmReservation,
    SourceHealth,
    Wrote,
)
from lockstep.contracts.hold import HoldClass, HoldSpec, WorkerSelector
from lockstep.contracts.policy import Policy
from lockstep.fleet.facts import FactTable
from lockstep.fleet.holds import words
from lockstep.fleet.worker import Worker
from lockstep.slurm import states

NOW = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)
POLICY = Policy()
CLUSTER, NAME, HOST = "main", "gpu-7", "host-7"
NAMESPACE, POD = "slurm", "gpu-7"
KEY = (CLUSTER, NAME)
OURS = "lockstep: ops@example.com: DIMM B2"
"""The words of `a_hold()`."""


def ago(seconds: float) -> datetime:
    """So many seconds before `NOW`; negative is after."""
    return NOW - timedelta(seconds=seconds)


def a_slurm_node(state: str = "IDLE", **fields: Any) -> SlurmNode:
    """A Slurm node; `state` as Slurm's tools write it: `MIXED+DRAIN`."""
    base, flags = states.split(state)
    known: dict[str, Any] = {"read_at": ago(10), "slurmd_start": ago(3600), "partitions": ["gpu"]}
    return SlurmNode(**({"cluster": CLUSTER, "name": NAME, "base": base, "flags": flags} | known | fields))


def a_pod(**fields: Any) -> KubePod:
    """A worker's pod: running, ready, protected."""
    known: dict[str, Any] = {"uid": "pod-1", "node": HOST, "phase": "Running", "ready": True, "protected": True}
    known |= {"started_at": ago(3601), "ready_since": ago(3590), "cluster": CLUSTER, "worker": NAME}
    return KubePod(**({"namespace": NAMESPACE, "name": POD} | known | fields))


def a_node(**fields: Any) -> KubeNode:
    """A Kubernetes node: ready and schedulable."""
    return KubeNode(**({"name": HOST, "uid": "node-1", "boot_id": "boot-1", "ready": True} | fields))


def a_hold(name: str = "dimm", **fields: Any) -> KubeHold:
    """A Hold of ops@example.com on the worker; keywords of the spec (`reason`, `drain`, …) go into the spec."""
    spec: dict[str, Any] = {"workers": WorkerSelector(names=[NAME]), "reason": "DIMM B2"}
    spec |= {key: fields.pop(key) for key in list(fields) if key in HoldSpec.__struct_fields__}
    known: dict[str, Any] = {"uid": f"hold-{name}", "owner": "ops@example.com", "created_at": ago(60)}
    known |= {"cluster": CLUSTER, "namespace": NAMESPACE, "spec": HoldSpec(**spec), "generation": 1}
    return KubeHold(**({"name": name} | known | fields))


def a_view(name: str = "dimm", **fields: Any) -> HoldView:
    """A standing hold, as `standing` tells of `a_hold()`."""
    known: dict[str, Any] = {"hold_class": HoldClass.MANUAL, "owner": "ops@example.com", "reason": "DIMM B2"}
    return HoldView(**({"id": f"hold/{NAMESPACE}/{name}", "since": ago(60)} | known | fields))


def a_job(job_id: int = 42, **fields: Any) -> SlurmJob:
    """A running job of u1017 on the worker."""
    known: dict[str, Any] = {"states": ["RUNNING"], "user": "u1017", "partition": "gpu", "nodes": [NAME]}
    known |= {"start": ago(600), "end": ago(-600), "can_requeue": True}
    return SlurmJob(**({"cluster": CLUSTER, "job_id": job_id} | known | fields))


def a_reservation(**fields: Any) -> SlurmReservation:
    """A maintenance reservation that runs."""
    known: dict[str, Any] = {"nodes": [NAME], "start": ago(60), "end": ago(-3600), "maintenance": True}
    return SlurmReservation(**({"cluster": CLUSTER, "name": "maint"} | known | fields))


def a_desired(*holds: HoldView, **fields: Any) -> Desired:
    """What the drain service wants while these holds stand."""
    known: dict[str, Any] = {"in_service": not holds, "holds": list(holds), "words": words(holds), "revision": "1"}
    known |= {"episode": 1 if holds else 0, "kube_node": HOST, "had_pod": True}
    return Desired(**({"cluster": CLUSTER, "name": NAME} | known | fields))


def wrote_drain(**fields: Any) -> Wrote:
    """Our DRAIN for the first holds was answered, and read since."""
    known: dict[str, Any] = {"words": OURS, "drained_at": ago(20), "episode": 1}
    return Wrote(**({"cluster": CLUSTER, "name": NAME} | known | fields))


def wrote_undrain(**fields: Any) -> Wrote:
    """Our UNDRAIN was answered, and read since."""
    return Wrote(**({"cluster": CLUSTER, "name": NAME, "undrained_at": ago(20)} | fields))


def a_worker(**fields: Any) -> Worker:
    """A worker as both systems see it; `state=` stands for a Slurm node, with our reason where it is drained."""
    if "state" in fields:
        state = fields.pop("state")
        fields["slurm"] = a_slurm_node(state, reason=fields.pop("reason", OURS if "DRAIN" in state else ""))
    known: dict[str, Any] = {"slurm": a_slurm_node(), "pod": a_pod(), "node": a_node(), "node_name": HOST}
    known |= {"slurm_as_of": ago(1), "jobs_as_of": ago(1), "kube_as_of": ago(1)}
    return Worker(**({"cluster": CLUSTER, "name": NAME} | known | fields))


def a_drained_worker(**fields: Any) -> Worker:
    """A worker that a Hold keeps out, proven drained."""
    known: dict[str, Any] = {"state": "IDLE+DRAIN", "holds": [a_hold()], "desired": a_desired(a_view())}
    if "slurm" in fields:
        del known["state"]
    return a_worker(**(known | {"wrote": wrote_drain()} | fields))


def heartbeats(
    *, slurm: datetime | None = None, jobs: datetime | None = None, kube: datetime | None = None
) -> list[Fact]:
    """The heartbeat of every source, a second before `NOW` unless said otherwise."""
    return [
        SourceHealth(source="slurm.node", of=CLUSTER, complete_as_of=slurm or ago(1)),
        SourceHealth(source="slurm.job", of=CLUSTER, complete_as_of=jobs or ago(1)),
        SourceHealth(source="kube", of=SITE, complete_as_of=kube or ago(1)),
    ]


def a_table(*facts: Fact, beats: Sequence[Fact] | None = None) -> FactTable:
    """A table of these facts, with live sources."""
    table = FactTable()
    for fact in [*facts, *(heartbeats() if beats is None else beats)]:
        table.apply(fact)
    return table
