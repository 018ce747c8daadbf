"""Which flow a decision belongs to, and what a drain of hours keeps of its beginning."""

from datetime import timedelta

import msgspec

from lockstep.base import clock
from lockstep.contracts.facts import Desired, Progress
from lockstep.contracts.subjects import fact_subject
from lockstep.drain.decide import decide
from lockstep.drain.handlers import Decided
from lockstep.drain.model import Decision
from lockstep.drain.traces import begun_in, step
from lockstep.fleet.flows import Flows
from lockstep.fleet.worker import Worker
from tests.builders import NOW, OURS, POLICY, a_desired, a_drained_worker, a_hold, a_pod, a_slurm_node, a_view, a_worker

CORDON, READ, BEGAN = (f"00-{number:032x}-{number:016x}-01" for number in (1, 2, 3))


def decided(worker: Worker) -> Decided:
    """What is decided of a worker, which must be something."""
    decision = decide(worker, POLICY, NOW)
    assert decision is not None
    return Decided(worker, decision)


def test_a_decision_follows_the_fact_that_woke_it_and_says_what_it_is() -> None:
    """As a consumer of that fact, with the words and the holds in its attributes."""
    hold = a_hold(read_at=clock.now())
    flows = Flows()
    flows.note(hold, CORDON, 7)
    span = step(decided(a_worker(holds=[hold])), flows)
    assert (span.name, span.parent, span.subject, span.links) == ("decide", CORDON, fact_subject(hold), [])
    assert span.attributes["lockstep.worker"] == "gpu-7"
    assert span.attributes["lockstep.progress"] is Progress.WAITING
    assert span.attributes["lockstep.holds"] == ["hold/slurm/dimm"]
    assert span.attributes["lockstep.words"] == "lockstep: ops@example.com: DIMM B2"


def test_what_ends_a_drain_after_hours_links_to_the_flow_that_began_it() -> None:
    """The job has ended: the reading begins a trace, the decision is in that one, and names the first."""
    before = a_desired(a_view(), traceparent=BEGAN, progress=Progress.DRAINING, read_at=NOW - timedelta(hours=3))
    worker = msgspec.structs.replace(a_drained_worker(holds=[a_hold()]), desired=before)
    flows = Flows()
    flows.note(before, BEGAN, 1)
    flows.note(slurm := a_slurm_node(read_at=clock.now()), READ, 2)
    span = step(decided(msgspec.structs.replace(worker, slurm=worker.slurm or slurm)), flows)
    assert (span.parent, span.links) == (READ, [BEGAN])


def test_a_decision_does_not_follow_the_one_before_it() -> None:
    """Its own word, however new, is not what woke it."""
    now = clock.now()
    before, read = a_desired(a_view(), read_at=now), a_slurm_node("MIXED+DRAIN", read_at=now)
    flows = Flows()
    flows.note(read, READ, 1)
    flows.note(before, BEGAN, 2)
    span = step(decided(a_worker(slurm=read, desired=before)), flows)
    assert (span.parent, span.links) == (READ, [])


def test_how_far_a_drain_is_follows_slurm_though_kubernetes_shows_our_own_word_later() -> None:
    """The watcher saw our condition before it heard of the job's end, and told it as a part of the flow before."""
    now = clock.now()
    read, pod = a_slurm_node("IDLE+DRAIN", reason=OURS, read_at=now), a_pod(read_at=now)
    before = after(a_worker(holds=[a_hold()]), BEGAN)
    flows = Flows()
    flows.note(read, READ, 1)
    flows.note(pod, BEGAN, 2)
    span = step(decided(a_worker(slurm=read, pod=pod, holds=[a_hold()], desired=before)), flows)
    assert (span.parent, span.subject, span.links) == (READ, fact_subject(read), [BEGAN])


def test_a_hold_that_comes_follows_itself_though_slurm_has_just_changed() -> None:
    """The newest fact is its cause."""
    now = clock.now()
    read, hold = a_slurm_node("MIXED+DRAIN", read_at=now), a_hold("other", read_at=now)
    flows = Flows()
    flows.note(read, READ, 1)
    flows.note(hold, CORDON, 2)
    span = step(decided(a_worker(slurm=read, holds=[a_hold(), hold], desired=a_desired(a_view()))), flows)
    assert (span.parent, span.links) == (CORDON, [READ])


def test_a_decision_that_time_alone_has_woken_begins_a_trace() -> None:
    """A deadline or an expiry; linked to what began the drain."""
    before = a_desired(a_view(), traceparent=BEGAN, progress=Progress.DRAINING)
    span = step(decided(a_worker(desired=before, state="MIXED+DRAIN")), Flows())
    assert (span.parent, span.subject, span.links) == ("", "", [BEGAN])


def after(worker: Worker, traceparent: str) -> Desired:
    """What is published when it is decided in that trace."""
    return begun_in(decided(worker).decision, traceparent).desired


def test_the_first_decision_of_a_drain_is_what_the_later_ones_remember() -> None:
    """Until nothing holds it any more; the next drain is another."""
    began = after(a_worker(holds=[a_hold()]), BEGAN)
    assert began.traceparent == BEGAN

    goes_on = after(a_worker(holds=[a_hold()], state="MIXED+DRAIN", desired=began), READ)
    assert (goes_on.progress, goes_on.traceparent) == (Progress.DRAINING, BEGAN)

    over = after(a_worker(state="MIXED+DRAIN", desired=goes_on), READ)
    assert (over.holds, over.traceparent) == ([], "")
    assert after(a_worker(holds=[a_hold("other")], desired=over), CORDON).traceparent == CORDON


def test_a_trace_is_no_news() -> None:
    """The same decision is not published again because it is traced now."""
    began = after(a_worker(holds=[a_hold()]), BEGAN)
    assert decide(a_worker(holds=[a_hold()], desired=began), POLICY, NOW) is None


def test_without_traces_a_decision_is_left_as_it_is() -> None:
    """Nothing is made anew for nothing."""
    decision: Decision = decided(a_worker(holds=[a_hold()])).decision
    assert begun_in(decision, "") is decision
