"""Logs, outages and traces."""

import asyncio
import gc
import json
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from opentelemetry import trace
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from structlog.testing import capture_logs

from lockstep.runtime.settings import LogSettings, TracingSettings
from lockstep.runtime.telemetry import (
    KEYS,
    MAX_VALUE,
    Outage,
    current_traceparent,
    setup_logging,
    setup_tracing,
    span,
)

_EXPORTER = InMemorySpanExporter()


@pytest.fixture(scope="module", autouse=True)
def _tracing() -> None:
    """One provider a process, as in life."""
    setup_tracing(TracingSettings(), "test", processor=SimpleSpanProcessor(_EXPORTER))


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    """Finished spans of this test."""
    _EXPORTER.clear()
    yield _EXPORTER
    _EXPORTER.clear()


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
    with span("look") as current:
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


def test_a_span_continues_the_trace_that_came_with_the_message(spans: InMemorySpanExporter) -> None:
    """The next service's span is the child of the sender's."""
    with span("watch"):
        sent = current_traceparent()
    assert current_traceparent() == ""
    with span("decide", parent=sent, links=[sent, "nonsense"]):
        pass
    first, second = spans.get_finished_spans()
    assert second.parent is not None
    assert second.parent.span_id == first.context.span_id
    assert second.context.trace_id == first.context.trace_id
    assert [link.context.span_id for link in second.links] == [first.context.span_id]


def test_a_broken_traceparent_starts_a_new_trace(spans: InMemorySpanExporter) -> None:
    """It comes from outside."""
    with span("decide", parent="00-zz"):
        pass
    assert spans.get_finished_spans()[0].parent is None


def test_an_error_marks_the_span_and_goes_on(spans: InMemorySpanExporter) -> None:
    """The trace shows where it failed."""
    with pytest.raises(ValueError, match="no"), span("write"):
        raise ValueError("no")
    assert spans.get_finished_spans()[0].status.status_code is trace.StatusCode.ERROR


async def test_a_hundred_flows_at_once_keep_their_traces_apart(spans: InMemorySpanExporter) -> None:
    """Each message carries its own context through the loop."""
    queue: asyncio.Queue[tuple[int, str]] = asyncio.Queue()

    async def send(number: int) -> None:
        with span(f"send-{number}"):
            await asyncio.sleep(0)
            await queue.put((number, current_traceparent()))

    async def handle(number: int, parent: str) -> None:
        with span(f"handle-{number}", parent=parent):
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        for number in range(100):
            group.create_task(send(number))
        for _ in range(100):
            group.create_task(handle(*await queue.get()))
    gc.collect(0)
    by_name = {one.name: one for one in spans.get_finished_spans()}
    for number in range(100):
        sent, handled = by_name[f"send-{number}"], by_name[f"handle-{number}"]
        assert handled.context.trace_id == sent.context.trace_id
        assert handled.parent is not None
        assert handled.parent.span_id == sent.context.span_id
    assert len({one.context.trace_id for one in by_name.values()}) == 100
