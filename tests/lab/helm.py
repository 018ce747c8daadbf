"""Helm, run as a site's administrator runs it; values are dicts.

>>> Helm().template({"clusters": [{"name": "main"}]})           # needs no cluster
>>> helm = Helm(lab)
>>> helm.install(values), helm.upgrade(values), helm.rollback(1), helm.uninstall()
"""

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from . import paths
from .build import HELM, build
from .kube import Kube

CHART = paths.CHECKOUT / "deploy" / "helm" / "lockstep"
NAMESPACE = "lockstep-system"


class HelmError(RuntimeError):
    """Helm refused or failed; the text is what it said."""


class Cluster(Protocol):
    """A lab, or anything else that has a Kubernetes."""

    kube: Kube


class Helm:
    """One release of a chart in a cluster, or nowhere yet."""

    def __init__(
        self,
        cluster: Cluster | None = None,
        *,
        chart: Path = CHART,
        release: str = "lockstep",
        namespace: str = NAMESPACE,
    ) -> None:
        """Without a cluster only ``template`` and ``lint`` work."""
        self.chart, self.release, self.namespace = chart, release, namespace
        self._cluster = cluster

    def template(self, values: Mapping[str, Any], *arguments: str) -> str:
        """The manifests as YAML; ``--dry-run=server`` lets the cluster judge them."""
        return self._run("template", self.release, str(self.chart), *arguments, values=values)

    def lint(self, values: Mapping[str, Any], *arguments: str) -> str:
        """What ``helm lint`` finds, which raises where it is an error."""
        return self._run("lint", str(self.chart), *arguments, values=values)

    def install(self, values: Mapping[str, Any], *arguments: str, wait: bool = True, timeout_s: float = 180) -> str:
        """Install the chart, its namespace too; returns what helm tells the administrator (NOTES.txt).

        Args:
            values: What differs from the chart's own.
            arguments: Further ones of ``helm install``.
            wait: Until all is ready.
            timeout_s: For that.

        Raises:
            HelmError: A value is wrong, the cluster refused something, or it is not ready in time.
        """
        return self._run(
            "install", *self._what("--create-namespace", *arguments), *_wait(timeout_s, wait), values=values
        )

    def upgrade(self, values: Mapping[str, Any], *arguments: str, wait: bool = True, timeout_s: float = 180) -> str:
        """Bring the release to the chart as it is now, with these values and no others; see ``install``."""
        return self._run("upgrade", *self._what("--reset-values", *arguments), *_wait(timeout_s, wait), values=values)

    def rollback(self, revision: int = 0, *arguments: str, wait: bool = True, timeout_s: float = 180) -> str:
        """Go back to an earlier revision; 0 is the one before."""
        return self._run("rollback", self.release, str(revision), *arguments, *_wait(timeout_s, wait))

    def uninstall(self, *arguments: str, wait: bool = True, timeout_s: float = 180) -> str:
        """Remove the release; a release that is not there is fine."""
        return self._run("uninstall", self.release, "--ignore-not-found", *arguments, *_wait(timeout_s, wait))

    def history(self) -> list[dict[str, Any]]:
        """All revisions, the oldest first: ``revision``, ``status``, ``description`` and so on."""
        found: list[dict[str, Any]] = json.loads(self._run("history", self.release, "--output=json"))
        return found

    def _what(self, *arguments: str) -> list[str]:
        return [self.release, str(self.chart), *arguments]

    def _run(self, *arguments: str, values: Mapping[str, Any] | None = None) -> str:
        build(HELM)
        with tempfile.TemporaryDirectory() as home:
            file = paths.write(Path(home, "values.json"), json.dumps(values), mode=0o600)
            cluster = self._cluster.kube.kubeconfig if self._cluster else os.devnull
            answer = subprocess.run(
                [
                    HELM.path("helm"),
                    *arguments,
                    f"--namespace={self.namespace}",
                    f"--kubeconfig={cluster}",
                    *(["--values", str(file)] if values is not None else []),
                ],
                env={**os.environ, **{f"HELM_{kind}_HOME": home for kind in ("CACHE", "CONFIG", "DATA")}},
                capture_output=True,
                text=True,
                check=False,
            )
        if answer.returncode != 0:
            raise HelmError(f"helm {arguments[0]}: {(answer.stderr + answer.stdout).strip()[-4000:]}")
        return answer.stdout


def _wait(timeout_s: float, wait: bool) -> list[str]:
    return [f"--timeout={timeout_s:g}s", *(["--wait"] if wait else [])]
