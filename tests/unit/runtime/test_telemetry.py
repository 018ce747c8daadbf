"""Logs, outages, and the way from a line to its trace."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from lockstep.runtime.settings import LogSettings, Settings, TracingSettings
from lockstep.runtime.telemetry import KEYS, MAX_VALUE, Outage, setup_logging, trace_link, traced_as
from lockstep.runtime.tracing import span
from tests.spans import kept_spans


@pytest.fixture
def stderr(capsys: pytest.CaptureFixture[str]) -> Iterator[pytest.CaptureFixture[str]]:
    """What is logged."""
    yield capsys
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def lines(out: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """The log as data."""
    return [json.loads(line) for line in out.readouterr().err.splitlines()]


def test_a_line_is_json_where_nobody_watches(stderr: pytest.CaptureFixture[str]) -> None:
    """With the service, the level and the time in UTC."""
    setup_logging(LogSettings(), "drain")
    structlog.get_logger().info("Decided", worker="main/gpu-1")
    (line,) = lines(stderr)
    assert (line["event"], line["service"], line["level"], line["worker"]) == ("Decided", "drain", "info", "main/gpu-1")
    assert line["timestamp"].endswith("Z")
    assert line.keys() <= KEYS


def test_text_from_outside_stays_on_its_line_and_is_cut(stderr: pytest.CaptureFixture[str]) -> None:
    """A reason cannot forge a second line or fill the disk."""
    setup_logging(LogSettings(), "drain")
    structlog.get_logger().warning("Refused", reason='a\n{"event":"forged"}\x1b[2J' + "x" * 10_000)
    (line,) = lines(stderr)
    assert "\n" not in line["reason"]
    assert "\x1b" not in line["reason"]
    assert len(line["reason"]) == MAX_VALUE


def test_lines_below_the_level_are_not_written(stderr: pytest.CaptureFixture[str]) -> None:
    """Debugging is asked for."""
    setup_logging(LogSettings(level="warning", format="human"), "drain")
    structlog.get_logger().info("Small talk")
    assert stderr.readouterr().err == ""


def test_a_line_inside_a_span_names_the_trace(stderr: pytest.CaptureFixture[str]) -> None:
    """So that one leads to the other."""
    setup_logging(LogSettings(), "drain")
    with kept_spans(), span("look") as current:
        structlog.get_logger().info("Decided")
    assert lines(stderr)[0]["trace_id"] == f"{current.get_span_context().trace_id:032x}"


def test_an_outage_is_two_lines() -> None:
    """One when it begins, one when it ends, with how long it took."""
    with capture_logs() as logs:
        outage = Outage(structlog.get_logger(), "Slurm", cluster="main")
        outage.up()
        for _ in range(5):
            outage.down("connection refused")
        assert outage.failing
        outage.up()
        outage.up()
    assert [(line["event"], line["log_level"]) for line in logs] == [
        ("Slurm stopped answering", "warning"),
        ("Slurm answers again", "info"),
    ]
    assert logs[0]["error"] == "connection refused"
    assert logs[1]["after_s"] >= 0
    assert all(line.keys() - {"log_level"} <= KEYS for line in logs)


TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
UI = "http://jaeger:16686/trace/{trace_id}"


def settings(ui: str) -> Settings:
    """Settings with a place where traces are looked at."""
    return Settings(clusters=[], tracing=TracingSettings(ui=ui))


@pytest.mark.parametrize(
    ("ui", "traceparent", "link"),
    [
        (UI, TRACE, "http://jaeger:16686/trace/0af7651916cd43dd8448eb211c80319c"),
        ("", TRACE, ""),
        (UI, "", ""),
        (UI, TRACE[:-2] + "02", ""),
        (UI, "00-../../etc-b7ad6b7169203331-01", ""),
    ],
    ids=["a link", "nowhere to look", "no trace", "not sampled", "nonsense"],
)
def test_a_trace_is_linked_to_where_people_look_at_it(ui: str, traceparent: str, link: str) -> None:
    """Only one that was kept, and only where the settings say so."""
    assert trace_link(settings(ui), traceparent) == link


@pytest.mark.parametrize(
    ("traceparent", "fields"),
    [(TRACE, {"trace_id": TRACE[3:35]}), (TRACE[:-2] + "00", {}), ("", {}), ("00-a-b-01", {})],
)
def test_a_line_that_is_written_after_its_span_can_name_the_trace(traceparent: str, fields: dict[str, str]) -> None:
    """What is published for many at once is logged when all of it is stored."""
    assert traced_as(traceparent) == fields
