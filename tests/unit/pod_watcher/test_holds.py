"""A Hold as a fact: its cluster, its fault, and how far it has come."""

import pytest

from lockstep.pod_watcher.decide import news
from tests.unit.pod_watcher.as_read import AT, HOLD, a_hold


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
