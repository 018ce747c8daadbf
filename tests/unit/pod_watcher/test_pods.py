"""A worker's pod as a fact: what the worker is called, what the pod shows, and its way from pending to gone."""

from typing import Any

import pytest

from lockstep.contracts.events import PodEvent
from lockstep.kube import keys
from lockstep.pod_watcher.decide import news, pod_state
from tests.unit.pod_watcher.as_read import AT, a_bound_pod, a_pod


@pytest.mark.parametrize(
    ("spec", "labels", "worker"),
    [
        pytest.param({"nodeName": "host-3"}, {}, "slurmd-0", id="the pod's name"),
        pytest.param({"nodeName": "host-3", "hostname": "gpu-7"}, {}, "gpu-7", id="its host name"),
        pytest.param({"nodeName": "host-3", "hostname": "x", "hostNetwork": True}, {}, "host-3", id="its node"),
        pytest.param({"hostname": "x"}, {keys.SLURM_NODE_NAME: "gpu-8"}, "gpu-8", id="its label"),
        pytest.param(
            {"hostNetwork": True}, {keys.SLURM_NODE_NAME: "gpu-8"}, "gpu-8", id="its label, before it is bound"
        ),
    ],
)
def test_a_worker_is_called_as_slurmd_calls_itself(spec: Any, labels: dict[str, str], worker: str) -> None:
    """The label wins, then the host's name with hostNetwork, then the pod's host name, then its name."""
    pod = a_pod(spec=spec, labels=labels)

    assert pod is not None
    assert pod.worker == worker


def test_a_pod_whose_worker_is_not_known_yet_is_no_fact() -> None:
    """With hostNetwork slurmd is called as the node, and there is none yet: a made-up worker would be a ghost."""
    assert a_pod(spec={"hostNetwork": True}) is None


@pytest.mark.parametrize("value", ["True", "yes", "1", "", " true"])
def test_only_the_word_true_switches_an_annotation_on(value: str) -> None:
    """Slinky reads `pod-cordon` exactly so."""
    pod = a_bound_pod(annotations={keys.POD_CORDON: value}, labels={keys.POD_PROTECT: value})

    assert not pod.pod_cordon
    assert not pod.protected
    assert a_bound_pod(annotations={keys.POD_CORDON: "true"}).pod_cordon


@pytest.mark.parametrize(
    ("containers", "started"),
    [
        pytest.param({}, 0, id="no container yet: the pod's own start"),
        pytest.param({"slurmd": 5, "logfile": 9}, 5, id="slurmd's container, not its neighbour"),
        pytest.param({"worker": 7, "logfile": 2}, 7, id="another name: the newest"),
        pytest.param({"slurmd": None, "logfile": 9}, 9, id="slurmd waits to be started again"),
    ],
)
def test_a_container_that_was_started_again_is_a_new_start(containers: dict[str, int | None], started: int) -> None:
    """The kubelet restarts slurmd in place: the worker must register anew before it comes back into service."""
    running = {n: {"running": {"startedAt": f"2026-12-01T12:00:{s:02}Z"}} if s else {} for n, s in containers.items()}
    statuses = [{"name": name, "state": state} for name, state in running.items()]
    pod = a_pod(status={"startTime": "2026-12-01T12:00:00Z", "containerStatuses": statuses})

    assert pod is not None
    assert pod.started_at is not None
    assert pod.started_at.second == started


def test_two_pods_may_claim_one_worker() -> None:
    """Both are facts, so that pairing can show the quarrel."""
    one, two = a_pod(name="a", spec={"hostname": "gpu-7"}), a_pod(name="b", spec={"hostname": "gpu-7"})

    assert one is not None
    assert two is not None
    assert (one.worker, one.identity) != (two.worker, two.identity)
    assert one.worker == two.worker


def test_a_pod_is_followed_from_pending_to_gone() -> None:
    """Each step is told once, with its worker."""
    steps = [
        a_pod(),
        a_bound_pod(resourceVersion="8"),
        a_bound_pod(ready=True, resourceVersion="9"),
        a_bound_pod(ready=True, resourceVersion="10", deletionTimestamp="2026-07-01T12:00:00Z"),
        None,
    ]
    events = [e for a, b in zip([None, *steps], steps, strict=False) for e in news(a, b, AT).events]

    assert all(isinstance(event, PodEvent) for event in events)
    assert [getattr(event, "after", "") for event in events] == ["pending", "bound", "ready", "terminating", "gone"]
    assert len({event.id for event in events}) == 5


def test_a_pod_under_the_same_name_is_another_pod() -> None:
    """The old one is gone, the new one has come; one fact stands."""
    told = news(a_bound_pod(ready=True), a_bound_pod(uid="p-2"), AT)

    assert [(getattr(e, "uid", ""), getattr(e, "after", "")) for e in told.events] == [
        ("p-1", "gone"),
        ("p-2", "bound"),
    ]
    assert [getattr(fact, "uid", "") for fact in told.facts] == ["p-2"]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_ended_is_not_ready(phase: str) -> None:
    """An evicted pod keeps its object; it is no running worker."""
    pod = a_pod(spec={"nodeName": "host-3"}, status={"phase": phase})

    assert pod_state(pod) == phase.lower()
