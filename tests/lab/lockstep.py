"""Lockstep itself on the lab: installed from the checkout's virtual environment, started as its users start it.

>>> lockstep = Lockstep(lab)
>>> lockstep.install()                       # the CRD and the admission policies
>>> lockstep.up()                            # `lockstep standalone`, ready when it says so
>>> lockstep.cli("why", "gpu-1")
>>> lockstep.kill(); lockstep.up()
"""

import http.client
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import paths, ports
from .helm import Helm
from .processes import CLEAN_ENV
from .progress import wait_for
from .rest import ApiError

if TYPE_CHECKING:
    from .kube import Kube
    from .lab import Lab

SERVICES = ("pod-watcher", "slurm-poller", "drain", "reconciler")
HEALTH = 18480
BIN = paths.CHECKOUT / ".venv" / "bin"
OWNER = "lockstep.sh/owner"
"""The annotation that the admission policy writes."""
DEPLOY = paths.CHECKOUT / "deploy"


class Command:
    """The command `lockstep`, as a person runs it who has been given a file with settings."""

    def __init__(self, settings_file: Path) -> None:
        self.settings_file = settings_file

    def cli(self, *arguments: str, check: bool = True, timeout_s: float = 60) -> str:
        """Run `lockstep` as a person would, and return what it printed.

        Raises:
            subprocess.CalledProcessError: it failed, and `check` is true.
        """
        return self.run(*arguments, check=check, timeout_s=timeout_s).stdout

    def run(
        self, *arguments: str, check: bool = False, settings: bool = True, timeout_s: float = 60
    ) -> "subprocess.CompletedProcess[str]":
        """Run `lockstep`, with all that came of it; without our `settings` it knows what its options say."""
        answer = subprocess.run(
            [BIN / "lockstep", *arguments],
            env=self.environment(settings=settings),
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )
        if check and answer.returncode != 0:
            raise RuntimeError(
                f"lockstep {' '.join(arguments)} ended with {answer.returncode}: {answer.stderr.strip()}"
            )
        return answer

    def environment(self, *, settings: bool = True) -> dict[str, str]:
        """The environment of a person who uses `lockstep`."""
        ours = {"LOCKSTEP_CONFIG": str(self.settings_file)} if settings else {}
        return {**CLEAN_ENV, **ours, "TERM": os.environ.get("TERM", "dumb")}


