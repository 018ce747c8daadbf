"""What Kubernetes' objects say as facts, and what happened between two of them."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from lockstep.contracts.events import (
    NodeConditionChanged,
    NodeCordoned,
    NodeGone,
    NodeRebooted,
    NodeTaintsChanged,
    NodeUncordoned,
    PodEvent,
)
from lockstep.contracts.facts import KubeHold, KubeNode, KubePod
from lockstep.kube import keys
from lockstep.kube.resources import HOLDS, NODES, PODS
from lockstep.pod_watcher.decide import hold_fact, is_echo, news, node_fact, pod_fact, pod_state
from lockstep.pod_watcher.model import Reading

AT = datetime(2026, 7, 1, 12, tzinfo=UTC)
READING = Reading(
    conditions=frozenset({"GpuHealthy"}),
    taints=frozenset({"example.com/repair"}),
    labels=frozenset({keys.CLUSTER, keys.SLURM_NODE_NAME}),
)
HOLD = {"workers": {"names": ["gpu-7"]}, "reason": "DIMM"}


def a_node(*, spec: Any = None, status: Any = None, **metadata: Any) -> KubeNode:
    """The fact of a Node with these fields."""
    meta = {"name": "host-3", "uid": "n-1", "resourceVersion": "7"} | metadata
    raw = msgspec.json.encode({"metadata": meta, "spec": spec or {}, "status": status or {}})
    return node_fact(NODES.one(raw), READING)


def a_pod(*, spec: Any = None, status: Any = None, **metadata: Any) -> KubePod | None:
    """The fact of a worker pod with these fields."""
    meta = {"name": "slurmd-0", "namespace": "slurm", "uid": "p-1", "resourceVersion": "7"} | metadata
    raw = msgspec.json.encode({"metadata": meta, "spec": spec or {}, "status": status or {}})
    return pod_fact(PODS.one(raw), "main", keys.SLURM_NODE_NAME)


def a_bound_pod(*, ready: bool = False, **metadata: Any) -> KubePod:
    """A pod on a node."""
    conditions = [{"type": "Ready", "status": str(ready)}]
    pod = a_pod(spec={"nodeName": "host-3"}, status={"phase": "Running", "conditions": conditions}, **metadata)
    assert pod is not None
    return pod


def a_hold(spec: Any, *clusters: str, **more: Any) -> KubeHold:
    """The fact of a Hold in a namespace with these clusters."""
    meta = {"name": "dimm", "namespace": "slurm", "uid": "h-1"}
    return hold_fact(HOLDS.one(msgspec.json.encode({"metadata": meta, "spec": spec} | more)), clusters)


def cordoned_by(manager: str, **annotations: str) -> KubeNode:
    """A cordoned node, as the API server tells who did it."""
    fields = [{"manager": manager, "fieldsV1": {"f:spec": {"f:unschedulable": {}}}}]
    return a_node(spec={"unschedulable": True}, managedFields=fields, annotations=annotations, resourceVersion="8")


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


def test_what_nobody_reads_is_no_news() -> None:
    """A hundred changes of four kinds that no fact shows are told to nobody."""
    node, pod = a_node(), a_bound_pod()
    hold = a_hold(HOLD, "main")
    changes = [
        change
        for i in range(25)
        for change in (
            news(node, a_node(resourceVersion=str(i)), AT),
            news(node, a_node(labels={"other": str(i)}, resourceVersion=str(i)), AT),
            news(pod, a_bound_pod(annotations={"other": str(i)}, resourceVersion=str(i)), AT),
            news(hold, a_hold(HOLD, "main", status={"message": str(i)}), AT),
        )
    ]

    assert len(changes) == 100
    assert all(not change.facts and not change.events for change in changes)


def test_a_change_that_was_undone_unseen_is_told() -> None:
    """Who wrote in between waits to see that it does not stand."""
    told = news(a_bound_pod(), a_bound_pod(resourceVersion="9"), AT, skipped=True)

    assert [fact.revision for fact in told.facts] == ["9"]
    assert told.events == []


def test_a_cordon_names_who_and_why() -> None:
    """The event carries what the API server knows of it."""
    after = cordoned_by("kubectl-cordon", **{keys.NODE_CORDON_REASON: "DIMM\nB2"})
    told = news(a_node(), after, AT)

    assert told.events == [
        NodeCordoned(id="n-1:8:cordoned", at=AT, node="host-3", by="kubectl-cordon", reason="DIMM B2")
    ]
    assert told.facts == [msgspec.structs.replace(after, read_at=AT)]


def test_our_own_mirror_is_no_event() -> None:
    """Neither when it comes nor when we take it away; the fact changes."""
    mirror = cordoned_by(keys.FIELD_MANAGER, **{keys.MIRRORED_CORDON: "true"})

    assert news(a_node(), mirror, AT).events == []
    assert news(mirror, a_node(), AT).events == []
    assert news(a_node(), mirror, AT).facts


def test_a_user_who_lifts_our_mirror_is_an_event() -> None:
    """She leaves our mark behind."""
    mirror = cordoned_by(keys.FIELD_MANAGER, **{keys.MIRRORED_CORDON: "true"})
    lifted = a_node(annotations={keys.MIRRORED_CORDON: "true"}, resourceVersion="9")

    assert [type(event) for event in news(mirror, lifted, AT).events] == [NodeUncordoned]


def test_a_user_takes_over_our_mirror() -> None:
    """A cordon of hers over ours is hers."""
    mirror = cordoned_by(keys.FIELD_MANAGER, **{keys.MIRRORED_CORDON: "true"})

    assert [type(event) for event in news(mirror, cordoned_by("kubectl-cordon"), AT).events] == [NodeCordoned]


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


def test_what_happened_is_the_cause_of_the_fact() -> None:
    """And a request is that of the Hold which it made."""
    hold = a_hold(HOLD, "main", metadata={"name": "dimm", "annotations": {keys.REQUEST: "r-1\n"}})

    assert news(a_node(), cordoned_by("kubectl-cordon"), AT).cause == "n-1:8:cordoned"
    assert news(None, hold, AT).cause == "r-1"
    assert news(None, a_hold(HOLD, "main"), AT).cause == ""


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


def test_what_was_there_before_we_came_has_not_happened_now() -> None:
    """The first look at a running site tells facts and no events."""
    told = news(None, cordoned_by("kubectl-cordon"), AT, quiet=True)

    assert told.facts
    assert told.events == []


def test_gone_is_a_fact_without_an_old_epoch() -> None:
    """What was last known stays readable; our own epoch is put on it."""
    told = news(msgspec.structs.replace(a_node(), epoch=3), None, AT)

    assert told.facts == [msgspec.structs.replace(a_node(), gone=True, read_at=AT)]


@pytest.mark.parametrize(
    ("asked", "clusters", "cluster", "fault"),
    [
        pytest.param("", ["main"], "main", "", id="the only one"),
        pytest.param("b", ["a", "b"], "b", "", id="named"),
        pytest.param("", ["a", "b"], "a", "spec.cluster: is left out; want a or b", id="left out among two"),
        pytest.param(
            "c", ["a", "b"], "a", "spec.cluster: 'c' is no cluster of namespace slurm; want a or b", id="unknown"
        ),
    ],
)
def test_a_hold_belongs_to_one_cluster(asked: str, clusters: list[str], cluster: str, fault: str) -> None:
    """One that does not say which is still a fact, so that it can be refused with what is allowed."""
    hold = a_hold(HOLD | {"cluster": asked}, *clusters)

    assert (hold.cluster, hold.fault) == (cluster, fault)
    assert (hold.spec is None) == bool(fault)


def test_a_hold_that_cannot_be_read_is_a_fact_with_its_fault() -> None:
    """It names the field."""
    hold = a_hold(HOLD | {"class": "nonsense"}, "main")

    assert hold.spec is None
    assert "spec.class" in hold.fault


def test_a_hold_remembers_that_it_was_accepted() -> None:
    """As its status says."""
    accepted = {"conditions": [{"type": "Accepted", "status": "True"}]}

    assert a_hold(HOLD, "main", status=accepted).accepted
    assert not a_hold(HOLD, "main").accepted


def test_a_hold_remembers_that_it_was_refused_as_it_is() -> None:
    """Its next version is looked at anew."""
    refused = {"phase": "Refused", "observedGeneration": 3}
    now, later = ({"name": "dimm", "namespace": "slurm", "generation": g} for g in (3, 4))

    assert a_hold(HOLD, "main", status=refused, metadata=now).refused
    assert not a_hold(HOLD, "main", status=refused, metadata=later).refused
    assert not a_hold(HOLD, "main", metadata=now).refused


def test_a_hold_that_moves_to_another_cluster_leaves_nothing_behind() -> None:
    """The old scope is told that it is gone, before the new one has it."""
    told = news(a_hold(HOLD | {"cluster": "a"}, "a", "b"), a_hold(HOLD | {"cluster": "b"}, "a", "b"), AT)

    assert [(fact.scope, fact.gone) for fact in told.facts] == [("a", True), ("b", False)]


def test_our_conditions_on_a_pod_are_an_echo() -> None:
    """A pod that became ready is none."""
    before = a_bound_pod()
    shown = msgspec.structs.replace(before, protected=True, revision="9")

    assert is_echo(before, shown)
    assert not is_echo(before, a_bound_pod(ready=True))
    assert not is_echo(None, shown)
