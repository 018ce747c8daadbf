"""A Docker engine of the lab's own with Compose, both from Debian; for what is tried as its users run it.

The engine knows only the images that are loaded: no registry is asked. It makes bridges and firewall rules, so use it
apart (see ``apart``), where they end with the network they are in.

>>> docker = Docker(lab.processes)
>>> docker.up(), docker.load(product.all_images())
>>> docker.compose("up", "--detach", "--wait", env={"KUBECONFIG": "…"})
>>> docker.down()
"""

import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from . import packages, paths, versions
from .processes import Processes
from .progress import step, wait_for
from .rootfs import mirror

NAME = "dockerd"
_ENGINE = {"docker.io": "/usr/sbin/dockerd"}
_COMPOSE = paths.CACHE / "bin" / f"compose-{versions.COMPOSE_SUITE}"


class DockerError(RuntimeError):
    """Docker or Compose failed; the text is what it said."""


class Docker:
    """One engine; its images and volumes lie in the lab's state and go with it."""

    def __init__(self, processes: Processes) -> None:
        """Not started yet."""
        self._processes = processes
        self._socket = paths.RUN / "docker.sock"

    def up(self) -> None:
        """Install and start it; ready when it answers.

        Raises:
            PackagesError: Debian's packages cannot be had.
            TimeoutError: It does not answer.
        """
        prepare()
        with step("Docker engine"):
            self._processes.start(
                NAME,
                [
                    _ENGINE["docker.io"],
                    f"--host=unix://{self._socket}",
                    f"--data-root={paths.STATE / 'docker'}",
                    f"--exec-root={paths.RUN / 'docker'}",
                    f"--pidfile={paths.RUN / 'docker.pid'}",
                    f"--config-file={paths.write(paths.STATE / 'docker.json', '{}')}",
                    "--log-level=warn",
                ],
            )
            wait_for(f"Docker engine (log: {self._processes.log(NAME)})", self._answers, 60)

    def load(self, archives: Sequence[Path]) -> None:
        """Make images known to it."""
        with step(f"{len(archives)} images in Docker"):
            for archive in archives:
                self.run("load", "--quiet", "--input", str(archive))

    def run(self, *arguments: str) -> str:
        """Run the command `docker`; returns what it printed."""
        return _do(["/usr/bin/docker", f"--host=unix://{self._socket}", *arguments])

    def compose(self, *arguments: str, env: Mapping[str, str] | None = None) -> str:
        """Run Compose on the checkout's compose.yaml; returns what it printed."""
        return compose(*arguments, env={"DOCKER_HOST": f"unix://{self._socket}", **(env or {})})

    @property
    def running(self) -> bool:
        """Whether the engine runs."""
        return self._processes.alive(NAME)

    def down(self) -> None:
        """End the engine and its containers."""
        if self.running:
            if found := self.run("ps", "--quiet").split():
                self.run("kill", *found)
            self._processes.forget(NAME)

    def _answers(self) -> bool:
        self._processes.pid(NAME)
        try:
            self.run("version")
        except DockerError:
            return False
        return True


def prepare() -> None:
    """Install the engine, unless it is, and fetch Compose: what ``up`` needs the network for."""
    packages.install(_ENGINE)
    compose_program()


def compose(*arguments: str, env: Mapping[str, str] | None = None) -> str:
    """Run Compose on the checkout's compose.yaml; without an engine only ``config`` works.

    Raises:
        DockerError: It failed; the text is what it said.
    """
    settings = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", **(env or {})}
    return _do([str(compose_program()), f"--project-directory={paths.CHECKOUT}", *arguments], env=settings)


def compose_program() -> Path:
    """Path of Compose; fetched once, as a package that is unpacked and not installed.

    Raises:
        DockerError: The package cannot be had.
    """
    with paths.one_builder(_COMPOSE):
        if not _COMPOSE.exists():
            with step("Docker Compose"), tempfile.TemporaryDirectory(dir=_COMPOSE.parent) as scratch:
                _fetch("docker-compose", Path(scratch)).replace(_COMPOSE)
    return _COMPOSE


def _fetch(package: str, home: Path) -> Path:
    """The program in a package of a Debian release that is not this machine's; apt's own state is left alone."""
    for folder in ("state/lists/partial", "cache/archives/partial"):
        (home / folder).mkdir(parents=True)
    (home / "status").touch()
    (home / "sources").write_text(f"deb {mirror()} {versions.COMPOSE_SUITE} main\n")
    options = {
        "Dir::State": home / "state",
        "Dir::State::status": home / "status",
        "Dir::Cache": home / "cache",
        "Dir::Etc::SourceList": home / "sources",
        "Dir::Etc::SourceParts": "/dev/null",
        "APT::Sandbox::User": "root",
    }
    apt = ["apt-get", "--quiet", *(f"--option={name}={value}" for name, value in options.items())]
    _do([*apt, "update"])
    _do([*apt, "download", package], cwd=home)
    _do(["dpkg-deb", "--extract", str(next(home.glob("*.deb"))), str(home / "tree")])
    return home / "tree" / "usr" / "libexec" / "docker" / "cli-plugins" / package


def _do(argv: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> str:
    answer = subprocess.run(argv, env=env, cwd=cwd, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise DockerError(f"{' '.join(argv[:6])} …: {(answer.stderr + answer.stdout).strip()[-3000:]}")
    return answer.stdout
