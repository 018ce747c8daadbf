"""Container images without a registry: root file systems and Dockerfiles become archives, loaded on every node.

An archive of a folder is written here: one layer, one config, one manifest. It is cached under its content's key, so a
second run only loads it. What has a Dockerfile is built by ``dockerfiles``.
"""

import hashlib
import io
import json
import os
import shutil
import tarfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from . import paths, versions
from .nodes import Node
from .progress import step, together

ARCHIVES = paths.CACHE / "archives"
"""Where the finished ones are."""


def pause() -> Path:
    """Archive of the sandbox image: Debian's static busybox, waiting."""
    archive = ARCHIVES / f"pause-{versions.PAUSE.rpartition(':')[2]}.tar"
    with paths.one_builder(archive):
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
    archive = ARCHIVES / f"{tag.rpartition('/')[2].replace(':', '-')}-{digest}.tar"
    with paths.one_builder(archive):
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
