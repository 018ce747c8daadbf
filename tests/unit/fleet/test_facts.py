"""The table of facts: the newest of each thing, found from every side."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from lockstep.contracts.common import WorkerKey
from lockstep.contracts.facts import (
    SITE,
    Desired,
    Fact,
    KubeHold,
    KubeNode,
    KubePod,
    SlurmJob,
    SlurmNode,
    SlurmReservation,
    SourceHealth,
    Wrote,
)
from lockstep.fleet.facts import MAX_TOMBSTONES, NOTHING, FactTable, Touched, family_of, key_of, together

AT = datetime(2026, 1, 2, tzinfo=UTC)
W = ("main", "gpu-1")

NODE = SlurmNode(cluster="main", name="gpu-1", base="IDLE")
POD = KubePod(cluster="main", worker="gpu-1", namespace="slurm", name="p", node="host-1", uid="u1")
JOB = SlurmJob(cluster="main", job_id=7, nodes=["gpu-1", "gpu-2"])


def table_of(*facts: Fact) -> FactTable:
    """A table that was told these."""
    table = FactTable()
    for fact in facts:
        table.apply(fact)
    return table


def test_each_kind_is_found_where_it_belongs() -> None:
    """By worker, by Kubernetes node, by cluster, by source."""
    host = KubeNode(name="host-1")
    hold = KubeHold(cluster="main", namespace="slurm", name="dimm")
    maintenance = SlurmReservation(cluster="main", name="maint")
    desired = Desired(cluster="main", name="gpu-1", in_service=True)
    wrote = Wrote(cluster="main", name="gpu-1")
    beat = SourceHealth(source="kube")
    table = table_of(NODE, POD, JOB, host, hold, maintenance, desired, wrote, beat)
    assert table.slurm_nodes[W] == NODE
    assert list(table.pods[W].values()) == [POD]
    assert list(table.pods_on["host-1"].values()) == [POD]
    assert list(table.jobs["main"].values()) == [JOB]
    assert list(table.jobs_on["main", "gpu-2"].values()) == [JOB]
    assert table.nodes["host-1"] == host
    assert table.holds["main"]["slurm/dimm"] == hold
    assert table.reservations["main"]["maint"] == maintenance
    assert (table.desired[W], table.wrote[W]) == (desired, wrote)
    assert table.sources["kube", SITE] == beat
    assert len(table) == len(table.all()) == 9
    assert table.of_kind(KubePod) == [POD]


def test_what_is_not_there_reads_as_empty_and_stays_missing() -> None:
    """Looking does not make the table grow."""
    table = FactTable()
    assert table.pods[W] == {}
    assert table.jobs_on[W] == {}
    assert not table.pods
    assert W not in table.jobs_on


def test_a_pod_that_moves_is_found_only_where_it_is_now() -> None:
    """Its node and even its worker are facts about it, and may change."""
    table = table_of(POD, msgspec.structs.replace(POD, node="host-2", worker="gpu-9"))
    assert table.pods.keys() == {("main", "gpu-9")}
    assert table.pods_on.keys() == {"host-2"}


def test_a_change_touches_what_it_was_about_and_what_it_is_about() -> None:
    """So that the worker which lost its pod is looked at too."""
    table = table_of(POD)
    touched = table.apply(msgspec.structs.replace(POD, node="host-2", worker="gpu-9"))
    assert touched == Touched(workers=frozenset({W, ("main", "gpu-9")}), nodes=frozenset({"host-1", "host-2"}))


@pytest.mark.parametrize(
    ("fact", "touched"),
    [
        (NODE, Touched(workers=frozenset({W}))),
        (JOB, Touched(workers=frozenset({W, ("main", "gpu-2")}))),
        (KubeNode(name="host-1"), Touched(nodes=frozenset({"host-1"}))),
        (KubeHold(cluster="main", namespace="s", name="h"), Touched(clusters=frozenset({"main"}))),
        (SlurmReservation(cluster="main", name="r"), Touched(clusters=frozenset({"main"}))),
        (SourceHealth(source="slurm.node", of="main"), Touched(sources=frozenset({("slurm.node", "main")}))),
    ],
)
def test_a_fact_names_whom_to_look_at(fact: Fact, touched: Touched) -> None:
    """Workers, nodes, a cluster or a source."""
    assert FactTable().apply(fact) == touched


def test_the_same_fact_again_touches_nothing() -> None:
    """An echo wakes nobody."""
    assert table_of(NODE).apply(NODE) == NOTHING


def test_what_is_gone_is_removed_and_remembered() -> None:
    """It is no longer found, and when it went is known; it may come back."""
    table = table_of(JOB)
    gone = msgspec.structs.replace(JOB, gone=True, read_at=AT)
    assert table.apply(gone).workers == {W, ("main", "gpu-2")}
    assert not table.jobs
    assert not table.jobs_on
    assert table.gone_at == {key_of(JOB): AT}
    assert table.apply(gone) == NOTHING
    table.apply(JOB)
    assert list(table.jobs["main"].values()) == [JOB]
    assert not table.gone_at


def test_tombstones_are_bounded() -> None:
    """Job numbers grow for ever; what is remembered of them does not."""
    table = FactTable()
    for number in range(MAX_TOMBSTONES + 10):
        table.apply(SlurmJob(cluster="main", job_id=number, gone=True))
    assert len(table.gone_at) == MAX_TOMBSTONES
    assert key_of(SlurmJob(cluster="main", job_id=0)) not in table.gone_at


def test_a_fact_of_a_lower_epoch_changes_nothing() -> None:
    """A frozen leader wakes up and says what was true an hour ago."""
    table = table_of(msgspec.structs.replace(NODE, epoch=2))
    assert table.apply(msgspec.structs.replace(NODE, epoch=1, base="DOWN")) == NOTHING
    assert table.slurm_nodes[W].base == "IDLE"


def test_an_epoch_counts_for_all_facts_of_one_service_and_no_other() -> None:
    """The heartbeat of the poller fences its node facts; the watcher has a lease of its own."""
    table = table_of(SourceHealth(source="slurm.node", of="main", epoch=5))
    assert not table.apply(msgspec.structs.replace(NODE, epoch=4))
    assert table.apply(msgspec.structs.replace(POD, epoch=1))
    assert table.epochs == {"slurm": 5, "kube": 1}
    assert family_of(Desired(cluster="a", name="b", in_service=True)) == "drain"
    assert family_of(Wrote(cluster="a", name="b")) == "reconciler"


def test_a_lost_stream_empties_the_table_in_place_and_names_everything() -> None:
    """Whoever holds a part of it sees it empty too; epochs still fence."""
    table = table_of(JOB, msgspec.structs.replace(NODE, epoch=3), POD)
    pods = table.pods
    assert table.clear() == Touched(workers=frozenset({W, ("main", "gpu-2")}), nodes=frozenset({"host-1"}))
    assert (len(table), len(pods), len(table.jobs_on)) == (0, 0, 0)
    assert table.epochs["slurm"] == 3


def test_workers_are_all_that_any_fact_names() -> None:
    """Also one of which there is only a pod, or only a decision."""
    lonely = Desired(cluster="old", name="x", in_service=True)
    table = table_of(NODE, msgspec.structs.replace(POD, worker="gpu-5"), lonely)
    assert table.workers() == {W, ("main", "gpu-5"), ("old", "x")}
    assert table.workers("old") == {("old", "x")}


def test_several_changes_are_told_as_one() -> None:
    """A burst is one item."""
    one, two = Touched(workers=frozenset({W})), Touched(nodes=frozenset({"h"}), clusters=frozenset({"main"}))
    assert one | two == together([one, two]) == Touched(frozenset({W}), frozenset({"h"}), frozenset({"main"}))
    assert not NOTHING


@pytest.mark.parametrize(
    ("source", "of", "concerned"),
    [("slurm.node", "main", {("main", "gpu-1")}), ("kube", SITE, {("main", "gpu-1"), ("b", "gpu-9")})],
)
def test_a_source_that_is_complete_again_concerns_all_its_workers(
    source: str, of: str, concerned: set[WorkerKey]
) -> None:
    """Also after a moment that no clock would call an outage: what was decided in it was that nothing is known."""
    beat = SourceHealth(source=source, of=of, complete_as_of=AT)
    incomplete = msgspec.structs.replace(beat, complete_as_of=None)
    later = msgspec.structs.replace(beat, complete_as_of=AT + timedelta(seconds=1))
    table = table_of(
        SlurmNode(cluster="main", name="gpu-1", base="IDLE"), SlurmNode(cluster="b", name="gpu-9", base="IDLE")
    )

    assert table.apply(beat).workers == concerned
    assert table.apply(later).workers == set()
    assert table.apply(incomplete).workers == set()
    assert table.apply(later).workers == concerned
