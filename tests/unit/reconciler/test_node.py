"""The Kubernetes node: the mirror of a hold, the condition InService; and the pod's conditions."""

from typing import Any

import msgspec
import pytest

from lockstep.contracts.facts import KubeNode, NodeCondition
from lockstep.contracts.policy import MirrorCordon as Mirror
from lockstep.contracts.policy import Policy
from lockstep.fleet.worker import Worker
from lockstep.reconciler.decide import decide, decide_node
from lockstep.reconciler.model import LiftMirror, MirrorCordon, NodeAction, ShowService, ShowState
from tests.builders import (
    HOST,
    NOW,
    OURS,
    POLICY,
    a_desired,
    a_drained_worker,
    a_node,
    a_pod,
    a_slurm_node,
    a_view,
    a_worker,
    ago,
    wrote_undrain,
)

MIRRORING = Policy(mirror=Mirror.CORDON)
HELD = a_worker(desired=a_desired(a_view()))
FREE = a_worker(desired=a_desired())
OUR_CORDON: dict[str, Any] = {"unschedulable": True, "cordoned_by": "lockstep", "mirror_mark": True}
THEIR_CORDON: dict[str, Any] = {"unschedulable": True, "cordoned_by": "kubectl"}


def mirrored(node: KubeNode, *workers: Worker, policy: Policy = MIRRORING) -> list[NodeAction]:
    """What is done about the node's cordon."""
    found = decide_node(node, workers, policy, NOW, kube_as_of=ago(1))
    return [action for action in found if not isinstance(action, ShowService)]


def lift(*, cordoned: bool) -> LiftMirror:
    """Taking our mirror back."""
    return LiftMirror(node=HOST, uid="node-1", cordoned=cordoned, because="no hold stands")


SET = MirrorCordon(node=HOST, because="hold/slurm/dimm")


@pytest.mark.parametrize(
    ("node", "workers", "done"),
    [
        pytest.param({}, [HELD], [SET], id="a hold is mirrored"),
        pytest.param({}, [FREE], [], id="no hold, nothing to mirror"),
        pytest.param({}, [FREE, HELD], [SET], id="one of two workers is held"),
        pytest.param(OUR_CORDON, [HELD], [], id="mirrored already"),
        pytest.param({"mirror_mark": True}, [HELD], [], id="a user's uncordon of our mirror is respected"),
        pytest.param(THEIR_CORDON, [HELD], [], id="cordoned by a user"),
        pytest.param(THEIR_CORDON | {"mirror_mark": True}, [HELD], [], id="a user cordoned after lifting ours"),
        pytest.param(OUR_CORDON, [FREE], [lift(cordoned=True)], id="the last hold ended"),
        pytest.param(OUR_CORDON, [FREE, HELD], [], id="another worker's hold stands"),
        pytest.param({"mirror_mark": True}, [FREE], [lift(cordoned=False)], id="only the mark is left"),
        pytest.param(THEIR_CORDON | {"mirror_mark": True}, [FREE], [lift(cordoned=False)], id="the cordon is a user's"),
        pytest.param(THEIR_CORDON, [FREE], [], id="a user's cordon without our mark"),
        pytest.param(OUR_CORDON | {"mirror_mark": False}, [FREE], [lift(cordoned=True)], id="somebody took the mark"),
        pytest.param(OUR_CORDON, [FREE, a_worker()], [], id="nothing is decided for one of two"),
        pytest.param(OUR_CORDON, [], [lift(cordoned=True)], id="no worker is there any more"),
        pytest.param({}, [a_worker(desired=a_desired(a_view(id="cordon/host-7")))], [], id="a cordon mirrors itself"),
        pytest.param(
            {}, [a_worker(desired=a_desired(a_view(id="pod/slurm/gpu-7")))], [], id="a pod's end is no reason"
        ),
        pytest.param(
            {}, [a_worker(desired=a_desired(a_view(id="slurm/gpu-7", reason="slurm-operator: x")))], [], id="an echo"
        ),
        pytest.param({"deleting_since": ago(1)}, [HELD], [], id="the Node is being deleted"),
        pytest.param({}, [msgspec.structs.replace(HELD, kube_as_of=ago(16))], [], id="Kubernetes is silent"),
        pytest.param(OUR_CORDON, [msgspec.structs.replace(FREE, kube_as_of=ago(16))], [], id="silent: not lifted"),
    ],
)
def test_our_cordon_mirrors_holds_and_nothing_else_is_touched(
    node: dict[str, Any], workers: list[Worker], done: list[NodeAction]
) -> None:
    """Set once, never against somebody's uncordon, taken back with the last hold; a user's cordon is hers."""
    assert mirrored(a_node(**node), *workers) == done


