"""Dockerfiles, built by buildah as they are: the base image is debootstrapped under its upstream tag.

No registry is asked. What a build fetches (Debian's and Python's packages) comes through this machine's own settings.
"""

import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from . import paths, versions
from .images import ARCHIVES
from .progress import step
from .rootfs import leave_out_docs, make_small, mirror, start_no_services

_KEPT = 8
"""Archives of one image with different contents: several checkouts share the cache."""
_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
_BUILDAH = (
    "buildah",
    "--storage-driver=overlay",
    f"--root={paths.CACHE / 'layers'}",
    "--runroot=/run/lockstep-lab.layers",
)


def base_image() -> None:
    """Make Debian's slim image known to buildah under its upstream tag, so that ``FROM debian:trixie-slim`` builds."""
    root = paths.CACHE / f".base-{versions.BASE_SUITE}"
    with paths.one_builder(root):
        if _run(*_BUILDAH, "images", "--quiet", versions.BASE, check=False).strip():
            return
        with step(f"base image {versions.BASE}"):
            shutil.rmtree(root, ignore_errors=True)
            bootstrap = ("debootstrap", "--variant=minbase", "--include=ca-certificates", versions.BASE_SUITE)
            _run(*bootstrap, str(root), mirror(), "/usr/share/debootstrap/scripts/sid")
            leave_out_docs(root)
            make_small(root)
            start_no_services(root)
            for ours in ("resolv.conf", "hostname"):
                (root / "etc" / ours).unlink(missing_ok=True)
            container = _run(*_BUILDAH, "from", "scratch").strip()
            _run(*_BUILDAH, "add", "--quiet", container, str(root), "/")
            _run(*_BUILDAH, "config", "--cmd", "bash", container)
            _run(*_BUILDAH, "commit", "--quiet", container, versions.BASE)
            _run(*_BUILDAH, "rm", container)
            shutil.rmtree(root)


def build(dockerfile: Path, context: Path, tag: str, *arguments: str, key: str = "") -> Path:
    """Build an ordinary Dockerfile and return the image's archive. buildah's own layers are cached.

    Args:
        dockerfile: Its ``FROM debian:trixie-slim`` is the base image of the lab.
        context: The folder that COPY reads.
        tag: The image's full name.
        arguments: Further arguments of ``buildah build``, such as ``--build-arg``.
        key: What the image depends on: with it, the image is built once. Without, buildah looks each time.
    """
    name = tag.rpartition("/")[2].replace(":", "-")
    archive = ARCHIVES / (f"{name}-{key}.tar" if key else f"{name}.tar")
    with paths.one_builder(ARCHIVES / name):
        if key and archive.exists():
            archive.touch()
            return archive
        base_image()
        draft = archive.with_suffix(".draft")
        draft.unlink(missing_ok=True)
        with step(f"build {tag}"), tempfile.TemporaryDirectory() as scratch:
            options = ("--isolation=chroot", "--pull-never", "--layers", "--timestamp=0", f"--file={dockerfile}")
            image = Path(scratch, "image")
            _run(
                *_BUILDAH, "build", *options, f"--iidfile={image}", *_settings(Path(scratch)), *arguments, str(context)
            )
            _run(*_BUILDAH, "push", "--quiet", image.read_text(), f"docker-archive:{draft}:{tag}")
            _run(*_BUILDAH, "rmi", image.read_text(), check=False)
        draft.replace(archive)
        if key:
            _forget(name)
    return archive


@contextmanager
def mounted(archive: Path) -> Iterator[Path]:
    """The root of an image's file system, as a container finds it; what is written there goes with it."""
    container = _run(*_BUILDAH, "from", "--pull-never", f"docker-archive:{archive}").strip()
    try:
        yield Path(_run(*_BUILDAH, "mount", container).strip())
    finally:
        image = _run(*_BUILDAH, "inspect", "--format={{.FromImageID}}", container).strip()
        _run(*_BUILDAH, "umount", container)
        _run(*_BUILDAH, "rm", container)
        _run(*_BUILDAH, "rmi", image, check=False)


def about(archive: Path) -> dict[str, Any]:
    """An image's configuration, as Docker has it: `User`, `Cmd`, `Labels` and so on."""
    with tarfile.open(archive) as tar:
        (manifest,) = json.loads(_content(tar, "manifest.json"))
        config: dict[str, Any] = json.loads(_content(tar, manifest["Config"]))["config"]
    return config


def _content(tar: tarfile.TarFile, name: str) -> bytes:
    file = tar.extractfile(name)
    return file.read() if file else b""


def _settings(scratch: Path) -> list[str]:
    """This machine's pip settings and certificates, seen by the build and absent from the image."""
    lines = _run(sys.executable, "-m", "pip", "config", "list").splitlines()
    found = {}
    for line in sorted(lines, key=lambda line: line.startswith(":env:")):  # the environment has the last word
        name, _, value = line.partition("=")
        found[name.rpartition(".")[2]] = value.strip("'")
    certificates = found.pop("cert", _CERTIFICATES)
    settings = scratch / "pip.conf"
    settings.write_text("\n".join(["[global]", f"cert = {_CERTIFICATES}", *map(" = ".join, found.items())]))
    return [f"--volume={settings}:/etc/pip.conf:ro", f"--volume={certificates}:{_CERTIFICATES}:ro"]


def _forget(name: str) -> None:
    """Drop the archives of this image that were not used for the longest time."""
    archives = sorted(ARCHIVES.glob(f"{name}-*.tar"), key=lambda path: path.stat().st_mtime)
    for archive in archives[:-_KEPT]:
        archive.unlink(missing_ok=True)


def _run(*argv: str, check: bool = True) -> str:
    answer = subprocess.run(argv, capture_output=True, text=True, check=False)
    if check and answer.returncode != 0:
        raise RuntimeError(f"{' '.join(argv[:8])} …: {answer.stderr.strip()[-3000:]}")
    return answer.stdout
