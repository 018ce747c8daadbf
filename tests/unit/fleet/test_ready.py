"""The way up: a DRAIN of ours is lifted only when machine, pod and slurmd are there anew."""

from typing import Any

import pytest

from lockstep.fleet.ready import why_not_ready
from tests.builders import NOW, POLICY, a_node, a_pod, a_slurm_node, a_worker, ago

DRAINED = "IDLE+DRAIN"


@pytest.mark.parametrize(
    ("differs", "why_not"),
    [
        pytest.param({}, "", id="ready"),
        pytest.param({"state": "MIXED+DRAIN"}, "", id="jobs may still run"),
        pytest.param({"kube_as_of": None}, "Kubernetes cannot be read", id="Kubernetes never read"),
        pytest.param({"kube_as_of": ago(6)}, "Kubernetes cannot be read", id="Kubernetes stale"),
        pytest.param({"slurm_as_of": ago(6)}, "Slurm's nodes cannot be read", id="Slurm stale"),
        pytest.param({"pod": None}, "no pod", id="no pod"),
        pytest.param({"pod": a_pod(ready=False)}, "not ready", id="pod not ready"),
        pytest.param({"pod": a_pod(started_at=None)}, "not ready", id="pod without a start"),
        pytest.param({"pod": a_pod(deleting_since=ago(1))}, "terminating", id="pod terminating"),
        pytest.param({"node": None}, "on no Kubernetes node", id="Node object gone under the pod"),
        pytest.param({"node": a_node(deleting_since=ago(1))}, "being deleted", id="Node being deleted"),
        pytest.param({"node": a_node(unschedulable=True, cordoned_by="kubectl")}, "cordoned", id="cordoned"),
        pytest.param({"node": a_node(unschedulable=True, cordoned_by="lockstep")}, "", id="our own mirror"),
        pytest.param({"slurm": None}, "does not know", id="no Slurm node"),
        pytest.param({"state": "DOWN+DRAIN"}, "DOWN", id="DOWN"),
        pytest.param({"state": "IDLE+DRAIN+NOT_RESPONDING"}, "respond", id="slurmd silent"),
        pytest.param({"state": "IDLE+DRAIN+INVALID_REG"}, "registered", id="registration refused"),
        pytest.param({"state": "UNKNOWN+DRAIN"}, "registered", id="slurmctld has not heard of it"),
        pytest.param({"state": "FUTURE+DRAIN"}, "registered", id="a record without a node"),
        pytest.param({"state": "IDLE+DRAIN+REBOOT_ISSUED"}, "up or down", id="rebooting"),
        pytest.param({"state": "IDLE+DRAIN+POWERING_DOWN"}, "up or down", id="powering down"),
        pytest.param({"state": "IDLE+DRAIN+POWERED_DOWN"}, "up or down", id="off"),
        pytest.param({"slurm": a_slurm_node(DRAINED, slurmd_start=None)}, "has not registered", id="never registered"),
        pytest.param(
            {"pod": a_pod(started_at=ago(60))}, "has not registered", id="Slurm shows the slurmd of the last pod"
        ),
        pytest.param({"pod": a_pod(started_at=ago(3597))}, "", id="clocks a little apart"),
        pytest.param({"pod": None, "hybrid": True}, "", id="no pod where none is needed"),
        pytest.param({"pod": None, "hybrid": True, "node": None}, "gone", id="host's Kubernetes node is gone"),
        pytest.param({"pod": None, "hybrid": True, "node": None, "node_name": ""}, "", id="a host not in Kubernetes"),
    ],
)
def test_each_thing_that_is_missing_keeps_the_worker_out(differs: dict[str, Any], why_not: str) -> None:
    """Ready only with everything; otherwise it says what is waited for."""
    found = why_not_ready(
        a_worker(**({"state": DRAINED} | differs if "slurm" not in differs else differs)), POLICY, NOW
    )
    assert why_not in found
    assert bool(found) == bool(why_not)
