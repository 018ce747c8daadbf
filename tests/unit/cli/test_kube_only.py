"""The fleet as Kubernetes alone shows it."""

from typing import Any

import msgspec
import pytest

from lockstep.cli.kube_only import fleet_from_kube, words_of
from lockstep.cli.view import Fleet, worker_view
from lockstep.contracts.facts import Progress
from lockstep.kube.resources import HOLDS, NODES, PODS
from lockstep.kube.wire import Hold, Pod
from lockstep.runtime.settings import Settings
from lockstep.slurm import states


def a_wire_pod(*shown: str, reason: str = "", cluster: str = "main") -> Pod:
    """A worker's pod with these conditions of Slurm's."""
    said = [{"type": f"SlurmNodeState{word}", "status": "True", "message": reason} for word in shown]
    labels = {"app.kubernetes.io/name": "slurmd", "slinky.slurm.net/cluster": cluster}
    pod: Pod = decoded(
        PODS,
        metadata={"name": "gpu-7", "namespace": "slurm", "uid": "p", "labels": labels},
        spec={"nodeName": "host-7", "hostname": "gpu-7"},
        status={"conditions": [{"type": "Ready", "status": "True"}, *said]},
    )
    return pod


def a_wire_hold(**status: Any) -> Hold:
    """A Hold on gpu-7."""
    hold: Hold = decoded(
        HOLDS,
        metadata={"name": "dimm", "namespace": "slurm", "annotations": {"lockstep.sh/owner": "eve"}},
        spec={"workers": {"names": ["gpu-7"]}, "reason": "DIMM"},
        status=status,
    )
    return hold


def decoded(resource: Any, **fields: Any) -> Any:
    """An object as the API server sends it."""
    return resource.one(msgspec.json.encode(fields))


def seen(*pods: Pod, holds: list[Hold] | None = None, **node: Any) -> Fleet:
    """The fleet of these objects, without any settings."""
    host = decoded(NODES, metadata={"name": "host-7"}, spec=node)
    return fleet_from_kube(Settings(clusters=[]), [host], [("main", p) for p in pods], holds or [])


def test_clusters_are_found_by_their_pods() -> None:
    """No settings are needed to look."""
    fleet = seen(a_wire_pod("Idle"))

    assert [(c.name, c.namespace) for c in fleet.clusters] == [("main", "slurm")]


def test_slurms_state_is_read_from_the_pods_conditions() -> None:
    """State and reason, as the conditions say them."""
    (worker,) = seen(a_wire_pod("Idle", "Drain", reason="bad fan")).workers(["main"])

    assert worker.slurm is not None
    assert (states.text(worker.slurm.base, worker.slurm.flags), worker.slurm.reason) == ("IDLE+DRAIN", "bad fan")


def test_a_pod_without_conditions_is_no_idle_worker() -> None:
    """What nobody wrote is unknown."""
    fleet = seen(a_wire_pod())
    (view,) = (worker_view(w, fleet) for w in fleet.workers(["main"]))

    assert view.phase == "unknown"


def test_cordons_and_holds_are_seen_and_nothing_is_proven_drained() -> None:
    """Kubernetes alone can tell who holds; only Slurm itself can prove that a worker is drained."""
    waiting = {"phase": "Draining", "waitingFor": [{"worker": "gpu-7", "jobs": [{"id": 42, "user": "u1"}]}]}
    fleet = seen(
        a_wire_pod("Idle", "Drain", reason="lockstep: eve: DIMM"), holds=[a_wire_hold(**waiting)], unschedulable=True
    )
    (view,) = (worker_view(w, fleet) for w in fleet.workers(["main"]))

    assert [h.id for h in view.holds] == ["hold/slurm/dimm", "cordon/host-7"]
    assert view.progress is Progress.DRAINING
    assert view.why_not == "Slurm's nodes cannot be read"
    assert [job.id for job in view.waiting_for] == [42]


@pytest.mark.parametrize("word", sorted({*states.BASES, *states.FLAGS}))
def test_every_word_of_slurm_survives_the_way_through_a_condition(word: str) -> None:
    """`NotResponding` is NOT_RESPONDING again."""
    camel = "".join(part.capitalize() for part in word.split("_"))

    assert words_of(camel) == word
