"""Kubernetes objects as we read them."""

import json
import time
from typing import Any

import msgspec
import pytest

from lockstep.contracts.hold import DrainPolicy, HoldPhase
from lockstep.kube import keys
from lockstep.kube.errors import Invalid
from lockstep.kube.resources import HOLDS, NODES, PODS, segment
from lockstep.kube.wire import Hold, Pdb, selects

META = {"name": "h", "namespace": "slurm", "uid": "u1", "resourceVersion": "7"}


def hold(spec: Any, **more: Any) -> Hold:
    """A Hold with this spec."""
    return HOLDS.one(json.dumps({"metadata": META, "spec": spec, **more}).encode())


def test_a_good_hold_is_read_whole() -> None:
    """All fields arrive, in our words."""
    got = hold(
        {
            "workers": {"names": ["gpu-7"]},
            "reason": "DIMM",
            "class": "maintenance",
            "drain": {"policy": "Requeue", "deadline": "2h"},
        },
        status={"phase": "Draining"},
    )
    assert got.fault == ""
    assert got.spec is not None
    assert (got.spec.hold_class, got.spec.drain.policy, got.spec.drain.deadline) == (
        "maintenance",
        DrainPolicy.REQUEUE,
        "2h",
    )
    assert got.status.phase is HoldPhase.DRAINING


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        pytest.param({"reason": "x"}, "spec: Object missing required field `workers`", id="no workers"),
        pytest.param({"workers": {}, "reason": "x"}, "spec.workers: want exactly one of", id="none chosen"),
        pytest.param(
            {"workers": {"names": ["a"], "hostlist": "b"}, "reason": "x"}, "got names, hostlist", id="two chosen"
        ),
        pytest.param({"workers": {"names": []}, "reason": "x"}, "spec.workers.names: is empty", id="empty"),
        pytest.param(
            {"workers": {"names": [7]}, "reason": "x"}, "spec.workers.names[0]: Expected `str`", id="not a name"
        ),
        pytest.param({"workers": {"names": ["a"]}, "reason": " "}, "spec.reason: want 1 to 200", id="no reason"),
        pytest.param(
            {"workers": {"names": ["a"]}, "reason": "x", "class": "fun"}, "spec.class: Invalid enum", id="class"
        ),
        pytest.param(
            {"workers": {"names": ["a"]}, "reason": "x", "drain": {"deadline": "soon"}},
            "spec.drain.deadline:",
            id="deadline",
        ),
        pytest.param(
            {"workers": {"names": ["a"]}, "reason": "x", "expiresAt": "2026-01-01T00:00:00"},
            "spec.expiresAt:",
            id="no zone",
        ),
        pytest.param(None, "spec: Expected `object`, got `null`", id="no spec"),
    ],
)
def test_a_bad_hold_says_which_field_is_wrong(spec: Any, fault: str) -> None:
    """It is still a Hold: its author can be told."""
    got = hold(spec)
    assert got.spec is None
    assert fault in got.fault


def test_a_bad_hold_does_not_hide_the_others() -> None:
    """One list, one bad item: the others are there."""
    bad = {"metadata": META | {"name": "bad"}, "spec": {"workers": 7}}
    good = {"metadata": META, "spec": {"workers": {"names": ["a"]}, "reason": "x"}}
    _, items, unread = HOLDS.page(json.dumps({"metadata": {}, "items": [bad, good]}).encode())
    assert [(h.metadata.name, bool(h.spec)) for h in items] == [("bad", False), ("h", True)]
    assert unread == 0


def test_an_unreadable_item_does_not_hide_the_others() -> None:
    """A pod that is no pod is counted and left out."""
    _, items, unread = PODS.page(json.dumps({"items": [{"metadata": {"name": 7}}, {"metadata": META}]}).encode())
    assert ([p.metadata.name for p in items], unread) == (["h"], 1)


def test_a_broken_status_of_a_hold_is_as_good_as_none() -> None:
    """It is ours to write anew."""
    got = hold({"workers": {"names": ["a"]}, "reason": "x"}, status={"phase": "Dancing"})
    assert got.status.phase is HoldPhase.PENDING
    assert got.spec is not None


