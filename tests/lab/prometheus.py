"""A real Prometheus: scrapes what it is told to, with our alert rules, for a day at most."""

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import paths, ports
from .packages import FOR_TESTS
from .processes import Processes
from .progress import step, wait_for

NAME = "prometheus"
RULES = paths.CHECKOUT / "deploy" / "alerts" / "lockstep.rules.yaml"
EVERY_S = 1
"""Between two scrapes and between two looks at the rules: tests wait for them."""


class Prometheus:
    """One server on loopback; its data goes with the lab's state."""

    def __init__(self, processes: Processes, home: Path = paths.STATE / NAME, port: int = ports.PROMETHEUS) -> None:
        """Not started yet."""
        self._processes = processes
        self._home = home
        self._port = port
        self.url = f"http://{ports.LOOPBACK}:{port}"

    def up(self, targets: Sequence[str]) -> None:
        """Start it; ready when it answers. `targets` are `host:port` of what serves /metrics.

        Raises:
            ProcessError: It ended at once.
        """
        every = f"{EVERY_S}s"
        config = {
            "global": {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every},
            "rule_files": [str(RULES)],
            "scrape_configs": [{"job_name": "lockstep", "static_configs": [{"targets": list(targets)}]}],
        }
        with step("Prometheus"):
            file = paths.write(self._home / "prometheus.yml", json.dumps(config, indent=1))
            self._processes.start(
                NAME,
                [
                    Path(FOR_TESTS[NAME]).with_name(NAME),
                    f"--config.file={file}",
                    f"--storage.tsdb.path={self._home / 'data'}",
                    "--storage.tsdb.retention.time=1d",
                    "--storage.tsdb.retention.size=200MB",
                    "--enable-feature=exemplar-storage",
                    f"--web.listen-address={ports.LOOPBACK}:{self._port}",
                ],
            )
            wait_for(f"Prometheus (log: {self._processes.log(NAME)})", self._ready, 30, 0.1)

    def stop(self) -> None:
        """End it; another `up` may have other targets, and goes on with what was stored."""
        self._processes.forget(NAME)

    def value(self, expression: str) -> float | None:
        """The one value of an expression now; None: it has none.

        Raises:
            ValueError: it has several, or Prometheus does not understand it.
        """
        found = self.query(expression)
        if len(found) > 1:
            raise ValueError(f"{expression} has {len(found)} values")
        return float(found[0]["value"][1]) if found else None

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series of an expression now; `ValueError` where Prometheus does not understand it."""
        return list(self._ask("query", query=expression)["result"])

    def exemplars(self, expression: str, start: float, end: float) -> list[dict[str, str]]:
        """The labels of the exemplars of an expression between two times in seconds since the epoch."""
        found = self._ask("query_exemplars", query=expression, start=str(start), end=str(end))
        return [each["labels"] for series in found for each in series["exemplars"]]

    def targets(self) -> dict[str, str]:
        """Each target's `host:port`, and its health: up, down or unknown."""
        return {each["labels"]["instance"]: each["health"] for each in self._ask("targets")["activeTargets"]}

    def alerts(self) -> dict[str, str]:
        """The alerts of our rules, and the state of each: inactive, pending or firing."""
        return {rule["name"]: rule["state"] for group in self._ask("rules")["groups"] for rule in group["rules"]}

    def _ready(self) -> bool:
        self._processes.pid(NAME)
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _ask(self, what: str, **arguments: str) -> Any:
        try:
            with urllib.request.urlopen(
                f"{self.url}/api/v1/{what}?{urllib.parse.urlencode(arguments)}", timeout=10
            ) as a:
                return json.load(a)["data"]
        except urllib.error.HTTPError as error:
            raise ValueError(f"{arguments.get('query', what)}: {error.read().decode()[:500]}") from error
