"""What is news at all, of whatever kind: what nobody reads, what was there before us and our own echo are none."""

import msgspec

from lockstep.kube import keys
from lockstep.pod_watcher.decide import is_echo, news
from tests.unit.pod_watcher.as_read import AT, HOLD, a_bound_pod, a_hold, a_node, cordoned_by


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


def test_what_happened_is_the_cause_of_the_fact() -> None:
    """And a request is that of the Hold which it made."""
    hold = a_hold(HOLD, "main", metadata={"name": "dimm", "annotations": {keys.REQUEST: "r-1\n"}})

    assert news(a_node(), cordoned_by("kubectl-cordon"), AT).cause == "n-1:8:cordoned"
    assert news(None, hold, AT).cause == "r-1"
    assert news(None, a_hold(HOLD, "main"), AT).cause == ""


def test_what_was_there_before_we_came_has_not_happened_now() -> None:
    """The first look at a running site tells facts and no events."""
    told = news(None, cordoned_by("kubectl-cordon"), AT, quiet=True)

    assert told.facts
    assert told.events == []


def test_gone_is_a_fact_without_an_old_epoch() -> None:
    """What was last known stays readable; our own epoch is put on it."""
    told = news(msgspec.structs.replace(a_node(), epoch=3), None, AT)

    assert told.facts == [msgspec.structs.replace(a_node(), gone=True, read_at=AT)]


def test_our_conditions_on_a_pod_are_an_echo() -> None:
    """A pod that became ready is none."""
    before = a_bound_pod()
    shown = msgspec.structs.replace(before, protected=True, revision="9")

    assert is_echo(before, shown)
    assert not is_echo(before, a_bound_pod(ready=True))
    assert not is_echo(None, shown)
