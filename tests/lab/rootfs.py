"""Root file systems with Slurm inside, built once from Debian's own packages.

Each Slurm version comes from the Debian suite that ships it. The tree is kept in the lab's cache, and is never written to afterwards: the
daemons run on an overlay above it (:func:`overlay`), and the worker image is a copy of it. It holds the Slurm daemons and commands, eight
fake GPUs, and two users that exist in every copy under the same number.
"""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .paths import CACHE


@dataclass(frozen=True, kw_only=True)
class User:
    """A user of the root file systems; the same number in all of them, and in the pods made of them."""

    name: str
    uid: int


SLURM: Final = User(name="slurm", uid=64030)
"""Debian's own number for SlurmUser; a test of the build fails if Debian changes it."""
REST: Final = User(name="slurmrest", uid=64031)
"""slurmrestd refuses to run as root or as SlurmUser."""
RESEARCHER: Final = User(name="researcher", uid=2001)
"""Somebody who submits jobs and may nothing else."""

SUITES: Final = {"26.05": "forky", "24.11": "trixie"}
GPUS: Final = 8

_PACKAGES: Final = (
    "slurmctld",
    "slurmd",
    "slurmrestd",
    "slurm-client",
    "slurm-wlm-basic-plugins",
    "slurm-wlm-jwt-plugin",
)
_NOT_NEEDED: Final = (
    "usr/share/doc",
    "usr/share/man",
    "usr/share/locale",
    "usr/share/info",
    "var/cache/apt",
    "var/lib/apt/lists",
)


def slurm_rootfs(version: str) -> Path:
    """The root file system with this Slurm version (a key of SUITES); builds it in about a minute when it is missing.

    Raises KeyError for a version that no suite ships and CalledProcessError when a package tool fails; a failed build leaves nothing.
    """
    suite = SUITES[version]
    tree = CACHE / f"slurm-{version}-{suite}"
    tree.parent.mkdir(parents=True, exist_ok=True)
    with _one_builder(tree), tempfile.TemporaryDirectory(prefix=f".{tree.name}-", dir=tree.parent) as scratch:
        if not tree.exists():
            new = Path(scratch, "root")
            _build(suite, new)
            new.rename(tree)
    return tree


def mirror() -> str:
    """The Debian mirror of this machine's own apt settings."""
    answer = subprocess.run(
        ["apt-get", "indextargets", "Created-By: Packages", "Label: Debian", "Component: main", "--format", "$(SITE)"],
        check=True,
        capture_output=True,
        text=True,
    )
    sites = answer.stdout.split()
    if not sites:
        raise LookupError("apt knows no Debian mirror: run apt-get update, then try again")
    return sites[0]


@contextmanager
def overlay(lower: Path, at: Path) -> Iterator[Path]:
    """See :func:`mount_overlay`; unmounted at the end."""
    root = mount_overlay(lower, at)
    try:
        yield root
    finally:
        unmount_below(at)


def mount_overlay(lower: Path, at: Path) -> Path:
    """A writable copy of `lower` under the folder `at`, with /proc and /sys, fit to chroot into.

    What was written there before stays, so that a daemon finds its state again. Mounts that were left over at this place go first.
    """
    unmount_below(at)
    upper, work, root = at / "upper", at / "work", at / "root"
    for folder in (upper, work, root):
        folder.mkdir(parents=True, exist_ok=True)
    root.chmod(0o755)
    _run("mount", "-t", "overlay", "overlay", "-o", f"lowerdir={lower},upperdir={upper},workdir={work}", str(root))
    _run("mount", "-t", "proc", "proc", str(root / "proc"))
    _run("mount", "--rbind", "--make-rslave", "/sys", str(root / "sys"))
    return root


def unmount_below(folder: Path) -> None:
    """Unmounts whatever is mounted at or under the folder, the deepest first; nothing mounted is fine."""
    for point in reversed(mounts_below(folder)):
        _run("umount", "--lazy", str(point))


def mounts_below(folder: Path) -> list[Path]:
    """The mount points at or under the folder, in the order in which they were mounted."""
    points = [
        Path(line.split()[4].replace(r"\040", " ")) for line in Path("/proc/self/mountinfo").read_text().splitlines()
    ]
    return [point for point in points if point.is_relative_to(folder)]


def _build(suite: str, root: Path) -> None:
    site = mirror()
    # debootstrap of an older Debian does not know the newer suites' names; all of Debian is bootstrapped by the same script.
    _run(
        "debootstrap",
        "--variant=minbase",
        "--include=ca-certificates",
        suite,
        str(root),
        site,
        "/usr/share/debootstrap/scripts/sid",
    )
    _write(root / "usr/sbin/policy-rc.d", "#!/bin/sh\nexit 101\n", mode=0o755)
    _write(
        root / "etc/dpkg/dpkg.cfg.d/small",
        "".join(f"path-exclude=/{path}/*\n" for path in _NOT_NEEDED if "share" in path),
    )
    _chroot(root, "apt-get", "-o", "Acquire::Check-Valid-Until=false", "update", "-q")
    _chroot(root, "apt-get", "install", "-q", "-y", "--no-install-recommends", *_PACKAGES)
    if _chroot(root, "id", "-u", SLURM.name).strip() != str(SLURM.uid):
        raise LookupError(f"{suite} gives the user {SLURM.name} another number than {SLURM.uid}")
    for user in (REST, RESEARCHER):
        _chroot(
            root, "useradd", "--uid", str(user.uid), "--user-group", "--create-home", "--shell", "/bin/sh", user.name
        )
    make_gpus(root / "dev")
    # It includes by pattern, which Slurm does not support and calls an error at each start of anything.
    (root / "etc/slurm/plugstack.conf").unlink(missing_ok=True)
    for path in _NOT_NEEDED:
        shutil.rmtree(root / path, ignore_errors=True)


def make_gpus(dev: Path) -> None:
    """Eight devices that open like GPUs and hold nothing: /dev/null under other names."""
    for index in range(GPUS):
        device = dev / f"nvidia{index}"
        os.mknod(device, 0o666 | 0o020000, os.makedev(1, 3))
        device.chmod(0o666)


@contextmanager
def _one_builder(tree: Path) -> Iterator[None]:
    with tree.with_name(f"{tree.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _write(path: Path, text: str, *, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def _chroot(root: Path, *argv: str) -> str:
    return _run("chroot", str(root), *argv)


def _run(*argv: str) -> str:
    """Runs a tool; what it printed is in the error when it fails, and is its answer when not."""
    env = os.environ | {
        "DEBIAN_FRONTEND": "noninteractive",
        "LC_ALL": "C",
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    }
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(argv[:4])} … failed:\n{(done.stdout + done.stderr)[-2000:]}")
    return done.stdout
