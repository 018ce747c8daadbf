"""What the words on the command line mean."""

import pytest

from lockstep.base.errors import BadInput
from lockstep.cli import choose
from lockstep.cli.exits import Exit, Stop
from tests.builders import a_slurm_node
from tests.unit.cli.seen import a_fleet, parts


def test_a_worker_is_found_by_name_or_with_its_cluster() -> None:
    """`gpu-7` and `main/gpu-7` are the same worker."""
    fleet = a_fleet(*parts(7))

    assert choose.worker(fleet, "gpu-7", ["main"]) == choose.worker(fleet, "main/gpu-7", ["main"]) == ("main", "gpu-7")


def test_a_name_that_two_clusters_have_must_be_said_in_full() -> None:
    """Nobody guesses which one is meant."""
    fleet = a_fleet(a_slurm_node(), a_slurm_node(cluster="test"))

    with pytest.raises(BadInput, match=r"main/gpu-7, test/gpu-7"):
        choose.worker(fleet, "gpu-7", ["main", "test"])
    assert choose.worker(fleet, "gpu-7", ["test"]) == ("test", "gpu-7")


def test_an_unknown_cluster_is_refused_and_the_known_ones_are_named() -> None:
    """A cluster that does not exist ends the command with code 3."""
    with pytest.raises(Stop, match=r"'mian'.*nearest: main") as told:
        choose.clusters(a_fleet(*parts(7)), "mian")

    assert told.value.code is Exit.NOT_FOUND


def test_host_lists_are_expanded_and_each_worker_comes_once() -> None:
    """`gpu-[1-2] gpu-1` is two workers."""
    fleet = a_fleet(*parts(1), *parts(2), *parts(7))

    assert choose.workers(fleet, ["gpu-[1-2]", "gpu-1"], ["main"]) == [("main", "gpu-1"), ("main", "gpu-2")]


def test_a_broken_host_list_says_where() -> None:
    """The text names what was typed and what is wrong with it."""
    with pytest.raises(BadInput, match=r"worker 'gpu-\[1-': bracket is not closed"):
        choose.workers(a_fleet(*parts(1)), ["gpu-[1-"], ["main"])


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("rack=1", True),
        ("rack==1", True),
        ("rack!=1", False),
        ("rack!=2", True),
        ("rack", True),
        ("!rack", False),
        ("!tier", True),
        ("rack=1, tier!=x", True),
        ("rack=1,tier=x", False),
        ("example.com/zone=", False),
    ],
)
def test_a_selector_reads_as_kubectl_reads_it(text: str, fits: bool) -> None:
    """Equality, inequality and presence, all of them."""
    assert choose.selector(text)({"rack": "1"}) is fits


@pytest.mark.parametrize("text", ["", " ", ",", "a=b,", "a b", "a>1", "=x", "a=b=c"])
def test_a_selector_that_cannot_be_read_is_refused(text: str) -> None:
    """An empty selector never means everybody."""
    with pytest.raises(BadInput, match=r"want key=value"):
        choose.selector(text)


def test_what_was_typed_is_shown_again_without_its_control_characters() -> None:
    """A terminal cannot be played with through an error message."""
    with pytest.raises(Stop) as told:
        choose.worker(a_fleet(*parts(7)), "\x1b[2Jgpu-7" + "x" * 500, ["main"])

    assert "\x1b" not in str(told.value)
    assert len(str(told.value)) < 200
