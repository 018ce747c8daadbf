import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.slurm.hostlist import compress, expand

NAMES = st.from_regex(r"[a-z]([-_.a-z0-9]{0,6}[a-z0-9])?", fullmatch=True) | st.from_regex(
    r"(gpu|rack[0-9]_b)-?0{0,3}[0-9]{1,4}", fullmatch=True
)


@given(st.sets(NAMES, max_size=40))
def test_compressed_and_expanded_is_the_same_set(names: set[str]) -> None:
    """No name is lost, none is made up, none comes twice."""
    assert sorted(expand(compress(names))) == sorted(names)


@given(st.sets(st.integers(0, 500), min_size=1), st.sampled_from(["d", "03d", "05d"]))
def test_numbered_names_become_one_item(numbers: set[int], width: str) -> None:
    """A fleet of one kind is one item, whatever its zeros."""
    listed = compress(f"gpu-{number:{width}}" for number in numbers)
    assert listed.count("gpu-") == 1


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("x", ["x"]),
        ("gpu-[01-03,7],login", ["gpu-01", "gpu-02", "gpu-03", "gpu-7", "login"]),
        ("rack[0-1]_blade[0-1]", ["rack0_blade0", "rack0_blade1", "rack1_blade0", "rack1_blade1"]),
        ("a,b[001,003],c", ["a", "b001", "b003", "c"]),
        ("n[9-11]", ["n9", "n10", "n11"]),
        ("n[099-101]", ["n099", "n100", "n101"]),
        ("exam-[4,3]", ["exam-4", "exam-3"]),
        (" a , b ", ["a", "b"]),
        ("x[1-2]-y", ["x1-y", "x2-y"]),
        ("a[5]", ["a5"]),
    ],
)
def test_lists_that_slurm_writes_are_read(text: str, names: list[str]) -> None:
    """Padding, several brackets, plain and ranged names mixed, single numbers."""
    assert expand(text) == names


@pytest.mark.parametrize(
    "text",
    [
        "a,,b",
        "a,",
        ",a",
        "a[3-1]",
        "a[1-3",
        "a]",
        "a[]",
        "a[1,]",
        "a[x]",
        "a[1-2-3]",
        "a[[1]]",
        "a b",
        "a[-1]",
        "a[1 -3]",
    ],
)
def test_a_malformed_list_raises_and_says_where(text: str) -> None:
    """It never guesses: a wrong name would be a wrong drain."""
    with pytest.raises(ValueError, match=r"character|bracket|range"):
        expand(text)


@pytest.mark.parametrize(
    "text", ["n[0-99999999999]", "a[0-999]b[0-999]", "n[1-65537]", "n[99999999999999999999-999999999999999999999]"]
)
def test_a_list_without_measure_is_refused_before_it_is_made(text: str) -> None:
    """A few characters cannot fill the memory."""
    with pytest.raises(ValueError, match=r"more than|too long|not a number"):
        expand(text)


def test_the_limit_counts_all_items() -> None:
    """Not only one of them."""
    assert len(expand("a[1-3],b[1-3]", limit=6)) == 6
    with pytest.raises(ValueError, match="more than 5"):
        expand("a[1-3],b[1-3]", limit=5)


@pytest.mark.parametrize("name", ["", "a b", "a,b", "a[1]", "a\nb"])
def test_what_is_no_name_is_not_compressed(name: str) -> None:
    """A name with Slurm's own signs in it would stand for other nodes."""
    with pytest.raises(ValueError, match="not a host name"):
        compress(["gpu-1", name])


def test_ranges_are_written_short() -> None:
    """What goes into a bulk write for a whole block."""
    assert compress(f"gpu-{number}" for number in range(1, 1001)) == "gpu-[1-1000]"
    assert compress(["gpu-3", "gpu-1", "gpu-2", "gpu-7", "login"]) == "gpu-[1-3,7],login"
    assert compress(["gpu-099", "gpu-100"]) == "gpu-[099-100]"
    assert compress(["gpu", "gpu1"]) == "gpu,gpu1"
    assert compress([]) == ""
