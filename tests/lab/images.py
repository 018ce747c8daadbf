"""Container images without a registry: root file systems and Dockerfiles become archives, loaded on every node.

An archive of a folder is written here: one layer, one config, one manifest. It is cached under its content's key, so a
second run only loads it. Dockerfiles are built by buildah upon a base image, debootstrapped under its upstream tag.
"""

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from . import paths, versions
from .nodes import Node
from .progress import step, together
from .rootfs import leave_out_docs, make_small, mirror, one_builder, start_no_services

_ARCHIVES = paths.CACHE / "archives"
_KEPT = 8
"""Archives of one image with different contents: several checkouts share the cache."""
_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
_BUILDAH = (
    "buildah",
    "--storage-driver=overlay",
    f"--root={paths.CACHE / 'layers'}",
    "--runroot=/run/lockstep-lab.layers",
)


def pause() -> Path:
    """Archive of the sandbox image: Debian's static busybox, waiting."""
    archive = _ARCHIVES / f"pause-{versions.PAUSE.rpartition(':')[2]}.tar"
    if not archive.exists():
        root = paths.RUN / "pause-image"
        add_busybox(root, ("sh", "sleep", "wget", "nslookup", "nc", "httpd"))
        (root / "tmp").mkdir(exist_ok=True)
        write_archive(root, versions.PAUSE, archive, entrypoint=("/bin/sleep", "2147483647"))
        shutil.rmtree(root)
    return archive


def add_busybox(root: Path, commands: Sequence[str]) -> None:
    """Give a root file system these commands of Debian's static busybox."""
    (root / "bin").mkdir(parents=True, exist_ok=True)
    shutil.copy("/bin/busybox", root / "bin" / "busybox")
    for name in commands:
        link = root / "bin" / name
        link.unlink(missing_ok=True)
        link.symlink_to("busybox")


def image_from_rootfs(
    path: Path,
    tag: str,
    excludes: Sequence[str] = (),
    *,
    key: str = "",
    entrypoint: Sequence[str] = (),
    command: Sequence[str] = (),
) -> Path:
    """Archive of an image whose content is a folder; made once for each ``key``.

    Args:
        path: The root of the file system; owners, modes and devices are kept.
        tag: The image's full name, such as ``docker.io/lockstep-lab/slurmd:26.05``.
        excludes: Paths below the root that are left out, without leading slash.
        key: What the content depends on; its folder's name and time if empty.
        entrypoint: What the image runs unless the pod says otherwise.
        command: Its arguments, or what it runs without an entrypoint; unless the pod says otherwise.
    """
    words = [key or f"{path} {path.stat().st_mtime_ns}", tag, *excludes, *entrypoint, *command]
    digest = hashlib.sha256("\0".join(words).encode()).hexdigest()[:16]
    archive = _ARCHIVES / f"{tag.rpartition('/')[2].replace(':', '-')}-{digest}.tar"
    if not archive.exists():
        with step(f"image {tag}"):
            write_archive(path, tag, archive, excludes=excludes, entrypoint=entrypoint, command=command)
    return archive


def load(archive: Path, nodes: Sequence[Node]) -> None:
    """Import an archive on all nodes at once."""
    together(*(partial(node.ctr, "images", "import", "--local", archive) for node in nodes))


def load_all(archives: Sequence[Path], nodes: Sequence[Node]) -> None:
    """Import several archives on all nodes."""
    with step(f"{len(archives)} images on {len(nodes)} nodes"):
        for archive in archives:
            load(archive, nodes)


