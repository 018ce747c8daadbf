"""`lockstep release`: which hold is meant, whose it is, and what ends it."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from lockstep.base.errors import BadInput
from lockstep.cli.exits import Exit, Stop
from lockstep.cli.override import Target, regarding
from lockstep.cli.release import Sight, _faults, meant, permit
from lockstep.contracts.facts import Fact
from lockstep.contracts.hold import WorkerSelector
from tests.builders import a_hold, a_slurm_node
from tests.unit.cli.seen import a_fleet, args, parts

ME = "ops@example.com"


def sight(*facts: Fact, me: str = ME, clusters: Sequence[str] = ("main",)) -> Sight:
    """What a person sees."""
    return Sight.of(a_fleet(*facts), clusters, me)


def ids(word: str, seen: Sight, **how: Any) -> list[str]:
    """The holds that a word means."""
    return [row.id for row in meant(word, seen, **({"all_mine": False} | how))]


@pytest.mark.parametrize("word", ["dimm", "slurm/dimm", "hold/slurm/dimm", "gpu-7", "main/gpu-7"])
def test_a_hold_is_meant_by_its_name_its_id_or_its_only_worker(word: str) -> None:
    """All that a person may have at hand."""
    assert ids(word, sight(*parts(7), a_hold())) == ["hold/slurm/dimm"]


def test_a_worker_with_several_holds_does_not_lose_one_by_chance() -> None:
    """The holds are listed with their owners, and one must be named."""
    seen = sight(*parts(7), a_hold(), a_hold("fan", owner="eve"))

    with pytest.raises(
        BadInput, match=r"has 2 holds; name one.*hold/slurm/dimm of ops@example.com, hold/slurm/fan of eve"
    ):
        ids("gpu-7", seen)


def test_all_mine_ends_ones_own_holds_on_a_worker_and_no_other() -> None:
    """`--all-mine` never touches what is somebody else's."""
    seen = sight(*parts(7), a_hold(), a_hold("reboot"), a_hold("fan", owner="eve"))

    assert ids("gpu-7", seen, all_mine=True) == ["hold/slurm/dimm", "hold/slurm/reboot"]


def test_a_hold_of_many_workers_is_not_ended_by_the_name_of_one() -> None:
    """Releasing gpu-7 would release gpu-1 too; the person must mean that."""
    wide = a_hold("rack", workers=WorkerSelector(names=["gpu-1", "gpu-7"]))
    seen = sight(*parts(1), *parts(7), wide)

    with pytest.raises(BadInput, match=r"kept out with others by hold/slurm/rack \(2 workers\)"):
        ids("gpu-7", seen)
    assert ids("rack", seen) == ["hold/slurm/rack"]


def test_a_word_that_is_a_hold_and_a_worker_is_not_guessed() -> None:
    """A hold may be called like a worker; then it is said in full."""
    seen = sight(*parts(7), a_hold("gpu-7"))

    with pytest.raises(BadInput, match=r"means hold/slurm/gpu-7 of cluster main, worker main/gpu-7"):
        ids("gpu-7", seen)
    assert ids("hold/slurm/gpu-7", seen) == ["hold/slurm/gpu-7"]


def test_a_slurm_hold_of_two_clusters_needs_the_cluster() -> None:
    """`slurm/gpu-7` is another node in each cluster."""
    seen = sight(
        a_slurm_node("IDLE+DRAIN", reason="fan"),
        a_slurm_node("IDLE+DRAIN", reason="fan", cluster="test"),
        clusters=["main", "test"],
    )

    with pytest.raises(BadInput, match=r"give --cluster"):
        ids("slurm/gpu-7", seen)


def test_nothing_to_release_is_a_no() -> None:
    """A worker without holds ends with code 1; an unknown word with code 3 and the nearest names."""
    with pytest.raises(Stop) as none:
        ids("gpu-7", sight(*parts(7)))
    with pytest.raises(Stop, match=r"nearest: .*gpu-7") as unknown:
        ids("gpu-77", sight(*parts(7)))

    assert (none.value.code, unknown.value.code) == (Exit.NO, Exit.NOT_FOUND)


def test_ones_own_hold_may_be_ended() -> None:
    """The owner is who the API server says."""
    seen = sight(*parts(7), a_hold())

    permit(seen.target(seen.rows[0]), ME, override=False)


@pytest.mark.parametrize("me", ["eve", ""])
def test_somebody_elses_hold_is_refused_without_override(me: str) -> None:
    """Also for a person whom the API server does not name; the owner is told."""
    seen = sight(*parts(7), a_hold(), me=me)

    with pytest.raises(Stop, match=r"is of ops@example.com, not of .*--override --why") as told:
        permit(seen.target(seen.rows[0]), me, override=False)

    assert told.value.code is Exit.DENIED
    permit(seen.target(seen.rows[0]), me, override=True)


def test_a_cordon_is_nobodys_own_and_the_refusal_says_how_it_ends() -> None:
    """Even the person who cordoned uses kubectl, or insists."""
    slurm, pod, node = parts(7)
    seen = sight(slurm, pod, msgspec.structs.replace(node, unschedulable=True, cordoned_by=ME))

    with pytest.raises(Stop, match=r"it ends by: kubectl uncordon host-7"):
        permit(seen.target(seen.rows[0]), ME, override=False)


def test_the_hold_that_was_looked_at_is_the_one_that_is_deleted() -> None:
    """A new Hold by the same name has another uid."""
    seen = sight(*parts(7), a_hold())

    assert seen.target(seen.rows[0]).uid == "hold-dimm"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--override"], "--why: is empty"),
        (["--override", "--why", "x" * 300], "--why: has 300 characters"),
        (["--override", "--why", "a\x07b"], "control or invisible"),
        (["--why", "because"], "goes with --override"),
        (["--override", "--why", "w", "--all-mine"], "Give one of them"),
    ],
)
def test_an_override_says_why(words: list[str], said: str) -> None:
    """The record of an override has a reason that can be read."""
    assert any(said in fault for fault in _faults(args("release", "dimm", *words)))


@pytest.mark.parametrize(
    ("ident", "about"),
    [
        ("hold/slurm/dimm", ("Hold", "slurm", "dimm")),
        ("cordon/host-7", ("Node", "", "host-7")),
        ("condition/host-7/DiskPressure", ("Node", "", "host-7")),
        ("pod-cordon/slurm/gpu-7", ("Pod", "slurm", "gpu-7")),
        ("slurm/gpu-7", ("Pod", "slurm", "gpu-7")),
    ],
)
def test_an_override_is_told_at_the_object_it_is_about(ident: str, about: tuple[str, str, str]) -> None:
    """`kubectl describe` of that object shows who ended what."""
    seen = sight(*parts(7), a_hold())
    row = msgspec.structs.replace(seen.rows[0], id=ident)

    told = regarding(Target(row=row, views=list(seen.views), mine=False))

    assert (told.kind, told.namespace, told.name) == about
