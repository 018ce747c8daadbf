"""A Kubernetes node as a fact, and what happens to it: conditions, taints, a reboot, its end."""

from datetime import UTC, datetime

import msgspec

from lockstep.contracts.events import NodeConditionChanged, NodeGone, NodeRebooted, NodeTaintsChanged
from lockstep.contracts.facts import KubeNode
from lockstep.kube import keys
from lockstep.pod_watcher.decide import news
from tests.unit.pod_watcher.as_read import AT, a_node


def test_a_node_shows_only_what_the_settings_name() -> None:
    """Labels, taints and conditions that nobody asked for stay outside."""
    node = a_node(
        labels={keys.CLUSTER: "main", "kubernetes.io/arch": "amd64"},
        annotations={"other": "x", keys.IGNORE_CONDITIONS: "DiskPressure"},
        spec={"taints": [{"key": "example.com/repair", "effect": "NoSchedule"}, {"key": "other"}]},
        status={
            "conditions": [
                {"type": "Ready", "status": "True"},
                {
                    "type": "GpuHealthy",
                    "status": "False",
                    "message": "XID 79\non GPU 3\x1b[31m",
                    "lastTransitionTime": "2026-12-01T12:00:00Z",
                },
                {"type": keys.IN_SERVICE, "status": "False", "message": "lockstep: ops: DIMM"},
            ],
            "nodeInfo": {"bootID": "b-1"},
        },
    )

    assert node.labels == {keys.CLUSTER: "main"}
    assert node.annotations == {keys.IGNORE_CONDITIONS: "DiskPressure"}
    assert [taint.key for taint in node.taints] == ["example.com/repair"]
    assert [(c.type, c.message) for c in node.conditions] == [("Ready", ""), ("GpuHealthy", "XID 79 on GPU 3[31m")]
    assert node.conditions[1].since == datetime(2026, 12, 1, 12, tzinfo=UTC), "an override names the turn it is about"
    assert node.in_service is not None
    assert node.in_service.message == "lockstep: ops: DIMM"
    assert node.ready
    assert node.boot_id == "b-1"


def test_a_reboot_is_an_event() -> None:
    """Another boot id on the same name, also when the Node was made anew."""
    before = a_node(status={"nodeInfo": {"bootID": "b-1"}})
    after = a_node(uid="n-2", status={"nodeInfo": {"bootID": "b-2"}})

    assert news(before, after, AT).events == [
        NodeGone(id="n-1:gone", at=AT, node="host-3"),
        NodeRebooted(id="n-2:b-2:rebooted", at=AT, node="host-3", before="b-1", after="b-2"),
    ]
    assert news(before, a_node(), AT).events == []


def test_a_node_that_is_gone_is_an_event() -> None:
    """It is the cause of what follows from it, and told once."""
    told = news(a_node(), None, AT)

    assert told.events == [NodeGone(id="n-1:gone", at=AT, node="host-3")]
    assert (told.cause, told.facts[0].gone) == ("n-1:gone", True)


def with_conditions(version: int, **status: str) -> KubeNode:
    """A node with these conditions."""
    shown = [{"type": k, "status": v, "reason": f"{k}Is{v}", "message": "seen"} for k, v in status.items()]
    return a_node(status={"conditions": shown}, resourceVersion=str(version))


def test_a_condition_that_changes_is_an_event() -> None:
    """Ready, and those that the settings name; with before, after and the kubelet's words."""
    before = with_conditions(4, Ready="True", GpuHealthy="False", PIDPressure="False")
    after = with_conditions(5, Ready="Unknown", GpuHealthy="True", PIDPressure="True")
    told = news(before, after, AT)

    assert told.events == [
        NodeConditionChanged(
            id="n-1:5:condition:GpuHealthy",
            at=AT,
            node="host-3",
            condition="GpuHealthy",
            before="False",
            after="True",
            reason="GpuHealthyIsTrue",
            message="seen",
        ),
        NodeConditionChanged(
            id="n-1:5:condition:Ready",
            at=AT,
            node="host-3",
            condition="Ready",
            before="True",
            after="Unknown",
            reason="ReadyIsUnknown",
            message="seen",
        ),
    ]
    assert news(before, after, AT).events == told.events


def test_a_new_node_tells_only_of_conditions_that_it_has() -> None:
    """What is False is as if it were absent; and what was there before anybody looked has not happened now."""
    node = with_conditions(5, Ready="False", GpuHealthy="False")

    assert news(None, node, AT).events == []
    assert [type(e) for e in news(node, with_conditions(6, Ready="True"), AT).events] == [NodeConditionChanged]
    assert news(None, with_conditions(5, GpuHealthy="True"), AT, quiet=True).events == []


def test_a_fact_of_a_former_version_makes_no_event() -> None:
    """It says that the node is ready, and has no condition of that name."""
    after = with_conditions(5, Ready="True")

    assert news(msgspec.structs.replace(after, conditions=[]), after, AT).events == []


def test_taints_that_come_or_go_are_one_event() -> None:
    """Those that the settings name; one with another value or effect is another."""
    other = {"key": "other", "effect": "NoSchedule"}
    before = a_node(spec={"taints": [{"key": "example.com/repair", "value": "a", "effect": "NoSchedule"}, other]})
    after = a_node(spec={"taints": [{"key": "example.com/repair", "value": "b", "effect": "NoSchedule"}]})
    (event,) = news(before, after, AT).events

    assert isinstance(event, NodeTaintsChanged)
    assert [(t.key, t.value) for t in event.added] == [("example.com/repair", "b")]
    assert [(t.key, t.value) for t in event.removed] == [("example.com/repair", "a")]
    assert news(after, after, AT).events == []
