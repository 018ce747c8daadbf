"""Which flow a change in Kubernetes belongs to."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from lockstep.base import clock
from lockstep.contracts.facts import Fact, NodeCondition
from lockstep.fleet.pairing import Site
from lockstep.kube import keys
from lockstep.pod_watcher.traces import Traces
from tests.builders import CLUSTER, a_desired, a_hold, a_node, a_pod, a_slurm_node, a_table, a_view

BEGAN, WANTED = (f"00-{number:032x}-{number:016x}-01" for number in (1, 2))
SECOND = timedelta(seconds=1)
SHOWN = [NodeCondition(type="SlurmNodeStateDrain", status="True")]
IN_SERVICE = NodeCondition(type=keys.IN_SERVICE, status="False")
MIRRORED: dict[str, Any] = {"unschedulable": True, "mirror_mark": True, "cordoned_by": keys.FIELD_MANAGER}


def traces(*, wanted_ago_s: float = 0.0) -> Traces:
    """The worker is held, since a decision of a moment ago."""
    desired = a_desired(a_view(), traceparent=BEGAN, read_at=clock.now() - wanted_ago_s * SECOND)
    table = a_table(a_node(), a_pod(), a_slurm_node(), desired)
    table.flows.note(desired, WANTED, 1)
    return Traces(table, Site(), [CLUSTER])


@pytest.mark.parametrize(
    ("before", "after", "is_ours"),
    [
        pytest.param(a_pod(), a_pod(conditions=SHOWN), True, id="conditions"),
        pytest.param(a_pod(), a_pod(protected=False), True, id="protection"),
        pytest.param(a_node(), a_node(in_service=IN_SERVICE), True, id="the node's condition"),
        pytest.param(a_node(), a_node(**MIRRORED), True, id="our mirror"),
        pytest.param(a_node(**MIRRORED), a_node(), True, id="our mirror lifted by us"),
        pytest.param(a_node(**MIRRORED), a_node(mirror_mark=True), False, id="our mirror lifted by somebody"),
        pytest.param(a_node(), a_node(unschedulable=True, cordoned_by="kubectl"), False, id="a cordon"),
        pytest.param(a_pod(), a_pod(ready=False), False, id="a pod that is not ready"),
        pytest.param(None, a_pod(), False, id="a new pod"),
    ],
)
def test_what_we_wrote_ourselves_belongs_to_its_flow_and_anything_else_begins_one(
    before: Fact | None, after: Fact, *, is_ours: bool
) -> None:
    """Both are linked to the flow in which the worker's drain began."""
    step = traces().step(before, after)
    assert (step.parent, step.links) == (WANTED if is_ours else "", [BEGAN])


def test_an_echo_of_long_ago_begins_a_flow() -> None:
    """What was wanted an hour ago did not write this."""
    assert traces(wanted_ago_s=3600).step(a_pod(), a_pod(protected=False)).parent == ""


def test_a_hold_begins_a_flow_that_names_it() -> None:
    """One flow, however many workers it is about."""
    step = traces().step(None, a_hold("dimm"))
    assert (step.parent, step.links) == ("", [])
    assert step.attributes == {"lockstep.cluster": "main", "lockstep.hold": "dimm", "k8s.namespace.name": "slurm"}


def test_our_answer_in_a_holds_status_belongs_to_the_flow_of_the_hold() -> None:
    """Otherwise the newest trace of its workers would be one in which nothing happens."""
    hold = a_hold(read_at=clock.now())
    table = a_table(hold)
    table.flows.note(hold, WANTED, 1)
    told = Traces(table, Site(), [CLUSTER])
    assert told.step(hold, msgspec.structs.replace(hold, accepted=True)).parent == WANTED
    assert told.step(hold, msgspec.structs.replace(hold, generation=2, accepted=True)).parent == ""


ASKED = BEGAN


@pytest.mark.parametrize(
    ("age_s", "before", "parent", "links"),
    [
        pytest.param(1, None, ASKED, [], id="it was asked for just now"),
        pytest.param(3600, None, "", [ASKED], id="it was asked for long ago"),
        pytest.param(1, a_hold(), "", [ASKED], id="it has changed since"),
    ],
)
def test_a_hold_that_was_asked_for_within_a_trace_goes_on_there(
    age_s: float, before: Fact | None, parent: str, links: list[str]
) -> None:
    """From the request over NATS to the worker that is drained, one trace; what comes later is linked to it."""
    hold = a_hold(traceparent=ASKED, created_at=clock.now() - age_s * SECOND)
    step = traces().step(before, hold)
    assert (step.parent, step.links) == (parent, links)


def test_the_end_of_a_thing_is_no_echo() -> None:
    """Also where the last that changed was ours."""
    pod = a_pod(conditions=SHOWN)
    assert traces().step(pod, msgspec.structs.replace(pod, gone=True)).parent == ""
