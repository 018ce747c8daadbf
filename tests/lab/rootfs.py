"""Root file systems with Slurm inside, built once from Debian's own packages.

Each Slurm version comes from the Debian suite that ships it. The tree is kept in the lab's cache and never written to
afterwards: the daemons run on an overlay above it (:func:`mount_overlay`), and the worker image is a copy of it. It
holds the Slurm daemons and commands, eight fake GPUs, and users that have the same number in every copy.
"""

import os
import shutil
import stat
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .paths import CACHE, one_builder


@dataclass(frozen=True, kw_only=True)
class User:
    """A user of the root file systems; the same number in all of them, and in the pods made of them."""

    name: str
    uid: int


SLURM: Final = User(name="slurm", uid=64030)
"""Debian's own number for SlurmUser; the build fails if Debian changes it."""
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
_NO_DOCS: Final = ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info")
_NO_CACHES: Final = ("var/cache/apt", "var/lib/apt/lists")


def slurm_rootfs(version: str) -> Path:
    """The root file system with this Slurm version (a key of SUITES); builds it in about a minute when it is missing.

    Raises KeyError for a version that no suite ships, RuntimeError with its output when a package tool fails; a failed
    build leaves nothing.
    """
    tree = CACHE / f"slurm-{version}-{SUITES[version]}"
    with one_builder(tree), tempfile.TemporaryDirectory(prefix=f".{tree.name}-", dir=tree.parent) as scratch:
        if not tree.exists():
            new = Path(scratch, "root")
            try:
                _build(version, new)
            finally:
                # A killed debootstrap leaves its /proc, into which the removal of the scratch folder must not go.
                unmount_below(new)
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


def leave_out_docs(root: Path) -> None:
    """Tell the dpkg of a root file system to install no documentation, as Debian's slim images do."""
    (root / "etc/dpkg/dpkg.cfg.d/small").write_text("".join(f"path-exclude=/{path}/*\n" for path in _NO_DOCS))


def start_no_services(root: Path) -> None:
    """Keep packages that are installed in a root file system from starting their daemons, as Debian's images do."""
    policy = root / "usr/sbin/policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)


def make_small(root: Path) -> None:
    """Remove documentation and what apt can fetch again."""
    for path in (*_NO_DOCS, *_NO_CACHES):
        shutil.rmtree(root / path, ignore_errors=True)


def mount_overlay(lower: Path, at: Path) -> Path:
    """A writable copy of `lower` under the folder `at`, with /proc and /sys, fit to chroot into.

    What was written there before stays, so that a daemon finds its state again. Mounts left over there go first.
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
    table = Path("/proc/self/mountinfo").read_text().splitlines()
    points = (Path(line.split()[4].replace(r"\040", " ")) for line in table)
    return [point for point in points if point.is_relative_to(folder)]


def _build(version: str, root: Path) -> None:
    suite = SUITES[version]
    # An older Debian's debootstrap does not know the newer suites' names; one script serves them all.
    script = "/usr/share/debootstrap/scripts/sid"
    _run("debootstrap", "--variant=minbase", "--include=ca-certificates", suite, str(root), mirror(), script)
    start_no_services(root)
    leave_out_docs(root)
    inside = ("chroot", str(root))
    _run(*inside, "apt-get", "-o", "Acquire::Check-Valid-Until=false", "update", "-q")
    _run(*inside, "apt-get", "install", "-q", "-y", "--no-install-recommends", *_PACKAGES)
    if version not in (ships := _run(*inside, "slurmctld", "-V")):
        raise LookupError(f"Debian's {suite} does not ship Slurm {version} any more, but {ships.strip()}")
    if _run(*inside, "id", "-u", SLURM.name).strip() != str(SLURM.uid):
        raise LookupError(f"{suite} gives the user {SLURM.name} another number than {SLURM.uid}")
    for user in (REST, RESEARCHER):
        _run(*inside, "useradd", "--uid", str(user.uid), "--user-group", "--create-home", user.name)
    for index in range(GPUS):
        _fake_gpu(root / f"dev/nvidia{index}")
    # It includes by pattern, which Slurm does not support and calls an error at each start of anything.
    (root / "etc/slurm/plugstack.conf").unlink(missing_ok=True)
    # This machine's own, copied by debootstrap; Slurm would wait for it at each name it does not know.
    (root / "etc/resolv.conf").unlink(missing_ok=True)
    make_small(root)


def _fake_gpu(device: Path) -> None:
    """A device that opens like a GPU and holds nothing: /dev/null under another name."""
    os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    device.chmod(0o666)


def _run(*argv: str) -> str:
    """Runs a tool; what it printed is in the error when it fails, and is its answer when not."""
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C", "PATH": path}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(argv[:4])} … failed:\n{(done.stdout + done.stderr)[-2000:]}")
    return done.stdout
