"""Which events `lockstep events` asks NATS for, and which of those it shows."""

from itertools import combinations
from typing import Any

import pytest

from lockstep.base.errors import BadInput
from lockstep.bus.envelope import Unknown
from lockstep.cli.exits import Exit, Stop
from lockstep.cli.filters import MAX_SUBJECTS, Wanted, block_of, tags_of, workers_of
from lockstep.contracts import events as e
from lockstep.contracts.common import WorkerRef
from lockstep.contracts.subjects import event_subject
from tests.builders import HOST, NOW, a_slurm_node, a_table
from tests.unit.cli.life import CORDON, DIMM, REF, a_life, at, seen

OTHER = WorkerRef(cluster="spare", name="gpu-8", kube_node="host-8")


def wanted(**fields: Any) -> Wanted:
    """What these options ask for."""
    kinds, words = fields.pop("kinds", []), fields.pop("workers", [])
    return Wanted(tags=tags_of(kinds), workers=workers_of(words, fields.get("cluster")), **fields)


def test_a_kind_is_a_noun_a_type_or_a_version() -> None:
    """`hold` is all about holds; `hold.placed` is one type."""
    assert tags_of(["hold.placed"]) == tags_of(["hold.placed.v1"]) == {"hold.placed.v1"}
    assert tags_of(["hold"]) > {"hold.placed.v1", "hold.released.v1"}
    assert not any(tag.startswith("worker") for tag in tags_of(["hold"]))
    with pytest.raises(BadInput, match=r"'hol': there is none; want one of drain.acted.v1"):
        tags_of(["hol"])


@pytest.mark.parametrize(
    ("asked", "subjects"),
    [
        ({}, ["lockstep.event.>"]),
        ({"cluster": "main"}, ["lockstep.event.*.*.*.main.*"]),
        ({"kinds": ["hold.placed"]}, ["lockstep.event.hold.placed.v1.*.*"]),
        (
            {"kinds": ["source"], "cluster": "main"},
            ["lockstep.event.source.back.v1.*.*", "lockstep.event.source.lost.v1.*.*"],
        ),
        ({"workers": ["gpu-7"]}, ["lockstep.event.*.*.*.*.gpu-7"]),
        ({"workers": ["main/gpu.7"]}, ["lockstep.event.*.*.*.main.gpu_2e7"]),
        ({"workers": ["gpu-[1-2]"], "cluster": "main"}, [f"lockstep.event.*.*.*.main.gpu-{n}" for n in (1, 2)]),
        (
            {"kinds": ["node.cordoned", "hold.placed"], "workers": ["gpu-7"], "node": HOST},
            ["lockstep.event.hold.placed.v1.*.gpu-7", "lockstep.event.node.cordoned.v1._site.host-7"],
        ),
        ({"kinds": ["job.ended"], "workers": ["gpu-7"]}, ["lockstep.event.job.ended.v1.*.*"]),
    ],
)
def test_the_server_filters_what_it_can(asked: dict[str, Any], subjects: list[str]) -> None:
    """Only what was asked for is sent over the wire."""
    assert wanted(**asked).subjects() == subjects


def test_a_hold_is_looked_for_among_what_can_name_it() -> None:
    """Nobody reads the states of all nodes to find one hold."""
    subjects = wanted(hold="dimm").subjects()

    assert all(subject.split(".")[2] in {"hold", "request"} for subject in subjects)
    assert "lockstep.event.hold.placed.v1.*.*" in subjects


def test_very_many_workers_are_told_apart_here() -> None:
    """A reader with thousands of subjects would be slow on the server."""
    asked = wanted(workers=[f"gpu-[1-{MAX_SUBJECTS + 1}]"], cluster="main")

    assert asked.subjects() == ["lockstep.event.*.*.*.main.*"]
    assert asked.takes(seen(e.HoldPlaced(id="1", at=NOW, worker=REF, hold=DIMM)))
    assert not asked.takes(
        seen(e.HoldPlaced(id="1", at=NOW, worker=WorkerRef(cluster="main", name="cpu-1"), hold=DIMM))
    )


