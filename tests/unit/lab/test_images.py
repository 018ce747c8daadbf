import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.lab.images import write_archive


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A small root file system."""
    folder = tmp_path / "root"
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "tool").write_text("#!/bin/sh\n")
    (folder / "bin" / "tool").chmod(0o755)
    (folder / "bin" / "other").symlink_to("tool")
    (folder / "var" / "cache").mkdir(parents=True)
    (folder / "var" / "cache" / "big").write_text("x" * 10_000)
    return folder


def test_every_digest_in_an_archive_is_that_of_its_content(root: Path, tmp_path: Path) -> None:
    """Containerd refuses anything else."""
    with _written(root, tmp_path) as archive:
        blobs = [entry for entry in archive if entry.name.startswith("blobs/")]
        assert len(blobs) == 3
        for entry in blobs:
            assert hashlib.sha256(_content(archive, entry.name)).hexdigest() == entry.name.rpartition("/")[2]


def test_an_archive_says_its_name_and_leads_to_its_files(root: Path, tmp_path: Path) -> None:
    """Index, manifest, config and layer hang together; links and modes are kept."""
    with _written(root, tmp_path) as archive:
        entry = _json(archive, "index.json")["manifests"][0]
        assert entry["annotations"]["io.containerd.image.name"] == "docker.io/lab/tool:1"
        manifest = _json(archive, _blob(entry["digest"]))
        config = _json(archive, _blob(manifest["config"]["digest"]))
        assert config["config"]["Entrypoint"] == ["/bin/tool"]
        layer = manifest["layers"][0]
        assert config["rootfs"]["diff_ids"] == [layer["digest"]]
        with _layer(archive, layer["digest"]) as tar:
            assert tar.getmember("bin/tool").mode == 0o755
            assert tar.getmember("bin/other").linkname == "tool"


def test_docker_finds_the_same_image_in_an_archive(root: Path, tmp_path: Path) -> None:
    """Docker reads a manifest of its own, which names the same config and the same layer."""
    with _written(root, tmp_path, command=("--help",)) as archive:
        (docker,) = json.loads(_content(archive, "manifest.json"))
        assert docker["RepoTags"] == ["docker.io/lab/tool:1"]
        manifest = _json(archive, _blob(_json(archive, "index.json")["manifests"][0]["digest"]))
        assert docker["Config"] == _blob(manifest["config"]["digest"])
        assert docker["Layers"] == [_blob(layer["digest"]) for layer in manifest["layers"]]
        assert _json(archive, docker["Config"])["config"]["Cmd"] == ["--help"]


def test_excluded_paths_are_left_out_with_all_below_them(root: Path, tmp_path: Path) -> None:
    """Caches make an image big for nothing."""
    with _written(root, tmp_path, excludes=("/var/cache/",)) as archive:
        manifest = _json(archive, _blob(_json(archive, "index.json")["manifests"][0]["digest"]))
        with _layer(archive, manifest["layers"][0]["digest"]) as tar:
            assert tar.getnames() == ["bin", "bin/other", "bin/tool", "var"]


def _written(root: Path, folder: Path, **options: Any) -> tarfile.TarFile:
    archive = folder / "archives" / "tool.tar"
    write_archive(root, "docker.io/lab/tool:1", archive, entrypoint=("/bin/tool",), **options)
    assert [path.name for path in archive.parent.iterdir()] == ["tool.tar"]
    return tarfile.open(archive)


def _blob(digest: str) -> str:
    return f"blobs/sha256/{digest.removeprefix('sha256:')}"


def _content(archive: tarfile.TarFile, name: str) -> bytes:
    with archive.extractfile(name) or pytest.fail(name) as content:
        return content.read()


def _layer(archive: tarfile.TarFile, digest: str) -> tarfile.TarFile:
    return tarfile.open(fileobj=io.BytesIO(_content(archive, _blob(digest))))


def _json(archive: tarfile.TarFile, name: str) -> Any:
    return json.loads(_content(archive, name))
