"""What the stream's benchmark says of its numbers."""

from typing import Any
from xml.etree import ElementTree as ET

from tests.bench import stream_report as report

ROWS = [[10 * n, 50.0 + min(n, 5), 40.0, 20.0 + n % 2] for n in range(61)]
LEGS: dict[str, Any] = {
    "latency": {"p50_s": 0.001, "p99_s": 0.012},
    "backlog": {"read_per_s": 25_000, "read_cpu_us": 25.7, "publish_per_s": 11_000, "publish_cpu_us": 38.0},
    "decode": {"event_us": 6.3, "fact_us": 7.6},
    "soak": {
        "seconds": 600.0,
        "late_s": 0.05,
        "p50_s": 0.002,
        "p99_s": 0.014,
        "core_share": {"publisher": 0.05, "subscriber": 0.04, "nats-server": 0.03},
        "rss_mib": {"columns": ["second", "publisher", "subscriber", "nats-server"], "rows": ROWS},
    },
}


def a_result(**legs: Any) -> dict[str, Any]:
    """A whole run in which every target was reached, but for these legs."""
    return {"cores": 2, "load": 1.5, "legs": LEGS | legs}


def test_a_run_within_all_targets_misses_none() -> None:
    """Memory that grows at the beginning and then stays is flat."""
    assert report.missed(a_result()) == []
    assert "All targets are reached." in report.page(a_result())


def test_a_missed_target_is_named_with_both_numbers() -> None:
    """Too slow, too few, and memory that grows without end."""
    leak = {"columns": LEGS["soak"]["rss_mib"]["columns"], "rows": [[10 * n, 50, 40 + n / 10, 20] for n in range(61)]}
    result = a_result(
        latency={"p50_s": 0.001, "p99_s": 0.0305},
        backlog=LEGS["backlog"] | {"read_per_s": 9_000},
        soak=LEGS["soak"] | {"rss_mib": leak},
    )

    assert report.missed(result) == [
        "the same, p99: 30.5 ms, target 20 ms",
        "events that one subscriber keeps up with: 9,000 a second, target 10,000 a second",
        "soak: memory of the subscriber grows in ten minutes by: 6.0 MiB, target 2.0 MiB",
    ]
    assert "Not reached: the same, p99" in report.page(result)


def test_a_part_of_a_run_is_shown_without_the_rest() -> None:
    """A short soak says nothing of growth."""
    short = LEGS["soak"] | {"rss_mib": {"columns": ["second", "publisher"], "rows": [[0, 50], [10, 51]]}}
    text = report.table({"cores": 2, "load": 0, "legs": {"soak": short}})

    assert "p99" in text
    assert "memory" not in text


def test_the_picture_is_an_image_with_a_line_for_each_process() -> None:
    """Well-formed, and named."""
    image = ET.fromstring(report.picture(LEGS["soak"]["rss_mib"]))

    lines = image.findall("{http://www.w3.org/2000/svg}polyline")
    assert [len(line.attrib["points"].split()) for line in lines] == [61, 61, 61]
    assert "subscriber" in ET.tostring(image, encoding="unicode")
