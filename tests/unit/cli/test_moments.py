"""Times and lengths of time, as people write them."""

from datetime import timedelta

import pytest

from lockstep.base.errors import BadInput
from lockstep.cli.moments import between, lasting, moment
from tests.builders import NOW


@pytest.mark.parametrize(
    ("text", "ago"),
    [
        ("now", timedelta()),
        ("10m", timedelta(minutes=10)),
        ("2d", timedelta(days=2)),
        ("1d12h", timedelta(days=1, hours=12)),
        ("2026-12-01T06:00:00Z", timedelta(hours=6)),
        ("2026-12-01T07:00:00+01:00", timedelta(hours=6)),
    ],
)
def test_a_moment_is_now_so_long_ago_or_a_time(text: str, ago: timedelta) -> None:
    """Whatever zone it is written in, it is one moment."""
    assert moment("--since", text, NOW) == NOW - ago


@pytest.mark.parametrize("text", ["", "10", "d", "-1d", "yesterday", "2026-12-01T06:00:00", "9" * 40 + "h", "9999999d"])
def test_a_moment_that_cannot_be_read_is_refused(text: str) -> None:
    """The text names the field and says what is allowed."""
    with pytest.raises(BadInput, match=r"--until '.*': want how long ago, as 10m, 2h or 3d, or a time"):
        moment("--until", text, NOW)


def test_a_stretch_ends_after_it_begins() -> None:
    """Else there would be nothing in it, and nobody would know why."""
    assert between("2h", "1h", NOW) == (NOW - timedelta(hours=2), NOW - timedelta(hours=1))
    assert between(None, None, NOW) == (None, None)
    with pytest.raises(BadInput, match=r"--until '2h': want a time after --since '1h'"):
        between("1h", "2h", NOW)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (-5, "0 s"),
        (59.4, "59 s"),
        (61, "1 min 1 s"),
        (600, "10 min"),
        (3599, "59 min"),
        (7980, "2 h 13 min"),
        (10800, "3 h"),
        (90 * 3600, "3 d 18 h"),
    ],
)
def test_a_length_of_time_has_its_two_largest_units(seconds: float, text: str) -> None:
    """As a person would say it."""
    assert lasting(seconds) == text
