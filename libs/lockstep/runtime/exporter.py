"""Sends spans over OTLP from a thread of its own. While nobody takes them they are dropped, and that is said once."""

import logging
from collections.abc import Sequence

import structlog
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from lockstep.runtime.telemetry import Outage

QUEUE = 16_384
"""Spans that wait to be sent, 70 MB at most; the oldest are dropped first."""
EVERY_MS = 1_000
SEND_WITHIN_S = 5.0


def exporting(endpoint: str, service: str) -> SpanProcessor:
    """What takes finished spans at once, and sends them to `<endpoint>/v1/traces`. `service` is who says so in logs."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415  slow to import

    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL + 1)  # a line for each try; Outage says it once
    sender = OTLPSpanExporter(endpoint=endpoint.rstrip("/") + "/v1/traces", timeout=SEND_WITHIN_S)
    return BatchSpanProcessor(Quiet(sender, endpoint, service), max_queue_size=QUEUE, schedule_delay_millis=EVERY_MS)


class Quiet(SpanExporter):
    """An exporter whose outage is two lines."""

    def __init__(self, inner: SpanExporter, endpoint: str, service: str) -> None:
        self._inner = inner
        self._outage = Outage(structlog.get_logger(), "Trace collector", url=endpoint, service=service)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Sends them, or drops them."""
        result = self._inner.export(spans)
        if result is SpanExportResult.SUCCESS:
            self._outage.up()
        else:
            self._outage.down(f"{len(spans)} spans are dropped, and those that follow")
        return result

    def shutdown(self) -> None:
        """Nothing more is sent."""
        self._inner.shutdown()
