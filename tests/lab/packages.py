"""Debian packages that the lab needs. Mirrors and proxies are the machine's own settings."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from shutil import which

from . import paths
from .progress import step

NEEDED = {
    "etcd-server": "/usr/bin/etcd",
    "runc": "/usr/sbin/runc",
    "containernetworking-plugins": "/usr/lib/cni/bridge",
    "iptables": "/usr/sbin/iptables",
    "conntrack": "/usr/sbin/conntrack",
    "ethtool": "/sbin/ethtool",
    "iproute2": "/sbin/ip",
    "socat": "/usr/bin/socat",
    "debootstrap": "/usr/sbin/debootstrap",
    "buildah": "/usr/bin/buildah",
    "busybox-static": "/bin/busybox",
    "kmod": "/sbin/modprobe",
    "openssl": "/usr/bin/openssl",
    "procps": "/usr/bin/ps",
}
"""What every lab needs: the package, and a file by which it is known to be there."""
FOR_TESTS = {
    "jq": "/usr/bin/jq",
    "nodejs": "/usr/bin/node",
    "npm": "/usr/bin/npm",
    "prometheus": "/usr/bin/promtool",
}
"""And what only some tests ask for."""

_POLICY = Path("/usr/sbin/policy-rc.d")


class PackagesError(RuntimeError):
    """apt could not install what is needed; the text is apt's own."""


def missing(needed: Mapping[str, str] = NEEDED) -> list[str]:
    """Packages of these whose file is not there, nor a program of its name on the path."""
    return [package for package, proof in needed.items() if not Path(proof).exists() and not which(Path(proof).name)]


def install(needed: Mapping[str, str] = NEEDED) -> None:
    """Install what is missing of these. Services of those packages are not started.

    Raises:
        PackagesError: Something is still missing afterwards.
    """
    if not missing(needed):
        return
    with paths.one_builder(paths.CACHE / "packages"):
        if wanted := missing(needed):
            with step(f"Debian packages: {', '.join(wanted)}"), _no_service_starts():
                _install(wanted)
    if left := missing(needed):
        raise PackagesError(f"installed, but these files are missing: {', '.join(needed[name] for name in left)}")


def _install(wanted: Sequence[str]) -> None:
    if _apt("install", *wanted).returncode != 0:
        _apt("update")
        answer = _apt("install", *wanted)
        if answer.returncode != 0:
            raise PackagesError(f"apt-get install {' '.join(wanted)} failed:\n{answer.stderr[-2000:]}")


def _apt(command: str, *packages: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            "apt-get",
            "-qq",
            "-y",
            "-o",
            "DPkg::Lock::Timeout=300",
            command,
            *(["--no-install-recommends"] if packages else []),
            *packages,
        ],
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        capture_output=True,
        text=True,
        check=False,
    )


class _no_service_starts:  # noqa: N801  (used as a statement)
    """Debian starts a package's services at once, on the ports that the lab wants; this forbids it for a while."""

    def __enter__(self) -> None:
        self._ours = not _POLICY.exists()
        if self._ours:
            _POLICY.write_text("#!/bin/sh\nexit 101\n")
            _POLICY.chmod(0o755)

    def __exit__(self, *_: object) -> None:
        if self._ours:
            _POLICY.unlink(missing_ok=True)