@pytest.mark.parametrize(
    "asked",
    [
        {"workers": ["gpu-[1-3]", "main/gpu-9"]},
        {"kinds": ["hold", "node"], "workers": ["gpu-[1-3]"]},
        {"node": HOST, "cluster": "main"},
        {"hold": "dimm"},
    ],
)
def test_no_subject_overlaps_another(asked: dict[str, Any]) -> None:
    """NATS refuses a reader with two subjects that can be the same message's."""
    pairs = combinations([subject.split(".") for subject in wanted(**asked).subjects()], 2)

    assert not any(all("*" in (a, b) or a == b for a, b in zip(*pair, strict=True)) for pair in pairs)


@pytest.mark.parametrize(
    ("asked", "ids"),
    [
        ({"hold": "dimm"}, ["accepted", "held2", "freed2"]),
        ({"hold": "hold/slurm/dimm"}, ["accepted", "held2", "freed2"]),
        ({"hold": CORDON.id}, ["held", "freed"]),
        ({"kinds": ["node"], "workers": ["gpu-7"]}, ["cordoned", "rebooted", "uncordoned"]),
        ({"kinds": ["job"], "workers": ["gpu-7"]}, ["job"]),
        ({"kinds": ["hold", "source"], "cluster": "main"}, ["held", "lost", "back", "held2", "freed", "freed2"]),
        ({"node": "host-8"}, ["other"]),
        ({"workers": ["gpu-8"]}, ["other"]),
        ({"workers": ["main/gpu-8"]}, []),
        ({"cluster": "spare"}, ["cordoned", "rebooted", "uncordoned", "other"]),
    ],
)
def test_what_was_not_asked_for_is_left_out(asked: dict[str, Any], ids: list[str]) -> None:
    """Whatever a subject cannot tell apart is told apart here."""
    other = e.DrainSet(id="other", **at(0), worker=OTHER, words="w")

    assert [event.id for event in [*a_life(), other] if wanted(**asked).takes(seen(event))] == ids


@pytest.mark.parametrize("asked", [{}, {"workers": ["gpu-7"]}, {"node": HOST}, {"hold": "dimm"}, {"kinds": ["hold"]}])
def test_whatever_is_taken_is_also_asked_for(asked: dict[str, Any]) -> None:
    """The subjects are never narrower than the test."""
    subjects = [subject.split(".") for subject in wanted(**asked).subjects()]
    taken = [event_subject(event).split(".") for event in a_life() if wanted(**asked).takes(seen(event))]

    assert taken
    for parts in taken:
        assert any(
            all(want in {"*", part} for want, part in zip(subject, parts, strict=False)) or subject[-1] == ">"
            for subject in subjects
        )


@pytest.mark.parametrize(
    ("asked", "is_taken"),
    [({}, True), ({"workers": ["gpu-7"]}, True), ({"workers": ["gpu-8"]}, False), ({"hold": "x"}, False)],
)
def test_an_event_of_a_newer_version_is_judged_by_its_subject(asked: dict[str, Any], is_taken: bool) -> None:
    """What it says nobody here knows."""
    assert wanted(**asked).takes(seen(Unknown("gpu.healed.v1", "a newer kind"))) is is_taken


def test_a_block_is_that_of_slurms_topology() -> None:
    """Slurm writes the units of each topology behind its name."""
    table = a_table(
        a_slurm_node(name="gpu-1", topology="ib:root:leaf1,nvl:rack01"),
        a_slurm_node(name="gpu-2", topology="nvl:rack01"),
        a_slurm_node(name="gpu-3", topology="nvl:rack02"),
        a_slurm_node(name="cpu-1"),
    )

    assert block_of(table, "rack01", ["main"]) == {("main", "gpu-1"), ("main", "gpu-2")}
    assert block_of(table, "leaf1", ["main"]) == {("main", "gpu-1")}
    with pytest.raises(Stop, match="'rack03': there is none of that name; nearest: rack0"):
        block_of(table, "rack03", ["main"])
    with pytest.raises(Stop, match="'rack01': Slurm tells no worker's topology"):
        block_of(table, "rack01", ["spare"])


def test_an_unknown_topology_is_no_empty_block() -> None:
    """It is said, with the code for what cannot be found."""
    with pytest.raises(Stop, match="Slurm tells no worker's topology") as stop:
        block_of(a_table(a_slurm_node()), "rack01", ["main"])

    assert stop.value.code is Exit.NOT_FOUND