class Lockstep(Command):
    """One installation: all services in one process, or each in a process of its own."""

    def __init__(
        self,
        lab: "Lab",
        *,
        separate: bool = False,
        embedded_nats: bool = False,
        settings: Mapping[str, Any] | None = None,
        clusters: Sequence[Mapping[str, Any]] | None = None,
        replica: int = 1,
    ) -> None:
        """`settings` are added to the lab's own, by their top-level key. Replicas run side by side."""
        self._lab = lab
        self._processes = lab.processes
        self._separate = separate
        self._given = settings or {}
        self._prefix = "lockstep" if replica == 1 else f"lockstep{replica}"
        self._first_port = HEALTH + 10 * (replica - 1)
        self.home = paths.STATE / self._prefix
        super().__init__(self.home / "settings.yaml")
        nats: dict[str, Any] = {} if embedded_nats else {"nats": {"url": lab.nats.url}}
        self._settings = {
            "clusters": [dict(c) for c in clusters or [self.cluster("main")]],
            "kube": {"kubeconfig": str(lab.kube.kubeconfig)},
            "data_dir": str(self.home / "data"),
            "log": {"format": "json"},
            **nats,
            **self._given,
        }

    def cluster(self, name: str) -> dict[str, Any]:
        """The settings of the lab's Slurm cluster."""
        slurm = self._lab.slurm
        hybrid = not self._lab.nodes
        return {
            "name": name,
            "namespace": "slurm",
            "url": slurm.url,
            "key_file": str(slurm.key_file),
            "workers": {"hybrid": hybrid},
        }

    @property
    def names(self) -> list[str]:
        """The names of the processes."""
        return [self.process(service) for service in SERVICES] if self._separate else [self._prefix]

    @property
    def _programs(self) -> list[list[str | Path]]:
        """What they run."""
        return (
            [[BIN / f"lockstep-{service}"] for service in SERVICES]
            if self._separate
            else [[BIN / "lockstep", "standalone"]]
        )

    @property
    def addresses(self) -> list[str]:
        """Where each of them serves health and metrics."""
        return [f"{ports.LOOPBACK}:{self._first_port + index}" for index in range(len(self.names))]

    def process(self, service: str) -> str:
        """The name of a service's own process."""
        return f"{self._prefix}-{service}"

    def install(self) -> None:
        """What `install` says, on the lab."""
        install(self._lab.kube)

    @cached_property
    def _accounts(self) -> dict[str, Path]:
        """Kubeconfigs of services with a process of their own: each may do what the chart lets it."""
        if not self._separate or "kube" in self._given:
            return {}
        right = {"user": "ops", "verbs": ["hold"], "clusters": ["*"]}
        clusters = [{key: c[key] for key in ("name", "namespace", "url")} for c in self._settings["clusters"]]
        nats = {"enabled": False, "url": self._lab.nats.url}
        values = {"clusters": clusters, "requests": {"allow": [right]}, "nats": nats}
        self._lab.kube.apply(Helm(namespace="slurm").template(values, "--show-only=templates/rbac.yaml"))
        return {service: self._lab.kube.account_kubeconfig("slurm", f"lockstep-{service}") for service in SERVICES}

    def up(self, timeout_s: float = 60) -> None:
        """Start what is not running and wait until all of it is ready; what another shape left running is ended.

        Raises:
            ProcessError: a process ended at once.
        """
        self.home.mkdir(parents=True, exist_ok=True)
        for name in {self._prefix, *map(self.process, SERVICES)} - set(self.names):
            self._processes.forget(name)
        for index, (name, program) in enumerate(zip(self.names, self._programs, strict=True)):
            settings = {**self._settings, "health": {"host": ports.LOOPBACK, "port": self._first_port + index}}
            if self._accounts:
                settings["kube"] = {"kubeconfig": str(self._accounts[SERVICES[index]])}
            file = paths.write(self.home / f"{name}.yaml", json.dumps(settings, indent=1))
            self._processes.start(name, [*program, "--config", file])
        paths.write(self.settings_file, json.dumps(self._settings, indent=1))
        for index, name in enumerate(self.names):
            self.wait_ready(name, self._first_port + index, timeout_s)

    def wait_ready(self, name: str, port: int, timeout_s: float) -> None:
        """Wait until /readyz says so; a process that has ended is not waited for."""
        log = self._processes.log(name)
        wait_for(f"{name} ready (log: {log})", lambda: self._processes.pid(name) and _ready(port), timeout_s)

    def stop(self) -> None:
        """End it in good order."""
        for name in reversed(self.names):
            self._processes.forget(name)

    def kill(self, service: str = "") -> None:
        """End all of it, or one service, without warning."""
        for name in self.names:
            if service == "" or name == self.process(service):
                self._processes.kill(name)

    def restart(self, service: str) -> None:
        """Start one service again."""
        self._processes.restart(self.process(service))

    def log(self) -> Path:
        """The log of the (first) process."""
        return self._processes.log(self.names[0])

    def last_words(self, lines: int) -> str:
        """The end of each process's log."""
        said = ""
        for name in self.names:
            end = self._processes.log(name).read_text(errors="replace").splitlines(keepends=True)[-lines:]
            said += f"{name}:\n{''.join(end)}"
        return said

    def log_end(self, name: str = "") -> int:
        """Where the log of one process ends now."""
        return self._processes.log(name or self.names[0]).stat().st_size

    def log_lines(self, name: str = "", since: int = 0) -> list[dict[str, Any]]:
        """The log of one process, line by line, from where `log_end` was `since`."""
        lines = self._processes.log(name or self.names[0]).read_bytes()[since:].decode().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]


def install(kube: "Kube") -> None:
    """The custom resource and the admission policies, as a site's administrator applies them, and a namespace.

    Returns when Holds can be created and get their owner: an API server serves a new kind some seconds later, its
    policies are in force some time later still, and until they know the kind they answer with 503.
    """
    for file in [*sorted(DEPLOY.glob("crds/*.yaml")), *sorted(DEPLOY.glob("policies/*.yaml"))]:
        kube.apply(file.read_text())
    kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "slurm"}})
    spec = {"workers": {"names": ["nobody"]}, "reason": "trial"}
    trial = {"apiVersion": "lockstep.sh/v1alpha1", "kind": "Hold", "metadata": {"name": "trial"}, "spec": spec}
    holds = "/apis/lockstep.sh/v1alpha1/namespaces/slurm/holds?dryRun=All"

    def takes_holds() -> bool:
        try:
            created = kube.request("POST", holds, trial)
        except ApiError:
            return False
        return OWNER in created["metadata"].get("annotations", {})

    wait_for("Holds can be created", takes_holds, 60)


def _ready(port: int) -> bool:
    connection = http.client.HTTPConnection(ports.LOOPBACK, port, timeout=2)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()
