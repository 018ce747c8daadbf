"""What Lockstep says of its sources: the log lines and events from a moment on."""

import time
from datetime import UTC, datetime
from typing import Any

from tests.e2e.site import Site, eventually

LINES = {
    "slurm": ("slurm-poller", "Slurm cannot be read", "Slurm is read again"),
    "kube": ("pod-watcher", "Kubernetes stopped answering", "Kubernetes answers again"),
}
"""Which service says that a source is lost and back, and how."""


class Told:
    """Everything that is said after this was made."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._ends = {name: site.lockstep.log_end(name) for name in site.lockstep.names}
        self._since = datetime.now(UTC)  # noqa: TID251  a test speaks to a real clock

    def lines(self, service: str, text: str) -> list[dict[str, Any]]:
        """The service's log lines of that text."""
        name = self._site.lockstep.process(service)
        return [x for x in self._site.lockstep.log_lines(name, self._ends[name]) if x["event"] == text]

    def events(self, kind: str) -> list[dict[str, Any]]:
        """The events of that kind."""
        return self._site.events(since=self._since.isoformat(), kind=kind)

    def places(self) -> list[str]:
        """Where gaps were found: streams, one for each event."""
        return [event["where"] for event in self.events("fleet.gap-found")]

    def gaps(self, *streams: str) -> None:
        """Waits until gaps are told; fails unless there is one for each of these streams and stays so."""
        eventually("gaps are told", lambda: len(self.places()) >= len(streams), 30)
        time.sleep(3)
        assert sorted(self.places()) == sorted(streams)

    def wait_lost(self, source: str, timeout_s: float = 25) -> None:
        """Waits until the log says that the source is lost."""
        service, lost, _ = LINES[source]
        eventually(f"{source} is said to be lost", lambda: self.lines(service, lost), timeout_s)

    def once(self, source: str) -> None:
        """Fails unless the source was said to be lost once and to be back once, in the log and as an event."""
        service, lost, back = LINES[source]
        eventually(f"{source} is said to be back", lambda: self.lines(service, back))
        told = eventually(f"{source} is told to be back", lambda: self._sources_until_back(source))
        assert [len(self.lines(service, text)) for text in (lost, back)] == [1, 1]
        assert told == ["source.lost.v1", "source.back.v1"]

    def never(self, source: str) -> None:
        """Fails if the source was said to be lost."""
        service, lost, _ = LINES[source]
        assert not self.lines(service, lost)

    def _sources_until_back(self, source: str) -> list[str]:
        """What was told of the source, in order; empty while it was not told to be back."""
        told = [event["type"] for event in self.events("source") if event["source"].split(".")[0] == source]
        return told if "source.back.v1" in told else []
