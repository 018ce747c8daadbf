"""What becomes of a change: its events, its fact, the flow that it begins; also while nobody looked."""

import msgspec

from lockstep.contracts.events import (
    ReservationEntered,
    ReservationLeft,
    SlurmNodeVanished,
    SlurmPhaseChanged,
    SlurmStateChanged,
)
from lockstep.contracts.facts import SlurmNode
from tests.spans import header_of, kept_spans
from tests.unit.slurm_poller.scene import Scene, a_node


async def test_after_a_restart_only_differences_are_told() -> None:
    """Facts of a former run carry its epoch; what changed meanwhile is an event, what is missing is gone."""
    first = Scene(a_node("a"), a_node("b"), a_node("c"))
    await first.cycle()
    known = [msgspec.structs.replace(f, epoch=4) for f in first.bus.told if isinstance(f, SlurmNode)]
    second = Scene(a_node("a"), a_node("b", "IDLE+DRAIN"), known=known)
    await second.cycle()

    assert second.news()[:3] == ["b", "gone c", "beat slurm.node"]
    assert [type(event) for event in second.bus.happened] == [SlurmStateChanged, SlurmPhaseChanged, SlurmNodeVanished]
    assert all(fact.epoch == 0 for fact in second.bus.told)


async def test_each_change_begins_a_flow_of_its_own_and_the_first_reading_none() -> None:
    """Two jobs that begin are two traces; each goes along with the node's fact and with the event about it."""
    with kept_spans("slurm-poller") as spans:
        scene = Scene(a_node("a"), a_node("b"), a_node("c"))
        await scene.cycle()
        assert (spans.all, scene.bus.traces) == ([], {})

        scene.slurm.now(a_node("a", "ALLOCATED"), a_node("b", "ALLOCATED"), a_node("c"))
        await scene.cycle()
    headers = {str((span.attributes or {})["lockstep.worker"]): header_of(span) for span in spans.all}
    assert headers.keys() == {"a", "b"}
    assert len({header[3:35] for header in headers.values()}) == 2
    happened = {event.id: headers[event.identity] for event in scene.bus.happened}
    assert happened
    facts = {f"lockstep.fact.slurm.node.main.{name}": header for name, header in headers.items()}
    assert scene.bus.traces == facts | happened


async def test_what_happened_comes_before_the_fact_and_is_its_cause() -> None:
    """A crash in between repeats the event and loses none; whoever decides on the fact can name it."""
    scene = Scene(a_node("a"))
    await scene.cycle()
    scene.bus.order_of_all.clear()
    scene.slurm.now(a_node("a", "IDLE+DRAIN", reason="bad DIMM"))
    await scene.cycle()

    assert scene.bus.order_of_all[:4] == [
        "slurm-node.state-changed.v1",
        "slurm-node.phase-changed.v1",
        "slurm-node.reason-changed.v1",
        "a",
    ]
    assert scene.bus.causes == {"lockstep.fact.slurm.node.main.a": scene.bus.happened[0].id}


async def test_a_reservation_is_entered_and_left_when_slurm_says_so() -> None:
    """From one to the next is both; what was there before anybody looked has not happened now."""
    scene = Scene(a_node("a", reservation="weekly"), a_node("b"))
    await scene.cycle()
    for reservation in ("", "weekly", "other", "other"):
        scene.slurm.now(a_node("a", reservation=reservation), a_node("b"))
        await scene.cycle()

    assert [(type(event), getattr(event, "reservation", "")) for event in scene.bus.happened] == [
        (ReservationLeft, "weekly"),
        (ReservationEntered, "weekly"),
        (ReservationLeft, "weekly"),
        (ReservationEntered, "other"),
    ]
    assert len({event.id for event in scene.bus.happened}) == 4
