from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.lab import build, packages, paths
from tests.lab.build import BuildError, Program

SLOW_GO = """#!/bin/sh
echo built >> {log}
sleep 0.3
for last; do case "$before" in -o) out="$last";; esac; before="$last"; done
touch "$out/tool" || exit 1
"""
APT = """#!/bin/sh
echo "$@" >> {log}
sleep 0.3
touch {proof}
"""


def program(name: str, script: str, folder: Path, monkeypatch: pytest.MonkeyPatch, **fields: Path) -> Path:
    """A program of that name is the first on the path; the file to which it writes each of its runs."""
    log = folder / f"{name}.log"
    (folder / name).write_text(script.format(log=log, **fields))
    (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    return log


def test_two_who_need_the_same_program_build_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `make demo` in one terminal and `make check` in another on the first day: the second waits for the first."""
    monkeypatch.setattr(paths, "CACHE", tmp_path / "cache")
    log = program("go", SLOW_GO, tmp_path, monkeypatch)
    tool = Program(name="helm", version="v1", packages=("example.com/tool",), minutes=0.1)
    with ThreadPoolExecutor(2) as users:
        list(users.map(build.build, [tool, tool]))
    assert log.read_text().splitlines() == ["built"]
    assert tool.path("tool").exists()


def test_a_build_that_failed_leaves_nothing_to_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one begins anew."""
    monkeypatch.setattr(paths, "CACHE", tmp_path / "cache")
    program("go", "#!/bin/sh\necho no such module >&2\nexit 1\n", tmp_path, monkeypatch)
    tool = Program(name="helm", version="v1", packages=("example.com/tool",), minutes=0.1)
    with pytest.raises(BuildError, match="no such module"):
        build.build(tool)
    assert not tool.built


def test_two_who_need_the_same_packages_install_them_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would otherwise allow the other's services to start in the middle."""
    monkeypatch.setattr(paths, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(packages, "_POLICY", tmp_path / "policy-rc.d")
    proof = tmp_path / "proof"
    log = program("apt-get", APT, tmp_path, monkeypatch, proof=proof)
    with ThreadPoolExecutor(2) as users:
        list(users.map(packages.install, [{"tool": str(proof)}] * 2))
    assert len(log.read_text().splitlines()) == 1
    assert not (tmp_path / "policy-rc.d").exists()
