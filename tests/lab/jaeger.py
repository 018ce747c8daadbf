"""Jaeger, which takes traces and answers questions about them. Started on demand; it remembers until it ends.

>>> lab.jaeger.up()                               # builds it the first time
>>> Lockstep(lab, settings={"tracing": lab.jaeger.settings})
>>> lab.jaeger.find("lockstep-drain", {"lockstep.worker": "gpu-1"})
>>> lab.jaeger.trace("5b8a…")
"""

import http.client
import json
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from . import paths, ports
from .build import JAEGER, build
from .processes import Processes
from .progress import step, wait_for

NAME = "jaeger"
KEPT = 20_000
"""Traces in memory."""
_CONFIG = {
    "service": {
        "extensions": ["jaeger_storage", "jaeger_query"],
        "pipelines": {"traces": {"receivers": ["otlp"], "exporters": ["jaeger_storage_exporter"]}},
        "telemetry": {"metrics": {"level": "none"}, "logs": {"level": "warn"}},
    },
    "extensions": {
        "jaeger_storage": {"backends": {"memory": {"memory": {"max_traces": KEPT}}}},
        "jaeger_query": {
            "storage": {"traces": "memory"},
            "http": {"endpoint": f"{ports.LOOPBACK}:{ports.JAEGER}"},
            "grpc": {"endpoint": f"{ports.LOOPBACK}:{ports.JAEGER_GRPC}"},
        },
    },
    "receivers": {"otlp": {"protocols": {"http": {"endpoint": f"{ports.LOOPBACK}:{ports.OTLP}"}}}},
    "exporters": {"jaeger_storage_exporter": {"trace_storage": "memory"}},
}


@dataclass(frozen=True)
class Span:
    """A span as Jaeger shows it. Times are seconds since 1970."""

    trace: str
    id: str
    parent: str
    """Empty: it began the trace."""
    links: tuple[str, ...]
    """The traces of other flows that it names."""
    service: str
    name: str
    start: float
    seconds: float
    tags: Mapping[str, Any] = field(repr=False)

    @property
    def kind(self) -> str:
        """`client`, `producer`, `consumer` or `internal`."""
        return str(self.tags.get("span.kind", "internal"))


class Jaeger:
    """The lab's Jaeger, on loopback only."""

    url = f"http://{ports.LOOPBACK}:{ports.JAEGER}"
    otlp = f"http://{ports.LOOPBACK}:{ports.OTLP}"
    settings: Mapping[str, str] = {"endpoint": otlp, "ui": f"{url}/trace/{{trace_id}}"}
    """What `tracing` is to be in Lockstep's settings."""

    def __init__(self, processes: Processes) -> None:
        """Use (or start) it."""
        self._processes = processes

    def up(self) -> None:
        """Build it if it never was, start it if it does not run; ready when it takes and shows traces.

        Raises:
            BuildError: Go is missing, or the build failed.
        """
        build(JAEGER)
        if self._processes.alive(NAME):
            return
        with step("Jaeger"):
            path = paths.write(paths.STATE / "jaeger.yaml", json.dumps(_CONFIG, indent=1))
            self._processes.start(NAME, [JAEGER.path("jaeger"), f"--config={path}"])
            wait_for(f"Jaeger (log: {self._processes.log(NAME)})", self._answers, 30, 0.05)

    def down(self) -> None:
        """End it; what it knew is lost."""
        self._processes.forget(NAME)

    def services(self) -> list[str]:
        """The services of which it has spans."""
        return sorted(self._get("/api/services") or [])

    def trace(self, trace_id: str) -> list[Span]:
        """The spans of one trace, the earliest first; empty while it knows none."""
        return next(iter(_traces(self._get(f"/api/traces/{trace_id}"))), [])

    def find(self, service: str, tags: Mapping[str, str], *, since_s: float = 600, limit: int = 50) -> list[list[Span]]:
        """The traces in which a service has a span with these tags, the oldest first."""
        query = {"service": service, "tags": json.dumps(tags), "lookback": f"{since_s:g}s", "limit": limit}
        return sorted(_traces(self._get(f"/api/traces?{urlencode(query)}")), key=lambda spans: spans[0].start)

    def text(self, trace_id: str) -> str:
        """All that it shows of a trace, as it is."""
        return json.dumps(self._get(f"/api/traces/{trace_id}"))

    def _get(self, path: str) -> Any:
        """The data of an answer; None for a trace that is not known."""
        connection = http.client.HTTPConnection(ports.LOOPBACK, ports.JAEGER, timeout=10)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise RuntimeError(f"Jaeger answers {answer.status} to {path}: {body[:300].decode(errors='replace')}")
        return json.loads(body)["data"]

    def _answers(self) -> bool:
        self._processes.pid(NAME)
        try:
            self.services()
            socket.create_connection((ports.LOOPBACK, ports.OTLP), timeout=2).close()
        except (OSError, RuntimeError):
            return False
        return True


def _traces(data: Sequence[Mapping[str, Any]] | None) -> Iterator[list[Span]]:
    for trace in data or []:
        services = {key: process["serviceName"] for key, process in trace["processes"].items()}
        yield sorted((_span(span, services) for span in trace["spans"]), key=lambda span: span.start)


def _span(span: Mapping[str, Any], services: Mapping[str, str]) -> Span:
    """Jaeger tells parents and links alike: a reference within the trace as a child is the parent."""
    references = span.get("references") or []
    parents = [r["spanID"] for r in references if r["refType"] == "CHILD_OF" and r["traceID"] == span["traceID"]]
    return Span(
        trace=span["traceID"],
        id=span["spanID"],
        parent=parents[0] if parents else "",
        links=tuple(r["traceID"] for r in references if r["traceID"] != span["traceID"]),
        service=services[span["processID"]],
        name=span["operationName"],
        start=span["startTime"] / 1e6,
        seconds=span["duration"] / 1e6,
        tags={tag["key"]: tag["value"] for tag in span["tags"]},
    )