def write_archive(
    root: Path,
    tag: str,
    archive: Path,
    *,
    excludes: Sequence[str] = (),
    entrypoint: Sequence[str] = (),
    command: Sequence[str] = (),
) -> None:
    """Write an OCI archive with one uncompressed layer, which Docker loads too; complete or not at all."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    layer = archive.with_suffix(".layer")
    with layer.open("wb") as raw:
        writer = _Hashed(raw)
        with tarfile.open(fileobj=writer, mode="w|", format=tarfile.PAX_FORMAT) as tar:
            skip = {name.strip("/") for name in excludes}
            for name in sorted(path.name for path in root.iterdir()):
                tar.add(root / name, arcname=name, filter=lambda entry: None if entry.name in skip else entry)
    blobs: dict[str, bytes] = {}
    config = {
        "architecture": _architecture(),
        "os": "linux",
        "config": {
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
            "Entrypoint": list(entrypoint),
            "Cmd": list(command),
        },
        "rootfs": {"type": "layers", "diff_ids": [writer.digest]},
    }
    media = "application/vnd.oci.image"
    layers = [{"mediaType": f"{media}.layer.v1.tar", "digest": writer.digest, "size": layer.stat().st_size}]
    about = _blob(blobs, config, f"{media}.config.v1+json")
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{media}.manifest.v1+json",
        "config": about,
        "layers": layers,
    }
    entry = _blob(blobs, manifest, f"{media}.manifest.v1+json")
    entry["annotations"] = {"io.containerd.image.name": tag, "org.opencontainers.image.ref.name": tag}
    index = {"schemaVersion": 2, "mediaType": f"{media}.index.v1+json", "manifests": [entry]}
    docker = {
        "Config": _place(str(about["digest"])),
        "RepoTags": [tag],
        "Layers": [_place(writer.digest)],
    }
    draft = archive.with_suffix(".draft")
    with tarfile.open(draft, "w") as tar:
        _add(tar, "oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}).encode())
        _add(tar, "index.json", json.dumps(index).encode())
        _add(tar, "manifest.json", json.dumps([docker]).encode())
        for digest, content in blobs.items():
            _add(tar, _place(digest), content)
        tar.add(layer, arcname=_place(writer.digest))
    layer.unlink()
    draft.replace(archive)


def base_image() -> None:
    """Make Debian's slim image known to buildah under its upstream tag, so that ``FROM debian:trixie-slim`` builds."""
    root = paths.CACHE / f".base-{versions.BASE_SUITE}"
    with one_builder(root):
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

    What the build fetches comes through this machine's settings for pip and apt, as those of the lab do.

    Args:
        dockerfile: Its ``FROM debian:trixie-slim`` is the base image of the lab.
        context: The folder that COPY reads.
        tag: The image's full name.
        arguments: Further arguments of ``buildah build``, such as ``--build-arg``.
        key: What the image depends on: with it, the image is built once. Without, buildah looks each time.
    """
    name = tag.rpartition("/")[2].replace(":", "-")
    archive = _ARCHIVES / (f"{name}-{key}.tar" if key else f"{name}.tar")
    archive.parent.mkdir(parents=True, exist_ok=True)
    with one_builder(_ARCHIVES / name):
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
    archives = sorted(_ARCHIVES.glob(f"{name}-*.tar"), key=lambda path: path.stat().st_mtime)
    for archive in archives[:-_KEPT]:
        archive.unlink(missing_ok=True)


class _Hashed(io.RawIOBase):
    """Passes bytes on and knows their digest."""

    def __init__(self, sink: io.BufferedIOBase) -> None:
        self._sink, self._sha = sink, hashlib.sha256()

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self._sha.update(data)
        return self._sink.write(data)

    @property
    def digest(self) -> str:
        return f"sha256:{self._sha.hexdigest()}"


def _blob(blobs: dict[str, bytes], content: Mapping[str, object], media: str) -> dict[str, object]:
    data = json.dumps(content).encode()
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    blobs[digest] = data
    return {"mediaType": media, "digest": digest, "size": len(data)}


def _place(digest: str) -> str:
    """Where a blob is in an archive."""
    return f"blobs/{digest.replace(':', '/')}"


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))


def _architecture() -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)


def _run(*argv: str, check: bool = True) -> str:
    answer = subprocess.run(argv, capture_output=True, text=True, check=False)
    if check and answer.returncode != 0:
        raise RuntimeError(f"{' '.join(argv[:8])} …: {answer.stderr.strip()[-3000:]}")
    return answer.stdout