def test_without_the_policy_nothing_is_cordoned_and_an_old_mirror_goes() -> None:
    """As after the setting was changed."""
    assert mirrored(a_node(), HELD, policy=POLICY) == []
    assert mirrored(a_node(**OUR_CORDON), HELD, policy=POLICY) == [lift(cordoned=True)]


def test_an_abandoned_mirror_waits_for_kubernetes_to_be_read() -> None:
    """A node without workers may only be one whose pods are not known yet."""
    assert decide_node(a_node(**OUR_CORDON), [], MIRRORING, NOW, kube_as_of=ago(16)) == []
    assert decide_node(a_node(**OUR_CORDON), [], MIRRORING, NOW) == []


def shown(*workers: Worker, in_service: NodeCondition | None = None) -> list[NodeCondition | None]:
    """The InService conditions that are written."""
    actions = decide_node(a_node(in_service=in_service), workers, POLICY, NOW)
    return [
        NodeCondition(type=a.condition.type, status=a.condition.status, message=a.condition.message)
        for a in actions
        if isinstance(a, ShowService)
    ]


def test_the_node_says_why_its_worker_is_out_of_service_in_slurms_words() -> None:
    """Owner and reason, the same in both systems; written once."""
    out = NodeCondition(type="lockstep.sh/InService", status="False", message=OURS)
    assert shown(HELD) == [out]
    assert shown(FREE) == [NodeCondition(type="lockstep.sh/InService", status="True")]
    assert shown(FREE, HELD) == [out]
    assert shown(HELD, in_service=msgspec.structs.replace(out, reason="Manual")) == []
    assert shown(a_worker()) == []


def conditions_of(worker: Worker, policy: Policy = POLICY) -> list[str] | None:
    """The types that are to be shown on the pod; None when nothing is written."""
    found = [a for a in decide(worker, policy, NOW) if isinstance(a, ShowState)]
    return [c.type.removeprefix("SlurmNodeState") for c in found[0].conditions] if found else None


def on_pod(*types: str, message: str = "") -> dict[str, Any]:
    """A pod that shows these conditions."""
    each = [NodeCondition(type=f"SlurmNodeState{t}", status="True", message=message) for t in types]
    return {"pod": a_pod(conditions=each)}


@pytest.mark.parametrize(
    ("differs", "written"),
    [
        pytest.param({}, ["Idle"], id="nothing shown yet"),
        pytest.param(on_pod("Idle"), None, id="shown already"),
        pytest.param(on_pod("Idle", "Drain"), ["Idle"], id="one too many"),
        pytest.param({"state": "MIXED+DRAIN"} | on_pod("Drain", "Mixed", message=OURS), None, id="with the reason"),
        pytest.param({"state": "MIXED+DRAIN"} | on_pod("Drain", "Mixed"), ["Drain", "Mixed"], id="another reason"),
        pytest.param({"state": "IDLE+ZAP"}, ["Idle", "Zap"], id="an unknown flag is shown"),
        pytest.param({"slurm": None} | on_pod("Idle"), [], id="Slurm forgot the node"),
        pytest.param({"slurm_as_of": ago(16)}, None, id="Slurm is silent: what is shown stays"),
        pytest.param({"pod": None}, None, id="no pod"),
        pytest.param({"pod": a_pod(deleting_since=ago(1))}, None, id="the pod is going"),
        pytest.param({"state": "IDLE+NOT_RESPONDING"}, ["Idle", "NotResponding"], id="slurmd is silent"),
        pytest.param(
            {"state": "IDLE+NOT_RESPONDING", "wrote": wrote_undrain(undrained_at=ago(2))},
            ["Idle"],
            id="Slurm's own moment after an UNDRAIN is no fault",
        ),
    ],
)
def test_the_pod_shows_the_state_of_its_slurm_node(differs: dict[str, Any], written: list[str] | None) -> None:
    """As slurm-operator names it; written only when it differs."""
    assert conditions_of(a_worker(**({"desired": a_desired()} | differs))) == written


def test_conditions_can_be_left_to_another() -> None:
    """Where slurm-operator writes them."""
    assert conditions_of(a_drained_worker(), Policy(conditions=False)) is None
    assert conditions_of(a_worker(slurm=a_slurm_node(), desired=a_desired()), Policy(conditions=False)) is None
