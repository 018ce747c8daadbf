"""What /metrics says of the fleet, the sources and the streams."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import generate_latest

from lockstep.base import clock
from lockstep.bus.streams import StreamState
from lockstep.contracts.facts import Progress, SourceHealth
from lockstep.contracts.hold import HoldClass
from lockstep.contracts.policy import Policy, Protect
from lockstep.fleet.facts import FactTable
from lockstep.fleet.mirror import Mirror
from lockstep.runtime import metrics
from lockstep.runtime.gauges import COUNT_EVERY_S, OTHER, OWNERS, Census, show_sources, show_streams
from lockstep.slurm.states import NodePhase
from tests.builders import POLICY, a_desired, a_pod, a_slurm_node, a_table, a_view, ago

ODD = 'gpu 7\n"{}\\é' + "x" * 300


class Feed:
    """A feed that was read up to a sequence."""

    sequence = 90


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    """Nothing is counted before a test, nor left behind."""
    yield
    Census(FactTable(), POLICY).forget()


def shown(gauge: str) -> dict[tuple[str, ...], float]:
    """The gauge's series, by label values."""
    families = [family for family in metrics.REGISTRY.collect() if family.name == gauge]
    return {tuple(s.labels.values()): s.value for family in families for s in family.samples}


def counted(*facts: Any, policy: Policy = POLICY) -> Census:
    """A fleet of these facts, counted."""
    census = Census(a_table(*facts), policy)
    census.show()
    return census


def a_fleet(workers: int, holders: int = 0) -> FactTable:
    """So many workers in all kinds of states; the first ones held, each by somebody else, some with odd names."""
    words = ["IDLE", "MIXED", "IDLE+DRAIN", "MIXED+DRAIN", "DOWN", "IDLE+POWERED_DOWN", "NEW_WORD", "IDLE+NEW_FLAG"]
    table = FactTable()
    for number in range(workers):
        name = f"worker-{number}-{ODD}" if number % 100 == 0 else f"worker-{number}"
        table.apply(a_slurm_node(words[number % len(words)], name=name))
        table.apply(a_pod(name=name, worker=name, uid=f"uid-{number}", node=name, protected=bool(number % 3)))
        if number < holders:
            owner = f"system:node:{name}" if number % 2 else f"holder-{number}"
            hold = a_view(name, owner=owner, hold_class=list(HoldClass)[number % len(HoldClass)])
            table.apply(a_desired(hold, name=name, progress=Progress.DRAINING, kube_node=name))
    return table


def test_each_worker_is_in_one_phase() -> None:
    """So the sum over the phases is the number of workers, whatever Slurm says of them."""
    Census(a_fleet(1_000), POLICY).show()

    found = shown("lockstep_workers")
    assert sum(found.values()) == 1_000
    assert {phase for _, phase in found} == set(NodePhase)
    assert found["main", "idle"] == found["main", "draining"] == 125
    assert found["main", "unknown"] == 250


def test_a_worker_that_slurm_does_not_know_is_counted_too() -> None:
    """Its phase is unknown."""
    counted(a_pod())

    assert shown("lockstep_workers")["main", "unknown"] == 1


def test_a_phase_that_nobody_is_in_any_more_says_zero() -> None:
    """It does not go on saying what it was."""
    table = a_table(a_slurm_node("IDLE"))
    Census(table, POLICY).show()
    table.apply(a_slurm_node("IDLE+DRAIN"))
    Census(table, POLICY).show()

    assert shown("lockstep_workers")["main", "idle"] == 0
    assert shown("lockstep_workers")["main", "drained"] == 1


def test_drains_are_counted_by_how_far_they_are() -> None:
    """A worker that nobody holds is no drain."""
    held = [a_desired(a_view(), name=f"gpu-{n}", progress=p) for n, p in enumerate(["overdue", "waiting", "overdue"])]
    counted(*held, a_desired(name="free"))

    assert shown("lockstep_drains") == {
        ("main", "waiting"): 1,
        ("main", "draining"): 0,
        ("main", "drained"): 0,
        ("main", "overdue"): 2,
    }


@pytest.mark.parametrize(
    ("protect", "pod", "slurm", "progress", "said"),
    [
        (Protect.UNDRAINED, {"protected": True}, "IDLE", Progress.NONE, "protected"),
        (Protect.UNDRAINED, {}, "IDLE", Progress.NONE, "missing"),
        (Protect.UNDRAINED, {}, "MIXED+DRAIN", Progress.DRAINING, "missing"),
        (Protect.UNDRAINED, {}, "IDLE+DRAIN", Progress.DRAINED, "open"),
        (Protect.UNDRAINED, {}, None, Progress.NONE, "open"),
        (Protect.BUSY, {}, "IDLE", Progress.NONE, "open"),
        (Protect.BUSY, {}, "MIXED", Progress.NONE, "missing"),
        (Protect.OFF, {}, "MIXED", Progress.NONE, "open"),
    ],
)
def test_a_pod_without_the_protection_that_the_policy_wants_is_told(
    protect: Protect, pod: dict[str, Any], slurm: str | None, progress: Progress, said: str
) -> None:
    """A pod that may be evicted as it should be is another thing than one that lacks its label."""
    facts = [a_pod(**{"protected": False} | pod), a_desired(progress=progress)]
    counted(*facts, *([a_slurm_node(slurm)] if slurm else []), policy=Policy(protect=protect))

    assert {kind for (_, kind), count in shown("lockstep_pods").items() if count} == {said}


