"""When our image is built anew, and what it is built with."""

from pathlib import Path

import pytest

from tests.lab import paths, product

REQUIREMENTS = paths.CHECKOUT / "requirements"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with one source."""
    monkeypatch.setattr(paths, "CHECKOUT", tmp_path)
    (tmp_path / "libs").mkdir()
    (tmp_path / "libs" / "one.py").write_text("a = 1\n")
    (tmp_path / "LICENSE").write_text("free\n")
    return tmp_path


def test_a_change_of_what_goes_into_the_image_changes_its_key(checkout: Path) -> None:
    """Content, mode, a new file and a new name all do."""
    keys = [product._key("libs", "LICENSE")]
    source = checkout / "libs" / "one.py"
    source.write_text("a = 2\n")
    keys.append(product._key("libs", "LICENSE"))
    source.chmod(0o755)
    keys.append(product._key("libs", "LICENSE"))
    source.rename(checkout / "libs" / "two.py")
    keys.append(product._key("libs", "LICENSE"))
    (checkout / "libs" / "three.py").touch()
    keys.append(product._key("libs", "LICENSE"))
    assert len(set(keys)) == len(keys)


def test_what_python_leaves_behind_builds_nothing_anew(checkout: Path) -> None:
    """Byte code comes and goes with each test run."""
    before = product._key("libs")
    (checkout / "libs" / "__pycache__").mkdir()
    (checkout / "libs" / "__pycache__" / "one.cpython-313.pyc").write_bytes(b"\0")
    assert product._key("libs") == before


def test_all_that_the_dockerfile_copies_is_in_the_key() -> None:
    """A file that it copies and the key leaves out would be stale in the image."""
    lines = (paths.CHECKOUT / "deploy" / "docker" / "Dockerfile").read_text().splitlines()
    copied = {
        name for line in lines if line.startswith("COPY ") and "--from" not in line for name in line.split()[1:-1]
    }
    assert copied
    assert copied <= set(product._INPUTS)


def test_the_wheel_is_built_with_what_developers_build_with() -> None:
    """The small lock file of the image's first stage is a part of the developers' one, hashes and all."""
    build, dev = ((REQUIREMENTS / name).read_text().splitlines() for name in ("build.txt", "dev.txt"))
    pinned = {line.rstrip(" \\") for line in build if not line.lstrip().startswith("#")}
    assert len(pinned) > 10
    assert pinned <= {line.rstrip(" \\") for line in dev}
