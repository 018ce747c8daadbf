"""What the benchmark says of its numbers."""

from typing import Any
from xml.etree import ElementTree as ET

import pytest

from tests.bench import report
from tests.bench.legs import spread

ONE = {"count": 100, "p50_s": 0.03, "p99_s": 0.2, "max_s": 0.3}
ALL = {"all_s": 0.5, "cordoning_s": 3.0, "from_first_s": 3.5}
LEGS: dict[str, Any] = {
    "start": {"protected_s": 7.0},
    **dict.fromkeys(("cordon", "uncordon", "drain", "undrain"), ONE),
    **dict.fromkeys(("cordon-all", "uncordon-all", "drain-all", "undrain-all"), ALL),
    "idle": {
        "machine": {"core_share": 0.2},
        "lockstep": {"core_share": 0.03, "rss_mib": 120},
        "nats-server": {"core_share": 0.01, "rss_mib": 30},
        "etcd": {"core_share": 0.5, "rss_mib": 900},
    },
}


def a_result(**legs: Any) -> dict[str, Any]:
    """A whole run in which every target was reached, but for these legs."""
    return {"workers": 1000, "machine": {"cores": 2, "kubernetes": "v1", "slurm": "26.05"}, "legs": LEGS | legs}


def test_a_run_within_all_targets_misses_none() -> None:
    """What other processes cost while idle is not held against Lockstep."""
    assert report.missed(a_result()) == []


def test_a_missed_target_is_named_with_both_numbers() -> None:
    """On the page too."""
    result = a_result(cordon={**ONE, "p99_s": 0.4}, **{"drain-all": {"all_s": 6.5}})

    assert report.missed(result) == [
        "cordon → DRAIN: 400 ms, target 250 ms",
        "all drained in Slurm → all pod conditions: 6.50 s, target 5.00 s",
    ]
    assert "Not reached: cordon → DRAIN: 400 ms" in report._page(result)


def test_a_row_compares_what_both_have() -> None:
    """The ratio is that of the first number that slurm-operator has too; a leg that was not measured has no row."""
    result = a_result()
    del result["legs"]["drain"]
    rows = {cells[0]: cells[-1] for cells in report._cells(result)}

    assert rows["cordon → DRAIN"] == "173x"
    assert rows["uncordon → no DRAIN"] == ""
    assert rows["idle"] == "4.4x"
    assert "drain in Slurm → pod condition" not in rows


def test_the_picture_is_well_formed() -> None:
    """Two bars for each leg that can be compared."""
    drawn = ET.fromstring(report.picture(report._bars(a_result())))

    assert len(drawn.findall("{http://www.w3.org/2000/svg}rect")) == 1 + 2 + 2 * 5


def test_the_spread_of_a_hundred_samples() -> None:
    """The 99th percentile is not the maximum."""
    found = spread([number / 100 for number in range(1, 101)])

    assert found["count"] == 100
    assert found["p50_s"] == pytest.approx(0.505)
    assert found["p99_s"] == pytest.approx(0.99, abs=0.005)
    assert found["max_s"] == 1
