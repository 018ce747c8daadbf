"""What the lab needs of a machine, and what a person can do where it is missing."""

import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from . import build, cgroups, network, packages, paths, ports
from .nats import binary

_MIN_MEMORY_GB, _MIN_DISK_GB, _MIN_BUILD_DISK_GB = 6, 8, 20
_CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_SYS_CHROOT": 18, "CAP_SYS_ADMIN": 21, "CAP_MKNOD": 27}


@dataclass(frozen=True)
class Need:
    """One thing that was looked at."""

    what: str
    met: bool
    hint: str
    """What was found, or what to do."""
    for_kubelets: bool = False
    """Whether the hollow profile does without it."""


def look() -> list[Need]:
    """Look at the machine; nothing is changed."""
    return [*_for_everything(), *_for_kubelets()]


def can_run_kubelets() -> tuple[bool, str]:
    """Whether real kubelets can run here, and if not, why."""
    unmet = [need for need in _for_kubelets() if not need.met]
    return not unmet, "; ".join(f"{need.what}: {need.hint}" for need in unmet)


def report() -> str:
    """One screen: what is there, what is missing, what to do."""
    needs = look()
    lines = [f"  {'ok     ' if need.met else 'MISSING'}  {need.what:<22} {need.hint}" for need in needs]
    if all(need.met for need in needs):
        lines.append("Everything is there: the lab can run with real kubelets.")
    elif all(need.met or need.for_kubelets for need in needs):
        lines.append("The lab can run with hollow nodes only: tests.lab up --profile hollow")
    else:
        lines.append("The lab cannot run here until the above is mended.")
    return "\n".join(lines)


def _for_everything() -> Iterator[Need]:
    root = os.geteuid() == 0
    yield Need("root", root, "yes" if root else "run as root: the lab mounts, makes a bridge and starts containers")
    debian = shutil.which("apt-get") is not None
    yield Need("Debian", debian, "apt-get is there" if debian else "Debian 12 or later, or one made of it")
    memory = _memory_gb()
    yield Need("memory", memory >= _MIN_MEMORY_GB, f"{memory:.0f} GB available, {_MIN_MEMORY_GB} GB needed")
    to_build = build.missing()
    disk, least = _disk_gb(), _MIN_BUILD_DISK_GB if to_build else _MIN_DISK_GB
    yield Need("disk", disk >= least, f"{disk:.0f} GB free under {paths.CACHE.parent}, {least} GB needed")
    if to_build:
        go = shutil.which("go") is not None
        names = ", ".join(program.name for program in to_build)
        minutes = sum(program.minutes for program in to_build)
        yield Need("Go", go, f"{names}: built once, about {minutes:.0f} min" if go else f"Go >= 1.26, to build {names}")
    else:
        yield Need("programs", met=True, hint=f"built, in {paths.CACHE}")
    wanted = packages.missing()
    yield Need("packages", met=True, hint=f"apt will install {', '.join(wanted)}" if wanted else "all installed")
    try:
        yield Need("nats-server", met=True, hint=str(binary()))
    except FileNotFoundError as error:
        yield Need("nats-server", met=False, hint=str(error))
    held = [] if running() else ports.taken(kubelets=True)
    yield Need("ports", not held, f"in use: {', '.join(held)}" if held else "free, or the lab's own")


def _for_kubelets() -> Iterator[Need]:
    lacking = [name for name, bit in _CAPABILITIES.items() if not _capabilities() >> bit & 1]
    hint = f"without {', '.join(lacking)}: a container needs --privileged" if lacking else "all that are needed"
    yield Need("capabilities", not lacking, hint, for_kubelets=True)
    version = cgroups.version()
    writable = version > 0 and os.access(cgroups.ROOT, os.W_OK)
    hint = f"version {version}" if writable else "mount /sys/fs/cgroup, writable"
    yield Need("cgroups", writable, hint, for_kubelets=True)
    if version == 2:
        lacking = sorted({"cpu", "cpuset", "memory", "pids"} - _controllers())
        hint = f"{', '.join(lacking)} not delegated to this cgroup" if lacking else "cpu, cpuset, memory, pids"
        yield Need("cgroup controllers", not lacking, hint, for_kubelets=True)
    overlay = "overlay" in Path("/proc/filesystems").read_text() or _modprobe("overlay")
    yield Need("overlayfs", overlay, "yes" if overlay else "modprobe overlay", for_kubelets=True)
    bridge = Path("/proc/sys/net/bridge").exists() or network.bridge_exists() or _modprobe("br_netfilter")
    yield Need("bridge netfilter", bridge, "yes" if bridge else "modprobe br_netfilter", for_kubelets=True)
    foreign = [] if running() else [name for name in network.chains() if "KUBE-SVC" in name or "KUBE-SERVICES" in name]
    hint = "another kube-proxy works on this machine" if foreign else "no other Kubernetes here"
    yield Need("no other kubelet", not foreign, hint, for_kubelets=True)
    clash = _route_clash()
    hint = f"route {clash} overlaps the lab's {ports.NETWORK} or {ports.SERVICES}" if clash else "free"
    yield Need("addresses", not clash, hint, for_kubelets=True)


def running() -> bool:
    """Whether a lab (or what is left of one) is on this machine."""
    return (paths.STATE / "lab.json").exists()


def _memory_gb() -> float:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) / 1e6
    return 0


def _disk_gb() -> float:
    folder = next(folder for folder in (paths.CACHE, *paths.CACHE.parents) if folder.exists())
    return shutil.disk_usage(folder).free / 1e9


def _capabilities() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return int(line.split()[1], 16)
    return 0


def _controllers() -> set[str]:
    return set((cgroups.ROOT / "cgroup.controllers").read_text().split())


def _modprobe(module: str) -> bool:
    """Whether the kernel has the module, built in or to load; loading it is left to ``up``."""
    command = ["/sbin/modprobe", "--dry-run", "--set-version", platform.release(), module]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


def _route_clash() -> str:
    if running():
        return ""
    try:
        routes = subprocess.run(["/sbin/ip", "-4", "route"], capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:
        return ""
    ours = tuple(network.rsplit(".", 2)[0] + "." for network in (ports.NETWORK, ports.SERVICES))
    others = (line.split()[0] for line in routes.splitlines() if ports.BRIDGE not in line)
    return next((route for route in others if route.startswith(ours)), "")
