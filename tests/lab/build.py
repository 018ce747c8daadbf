"""Builds the Go programs of the lab from modules, once, into the cache.

Each folder under ``go/`` is a module with ``tool`` lines and a committed ``go.sum``; the versions are pinned there and
named in ``versions.py``. A build goes into a temporary folder that is renamed when it is complete, so a half-finished
one is never used; Go's own build cache makes a repeated one cheap.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from . import paths, versions
from .progress import step


class BuildError(RuntimeError):
    """A Go build failed, or Go is missing; the text is the end of its output."""


@dataclass(frozen=True)
class Program:
    """One Go module of the lab and the packages built from it."""

    name: str
    """Folder under ``go/``."""
    version: str
    packages: tuple[str, ...]
    minutes: float
    """About how long the first build takes on two cores."""
    stamps: tuple[str, ...] = ()
    """``-X`` settings: without them the programs do not know their version."""
    tags: str = ""

    @property
    def folder(self) -> Path:
        """Where the finished programs are; it exists only when all are there."""
        return paths.CACHE / "bin" / f"{self.name}-{self.version}"

    @property
    def built(self) -> bool:
        """Whether the programs are in the cache."""
        return self.folder.is_dir()

    def path(self, program: str) -> Path:
        """Path of one of its programs, built or not."""
        return self.folder / program


_COMPONENT = "k8s.io/component-base/version"
_MAJOR, _MINOR, _ = versions.KUBERNETES.removeprefix("v").split(".")

KUBERNETES = Program(
    name="kubernetes",
    version=versions.KUBERNETES,
    packages=tuple(
        f"k8s.io/kubernetes/cmd/{name}"
        for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl")
    ),
    minutes=7,
    stamps=(
        f"{_COMPONENT}.gitVersion={versions.KUBERNETES}",
        f"{_COMPONENT}.gitMajor={_MAJOR}",
        f"{_COMPONENT}.gitMinor={_MINOR}",
        f"k8s.io/client-go/pkg/version.gitVersion={versions.KUBERNETES}",
    ),
)

CONTAINERD = Program(
    name="containerd",
    version=versions.CONTAINERD,
    packages=tuple(
        f"github.com/containerd/containerd/v2/cmd/{name}" for name in ("containerd", "containerd-shim-runc-v2", "ctr")
    ),
    minutes=1,
    stamps=(f"github.com/containerd/containerd/v2/version.Version={versions.CONTAINERD}",),
    tags="no_btrfs,no_devmapper,no_zfs",
)

COREDNS = Program(name="coredns", version=versions.COREDNS, packages=("github.com/coredns/coredns",), minutes=2.5)

JAEGER = Program(
    name="jaeger",
    version=versions.JAEGER,
    packages=("github.com/jaegertracing/jaeger/cmd/jaeger",),
    minutes=3.5,
    stamps=(f"github.com/jaegertracing/jaeger/internal/version.latestVersion={versions.JAEGER}",),
)

NATSCLI = Program(name="natscli", version=versions.NATSCLI, packages=("github.com/nats-io/natscli/nats",), minutes=0.7)

HELM = Program(
    name="helm",
    version=versions.HELM,
    packages=("helm.sh/helm/v4/cmd/helm",),
    minutes=2.5,
    stamps=(f"helm.sh/helm/v4/internal/version.version={versions.HELM}",),
)

NEEDED = (KUBERNETES, CONTAINERD, COREDNS)
"""What every lab needs."""
FOR_CHART = (*NEEDED, HELM)
"""And what the installed chart needs."""
ALL = (*NEEDED, JAEGER, NATSCLI, HELM)
"""And what only some tests ask for."""


def missing(programs: Sequence[Program] = NEEDED) -> list[Program]:
    """What a first run still has to build."""
    return [program for program in programs if not program.built]


def build(program: Program) -> None:
    """Build one program's packages unless the cache has them.

    Raises:
        BuildError: Go is not installed, a module cannot be fetched, or the compiler fails.
    """
    if program.built:
        return
    if shutil.which("go") is None:
        raise BuildError("Go >= 1.26 is needed to build Kubernetes once; no `go` on the path")
    with paths.one_builder(program.folder):
        if not program.built:
            with step(f"build {program.name} {program.version} (about {program.minutes:g} min the first time)"):
                _build(program)


def _build(program: Program) -> None:
    draft = program.folder.with_name(f".{program.folder.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir()
    flags = " ".join(["-s", "-w", *(f"-X {stamp}" for stamp in program.stamps)])
    argv = ["nice", "-n", "5", "go", "build", "-mod=readonly", "-trimpath", "-buildvcs=false"]
    command = [*argv, "-tags", program.tags, "-ldflags", flags, "-o", f"{draft}/", *program.packages]
    _run(command, paths.HERE / "go" / program.name, {"CGO_ENABLED": "0", "GOFLAGS": "", "GOWORK": "off"})
    draft.rename(program.folder)


def _run(command: list[str], folder: Path, env: dict[str, str]) -> None:
    answer = subprocess.run(command, cwd=folder, env={**os.environ, **env}, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise BuildError(f"{' '.join(command)} in {folder.name} failed:\n{answer.stderr[-3000:]}")


def build_all(programs: Sequence[Program] = NEEDED) -> None:
    """Build what is missing, one after the other: a Go build uses all cores by itself."""
    for program in sorted(missing(programs), key=lambda program: program.minutes):
        build(program)


def compile_module(folder: Path) -> None:
    """Have Go's cache hold all that a module outside of the lab is made of: its own build takes a second afterwards.

    Raises:
        BuildError: A module cannot be fetched, or the compiler fails.
    """
    with step(f"modules of {folder.relative_to(paths.CHECKOUT)}"):
        for command in (["go", "build", "-o", os.devnull, "./..."], ["go", "vet", "./..."]):
            _run(command, folder, {})