def test_a_node_says_who_cordoned_it() -> None:
    """The manager of `spec.unschedulable`, and nobody else."""
    fields = [
        {
            "manager": "kubelet",
            "operation": "Update",
            "fieldsV1": {"f:status": {"f:conditions": {}}},
            "subresource": "status",
        },
        {"manager": "kubectl-cordon", "operation": "Update", "fieldsV1": {"f:spec": {"f:unschedulable": {}}}},
    ]
    node = {"metadata": {"name": "n", "managedFields": fields}, "spec": {"unschedulable": True}}
    assert NODES.one(json.dumps(node).encode()).cordoned_by == "kubectl-cordon"
    node["spec"] = {}
    assert NODES.one(json.dumps(node).encode()).cordoned_by == ""


def test_without_a_record_of_writers_our_mark_tells_our_cordon() -> None:
    """Else our own mirror would be taken for somebody's cordon, and hold the worker for ever."""
    marked = {"metadata": {"name": "n", "annotations": {keys.MIRRORED_CORDON: "true"}}, "spec": {"unschedulable": True}}
    bare = {"metadata": {"name": "n"}, "spec": {"unschedulable": True}}
    assert NODES.one(json.dumps(marked).encode()).cordoned_by == keys.FIELD_MANAGER
    assert NODES.one(json.dumps(bare).encode()).cordoned_by == ""


def test_a_heartbeat_does_not_change_a_node() -> None:
    """Only what we read is compared: lastHeartbeatTime is not."""

    def beat(at: str) -> bytes:
        ready = {
            "type": "Ready",
            "status": "True",
            "lastHeartbeatTime": at,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        return json.dumps(
            {"metadata": {"name": "n"}, "status": {"conditions": [ready], "nodeInfo": {"bootID": "b"}}}
        ).encode()

    one = NODES.one(beat("2026-01-01T00:00:00Z"))
    assert one == NODES.one(beat("2026-01-01T00:05:00Z"))
    assert (one.ready, one.status.node_info.boot_id) == (True, "b")


def test_the_owner_is_whom_the_api_server_named() -> None:
    """The admission policy's annotation first; a client's name when there is no policy."""
    spec = {"workers": {"names": ["a"]}, "reason": "x"}
    fields = [{"manager": "kubectl-create", "fieldsV1": {"f:spec": {}}}]
    named = HOLDS.one(json.dumps({"metadata": META | {"annotations": {keys.OWNER: "ana\n@x"}}, "spec": spec}).encode())
    unnamed = HOLDS.one(json.dumps({"metadata": META | {"managedFields": fields}, "spec": spec}).encode())
    assert (named.owner, unnamed.owner) == ("ana @x", "kubectl-create")


def test_a_selector_is_equal_when_it_asks_for_the_same() -> None:
    """Labels and `In` with one value are one thing; an empty selector is everything and equals nothing of ours."""
    labels = keys.protected("main")
    exprs = [{"key": k, "operator": "In", "values": [v]} for k, v in labels.items()]
    same = {"metadata": META, "spec": {"selector": {"matchExpressions": exprs}}}
    every = {"metadata": META, "spec": {"selector": {}}}
    assert selects(msgspec.convert(same, Pdb).spec.selector, labels)
    assert not selects(msgspec.convert(every, Pdb).spec.selector, labels)
    assert not selects(None, labels)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a%2fb", "a?b", "a\nb"])
def test_no_name_from_outside_becomes_another_path(name: str) -> None:
    """An empty name would be the whole collection."""
    with pytest.raises(Invalid):
        PODS.path("slurm", name)
    assert segment("gpu-7.example") == "gpu-7.example"


def test_a_thousand_pods_are_read_in_thirty_milliseconds() -> None:
    """The best of five, in CPU time, so that a busy machine does not matter."""
    container = {
        "name": "slurmd",
        "env": [{"name": f"E{i}", "value": "x" * 40} for i in range(40)],
        "resources": {"limits": {"cpu": "1"}},
    }
    fields = [{"manager": "m", "fieldsV1": {"f:spec": {f"f:{i}": {} for i in range(120)}}}] * 3
    pod = {
        "metadata": META | {"labels": keys.protected("main"), "managedFields": fields},
        "spec": {"containers": [container] * 2, "nodeName": "n", "hostname": "w"},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}] * 5,
        },
    }
    data = json.dumps({"metadata": {"resourceVersion": "1"}, "items": [pod] * 1000}).encode()
    took = []
    for _ in range(5):
        begun = time.process_time()
        PODS.page(data)
        took.append(time.process_time() - begun)
    assert len(data) > 8_000_000
    assert min(took) < 0.030, f"{min(took) * 1000:.0f} ms for {len(data)} bytes"
