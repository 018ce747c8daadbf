"""Which trace the next step continues, and to which it links."""

from datetime import timedelta

import msgspec
import pytest

from lockstep.contracts.facts import Fact, SourceHealth
from lockstep.contracts.subjects import fact_subject
from lockstep.fleet import flows as rules
from lockstep.fleet.flows import CONTINUES, MAX_LINKS, Flows, Origin, attributes_of, facts_about, others
from tests.builders import (
    NOW,
    a_desired,
    a_hold,
    a_node,
    a_pod,
    a_reservation,
    a_slurm_node,
    a_view,
    a_worker,
    ago,
    wrote_drain,
)


def trace(number: int, span: int = 1) -> str:
    """A traceparent."""
    return f"00-{number:032x}-{span:016x}-01"


def told(*each: tuple[Fact, str]) -> Flows:
    """Flows after these facts, in this order."""
    flows = Flows()
    for sequence, (fact, traceparent) in enumerate(each, start=1):
        flows.note(fact, traceparent, sequence)
    return flows


def test_a_step_continues_the_newest_fact_and_links_to_the_others() -> None:
    """The newest woke it; what else it used has to do with it."""
    cordon, job = a_node(read_at=ago(5)), a_slurm_node(read_at=ago(2))
    flows = told((cordon, trace(1)), (job, trace(2)))
    origin = flows.origin([cordon, job, None, a_pod()], NOW)
    assert origin == Origin(trace(2), fact_subject(job), [trace(1)])


def test_what_is_the_cause_goes_before_what_is_newer() -> None:
    """A write follows what was wanted, although a pod has changed since."""
    desired, pod = a_desired(a_view(), read_at=ago(3)), a_pod(read_at=ago(1))
    flows = told((desired, trace(1)), (pod, trace(2)))
    assert flows.origin([pod, desired], NOW, first=desired) == Origin(trace(1), fact_subject(desired), [trace(2)])


def test_a_flow_of_hours_ago_is_not_continued_but_linked() -> None:
    """Else one trace would never end. What began the drain is named."""
    old = msgspec.structs.replace(a_slurm_node(), read_at=NOW - CONTINUES - timedelta(seconds=1))
    flows = told((old, trace(1)))
    assert flows.origin([old], NOW, began=trace(7)) == Origin(links=[trace(7)])
    assert flows.origin([old], NOW) == Origin(links=[])


def test_a_fact_whose_age_is_not_known_is_not_continued() -> None:
    """Better a trace of its own than a wrong one."""
    fact = a_slurm_node(read_at=None)
    assert told((fact, trace(1))).origin([fact], NOW) == Origin(links=[])


def test_the_flow_that_began_it_is_no_link_while_it_goes_on() -> None:
    """A trace does not link to itself."""
    fact = a_node(read_at=ago(1))
    assert told((fact, trace(1, span=9))).origin([fact], NOW, began=trace(1)).links == []


def test_a_newer_fact_without_a_trace_ends_what_was_known() -> None:
    """Its source does not trace, or the fact arose in no flow."""
    fact = a_node(read_at=ago(1))
    flows = told((fact, trace(1)), (fact, ""))
    assert flows.of([fact]) == []


def test_links_are_few_and_each_trace_is_linked_once() -> None:
    """A thousand workers in one write are a thousand traces."""
    many = [trace(number, span=span) for number in range(1, 40) for span in (1, 2)]
    linked = others(trace(1, span=3), [*many, "", "nonsense"])
    assert linked == [trace(number) for number in range(2, 2 + MAX_LINKS)]


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trace that was told longest ago is forgotten first."""
    monkeypatch.setattr(rules, "MAX_FLOWS", 2)
    one, two, three = (a_slurm_node(name=f"gpu-{number}") for number in range(3))
    flows = told((one, trace(1)), (two, trace(2)), (one, trace(3)), (three, trace(4)))
    assert [flow.traceparent for flow in flows.of([one, two, three])] == [trace(4), trace(3)]


def test_the_newest_trace_of_a_worker_is_found_however_old() -> None:
    """For people who ask why."""
    worker = a_worker(desired=a_desired(a_view()), wrote=wrote_drain())
    flows = told((a_node(), trace(1)), (a_desired(a_view()), trace(2)), (a_slurm_node(name="other"), trace(3)))
    assert flows.newest(worker) == trace(2)
    assert Flows().newest(worker) == ""


def test_a_decision_rests_on_all_facts_about_the_worker_and_on_holds_that_are_gone() -> None:
    """The release of a Hold is a flow too: it is found by the hold that stood."""
    hold, old = a_hold("dimm"), a_pod(name="old", uid="pod-0")
    worker = a_worker(
        desired=a_desired(a_view("dimm"), a_view("gone"), a_view(id="cordon/host-7")),
        wrote=wrote_drain(),
        holds=[hold],
        other_pods=[old],
        reservations=[a_reservation()],
    )
    subjects = {fact_subject(fact) for fact in facts_about(worker)}
    about = [worker.slurm, worker.pod, worker.node, worker.desired, worker.wrote, old, hold, a_hold("gone")]
    assert subjects == {fact_subject(fact) for fact in [*about, a_reservation()] if fact is not None}


def test_a_span_says_whom_it_is_about_in_the_words_of_the_conventions() -> None:
    """So that a trace is found by the pod as well as by the worker."""
    pod = {"k8s.namespace.name": "slurm", "k8s.pod.name": "gpu-7", "k8s.pod.uid": "pod-1", "k8s.node.name": "host-7"}
    ours = {"lockstep.cluster": "main", "lockstep.worker": "gpu-7"}
    assert attributes_of(a_worker()) == attributes_of(a_pod()) == ours | pod
    assert attributes_of(a_slurm_node()) == ours
    assert attributes_of(a_node()) == {"k8s.node.name": "host-7"}
    assert attributes_of(SourceHealth(source="kube")) == {}
