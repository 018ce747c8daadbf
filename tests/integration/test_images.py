"""Our image, built from its Dockerfile: what is in it, and that it runs as a cautious cluster runs it.

Needs root. The image's root file system is mounted read-only, without a shell, and entered as its user.
"""

import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.lab import dockerfiles, product

pytestmark = pytest.mark.timeout(600)
UID = 65532
COMMANDS = (
    "lockstep",
    *(f"lockstep-{name}" for name in ("pod-watcher", "slurm-poller", "drain", "reconciler", "forward")),
)
ENTER = """
mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && mount -t tmpfs tmpfs "$0/tmp" || exit 1
for shell in dash bash; do mount --bind /dev/null "$0/usr/bin/$shell" || exit 1; done
exec chroot --userspec=65532:65532 "$0" "$@"
"""
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module", name="root")
def _root() -> Iterator[Path]:
    """The image's root file system."""
    with dockerfiles.mounted(product.lockstep_image()) as root:
        yield root


@pytest.fixture(scope="module", name="run")
def _run(root: Path) -> Run:
    """Runs a command in the image as a restricted pod does."""
    path = next(v for v in dockerfiles.about(product.lockstep_image())["Env"] if v.startswith("PATH=")).removeprefix(
        "PATH="
    )

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        inside = ["unshare", "--mount", "sh", "-c", ENTER, str(root), "/usr/bin/env", "-i", f"PATH={path}", *command]
        return subprocess.run(inside, capture_output=True, text=True, check=False)

    return run


def test_the_image_says_what_it_is_and_whose_it_is_not() -> None:
    """A number as user, so that a cluster sees that it is not root; no entrypoint: the command chooses the service."""
    about = dockerfiles.about(product.lockstep_image())
    assert about["User"] == f"{UID}:{UID}"
    assert about["Cmd"] == ["lockstep", "--help"]
    assert not about.get("Entrypoint")
    labels = {name.removeprefix("org.opencontainers.image."): value for name, value in about["Labels"].items()}
    assert (labels["title"], labels["version"], labels["licenses"]) == ("Lockstep", product.version(), "Apache-2.0")


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_answers_without_shell_rights_or_a_place_to_write(run: Run, command: str) -> None:
    """Read-only root, user 65532, and only /tmp to write to."""
    done = run(command, "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"usage: {command} ")
    assert done.stderr == ""


def test_the_image_holds_this_version(run: Run) -> None:
    """As its label and the package say."""
    assert run("lockstep", "version").stdout.strip() == product.version()


def test_wrong_settings_end_a_service_with_a_word_about_them(run: Run) -> None:
    """It starts far enough to read its settings, and complains without a traceback."""
    done = run("lockstep-drain", "--config", "/nowhere.yaml")
    assert done.returncode != 0
    assert "/nowhere.yaml: cannot be read" in done.stderr + done.stdout
    assert "Traceback" not in done.stderr


def test_nothing_is_left_of_the_build(root: Path) -> None:
    """No pip, compiler, cache or list of packages: less to update, and less for an intruder."""
    left = ["tools", "src", "wheel", "usr/bin/gcc", "usr/bin/cc", "usr/bin/pip", "usr/bin/pip3", "opt/lockstep/bin/pip"]
    assert [name for name in left if (root / name).exists()] == []
    assert list(root.glob("opt/lockstep/lib/python3*/site-packages/pip")) == []
    empty = ["var/lib/apt/lists", "var/cache/apt", "var/log", "root/.cache", "tmp"]
    assert [name for name in empty if (root / name).is_dir() and any((root / name).iterdir())] == []
    assert not (root / "etc/pip.conf").exists() or (root / "etc/pip.conf").read_bytes() == b""


def test_its_user_owns_nothing_and_may_write_nowhere_but_to_what_is_shared(root: Path) -> None:
    """What runs could otherwise change itself, where the root is not mounted read-only."""
    shared = {root / "tmp", root / "var/tmp", root / "run/lock"}
    found = []
    for path in root.rglob("*"):
        about = path.lstat()
        if stat.S_ISLNK(about.st_mode) or path in shared or root / "dev" in path.parents:
            continue
        if UID in (about.st_uid, about.st_gid) or about.st_mode & stat.S_IWOTH:
            found.append(str(path.relative_to(root)))
    assert found == []


def test_byte_code_is_complete_and_does_not_depend_on_when_it_was_made(root: Path) -> None:
    """A read-only root can keep none that is missing; with time stamps in it no two builds would be equal."""
    (site,) = root.glob("opt/lockstep/lib/python3*/site-packages")
    sources = list((site / "lockstep").rglob("*.py"))
    assert len(sources) > 100
    for source in sources:
        (code,) = (source.parent / "__pycache__").glob(f"{source.stem}.*.pyc")
        flags = int.from_bytes(code.read_bytes()[4:8], "little")
        assert flags == 0b01, f"{code}: not by unchecked hash"