def test_a_pod_at_its_end_is_not_counted() -> None:
    """Nothing is to be protected there."""
    counted(a_slurm_node(), a_pod(protected=False, deleting_since=ago(1)))

    assert sum(shown("lockstep_pods").values()) == 0


def test_the_many_rare_owners_of_holds_are_one() -> None:
    """And no hold is lost in the sum."""
    often = [a_desired(a_view(), name=f"often-{n}", progress="draining") for n in range(3)]
    rare = [a_desired(a_view(owner=f"user-{n}"), name=f"rare-{n}", progress="draining") for n in range(200)]
    counted(*often, *rare)

    found = shown("lockstep_holds")
    assert found["main", "manual", "ops@example.com"] == 3
    assert len(found) == OWNERS + 1
    assert found["main", "manual", OTHER] == 200 - (OWNERS - 1)
    assert sum(found.values()) == 203


def test_ten_thousand_workers_and_odd_names_make_few_series() -> None:
    """No label holds the name of a worker or of a node, in no spelling."""
    Census(a_fleet(10_000, holders=1_000), POLICY).show()

    text = generate_latest(metrics.REGISTRY).decode()
    assert sum(shown("lockstep_workers").values()) == 10_000
    assert sum(shown("lockstep_holds").values()) == 1_000
    assert shown("lockstep_holds")["main", "manual", "system:nodes"] == 100
    assert len([line for line in text.splitlines() if not line.startswith("#")]) < 500
    assert "worker-" not in text


def test_the_fleet_is_counted_at_most_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks in between is told what was counted."""
    moments = [0.0]
    monkeypatch.setattr(clock, "monotonic", lambda: moments[-1])
    table = a_table(a_slurm_node())
    census = Census(table, POLICY)
    census.show()
    table.apply(a_slurm_node(name="one-more"))
    census.show()
    assert sum(shown("lockstep_workers").values()) == 1

    moments.append(COUNT_EVERY_S)
    census.show()
    assert sum(shown("lockstep_workers").values()) == 2


def test_who_no_longer_decides_tells_nothing_of_the_fleet() -> None:
    """Its successor does; the sum over both counts each worker once."""
    counted(a_slurm_node(), a_pod(), a_desired(a_view(), progress="draining")).forget()

    for gauge in ("lockstep_workers", "lockstep_pods", "lockstep_holds", "lockstep_drains"):
        assert shown(gauge) == {}


def a_mirror(*facts: Any) -> Mirror:
    """A mirror that holds these facts."""
    mirror = Mirror(Feed())  # type: ignore[arg-type]
    for fact in facts:
        mirror.table.apply(fact)
    return mirror


def test_each_source_says_how_old_it_is_and_whether_it_can_be_read() -> None:
    """A source that was never complete has no age."""
    as_of = clock.now() - timedelta(seconds=30)
    lost = SourceHealth(
        source="slurm.node", of="main", complete_as_of=as_of, last_error="no route", failing_since=as_of
    )
    never = SourceHealth(source="slurm.job", of="main")
    show_sources(a_mirror(lost, never, SourceHealth(source="kube", complete_as_of=clock.now())))

    ages = shown("lockstep_source_age_seconds")
    assert shown("lockstep_source_up") == {("slurm.node", "main"): 0, ("slurm.job", "main"): 1, ("kube", "_site"): 1}
    assert 30 <= ages["slurm.node", "main"] < 60
    assert ages["kube", "_site"] < 30
    assert ("slurm.job", "main") not in ages


def test_each_stream_says_how_full_it_is_and_how_far_behind_its_reader_is() -> None:
    """A stream without a limit has no share of it."""
    full = StreamState(created="now", first=1, last=100, messages=40, bytes=300, max_bytes=400)
    endless = StreamState(created="now", first=1, last=7, messages=7, bytes=70)
    show_streams("drain", a_mirror(), {"LOCKSTEP_FACTS": full, "LOCKSTEP_DEAD": endless})

    assert shown("lockstep_stream_used_ratio") == {("LOCKSTEP_FACTS",): 0.75}
    assert shown("lockstep_stream_bytes") == {("LOCKSTEP_FACTS",): 300, ("LOCKSTEP_DEAD",): 70}
    assert shown("lockstep_stream_limit_bytes") == {("LOCKSTEP_FACTS",): 400}
    assert shown("lockstep_stream_messages")["LOCKSTEP_FACTS",] == 40
    assert shown("lockstep_stream_last_sequence")["LOCKSTEP_DEAD",] == 7
    assert shown("lockstep_consumer_lag_messages")["drain", "LOCKSTEP_FACTS"] == 10
