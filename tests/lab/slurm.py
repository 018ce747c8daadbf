"""One real Slurm cluster: slurmctld, slurmrestd behind a proxy that can fail on order, and slurmds as plain processes.

The daemons live in a root file system of their own, an overlay over :func:`tests.lab.rootfs.slurm_rootfs`, in which the
commands (:mod:`tests.lab.slurm_commands`) run too. Workers in pods are made by :mod:`tests.lab.workers`. Several
clusters can run side by side, also of different versions:

>>> main, old = Slurm(processes), Slurm(processes, version="24.11", cluster="old")
>>> main.up(), old.up(), old.add_slurmds(["old-1", "old-2"])
>>> main.proxy.set("hang"); processes.kill("slurmctld-main"); processes.restart("slurmctld-main")
"""

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from . import paths
from .processes import Processes
from .proxy import Proxy
from .rootfs import REST, SLURM, mount_overlay, slurm_rootfs, unmount_below
from .slurm_commands import Commands, SlurmError, wait_until
from .slurm_conf import JWT_KEY, ClusterConf, cgroup_conf, gres_conf, node_conf, slurm_conf


@dataclass(frozen=True, kw_only=True)
class Ports:
    """The ports of one cluster; all below the kernel's ephemeral ones and Kubernetes' node ports."""

    slurmctld: int
    slurmrestd: int
    """On loopback only."""
    proxy: int
    slurmd: int
    """The first of the slurmds that are processes; each has one, counted up."""


PORTS = {
    "main": Ports(slurmctld=16817, slurmrestd=16820, proxy=16821, slurmd=20000),
    "old": Ports(slurmctld=17817, slurmrestd=17820, proxy=17821, slurmd=24000),
}


class Slurm(Commands):
    """A Slurm cluster of the lab. Every object with the same cluster name means the same running cluster."""

    def __init__(
        self,
        processes: Processes,
        version: str = "26.05",
        cluster: str = "main",
        *,
        ports: Ports | None = None,
        address: str | None = None,
        slurmd_timeout_s: int = 30,
        extra_conf: Iterable[str] = (),
    ) -> None:
        """Describes the cluster; :meth:`up` starts it.

        `address` is an address of this machine that pods reach; without it the one towards the default route.
        `extra_conf` are further lines of slurm.conf.
        """
        self.processes = processes
        self.version = version
        self.ports = ports or PORTS[cluster]
        self.address = address or _own_address()
        self.conf = ClusterConf(
            name=cluster,
            version=version,
            host=socket.gethostname().partition(".")[0],
            address=self.address,
            port=self.ports.slurmctld,
            slurmd_timeout_s=slurmd_timeout_s,
            extra=tuple(extra_conf),
        )
        self._home = paths.STATE / "slurm" / cluster
        self._control = paths.RUN / f"slurm-proxy-{cluster}.sock"
        super().__init__(cluster, self._home / "controller" / "root")
        self._nodes_root = self._home / "nodes" / "root"
        self.etc = self.root / "etc/slurm"
        """The folder of slurm.conf; write topology.yaml and the like here, then `scontrol("reconfigure")`."""
        self.url = f"http://{self.address}:{self.ports.proxy}"
        """slurmrestd as Lockstep sees it, through the proxy; from pods too."""
        self.direct_url = f"http://127.0.0.1:{self.ports.slurmrestd}"
        """slurmrestd itself, from this machine only."""
        self.key_file = self._home / "jwt_hs256.key"
        """The key that signs tokens (HS256), readable by root."""
        self.proxy = Proxy(self._control)

    # ---- up and down

    def up(self) -> None:
        """Starts what is not running and waits until it answers; state and keys of an earlier run are kept."""
        if not os.path.ismount(self.root):
            self._lay_out(mount_overlay(slurm_rootfs(self.version), self.root.parent))
        start = self.processes.start
        chroot = str(self.root)
        start(f"slurmctld-{self.cluster}", ["slurmctld", "-D"], chroot=chroot, uid=SLURM.uid, gid=SLURM.uid)
        self._wait_daemon(f"slurmctld-{self.cluster}", lambda: "UP" in self.scontrol("ping"))
        start(
            f"slurmrestd-{self.cluster}",
            ["slurmrestd", "-a", "rest_auth/jwt", "-s", "slurmctld", f"127.0.0.1:{self.ports.slurmrestd}"],
            env={"SLURM_JWT": "daemon", "SLURM_CONF": "/etc/slurmrest/slurm.conf"},
            chroot=chroot,
            uid=REST.uid,
            gid=REST.uid,
        )
        self._control.parent.mkdir(parents=True, exist_ok=True)
        listen = [part for address in sorted({"127.0.0.1", self.address}) for part in ("--listen", address)]
        port = ["--port", str(self.ports.proxy), "--upstream-port", str(self.ports.slurmrestd)]
        start(
            f"slurmrestd-proxy-{self.cluster}",
            [sys.executable, "-m", "tests.lab.proxy_server", *listen, *port, "--control", str(self._control)],
            cwd=paths.CHECKOUT,
        )
        token = self.token()
        self._wait_daemon(f"slurmrestd-{self.cluster}", lambda: self._answers(self.direct_url, token))
        self._wait_daemon(f"slurmrestd-proxy-{self.cluster}", lambda: self._answers(self.url, token))
        self.proxy.forget()

    def down(self) -> None:
        """Ends every process of the cluster, jobs included, and removes its mounts and files.

        It is fine after a crash, and twice.
        """
        mine = [name for name in self.processes.names() if self._is_mine(name)]
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(self.processes.kill, mine))
        for name in mine:
            self.processes.forget(name)
        for root in (self.root, self._nodes_root):
            _end_all_in(root)
        unmount_below(self._home)
        self._control.unlink(missing_ok=True)
        shutil.rmtree(self._home, ignore_errors=True)

    def _is_mine(self, name: str) -> bool:
        daemons = {f"{daemon}-{self.cluster}" for daemon in ("slurmctld", "slurmrestd", "slurmrestd-proxy")}
        return name in daemons or name.startswith(f"slurmd-{self.cluster}-")

    def _lay_out(self, root: Path) -> None:
        """Folders, keys and configuration in a fresh root; keys and state that are there stay."""
        for folder in ("run/slurm", "run/slurmctld", "var/spool/slurmctld"):
            _folder(root / folder, SLURM.uid)
        self._home.chmod(0o711)
        texts = {"slurm.conf": slurm_conf(self.conf), "gres.conf": gres_conf(), "cgroup.conf": cgroup_conf()}
        for name, text in texts.items():
            (self.etc / name).write_text(text)
        self._write_hosts(root)
        for key in (self.etc / "slurm.key", root / JWT_KEY.lstrip("/")):
            if not key.exists():
                _secret(key, secrets.token_bytes(64), SLURM.uid)
        _secret(self.key_file, (root / JWT_KEY.lstrip("/")).read_bytes(), 0)
        rest = root / "etc/slurmrest"
        _folder(rest, REST.uid)
        for name in ("slurm.conf", "slurm.key"):
            _secret(rest / name, (self.etc / name).read_bytes(), REST.uid)

    def _write_hosts(self, root: Path) -> None:
        """Slurmctld listens on its own name's address, whatever slurm.conf gives in parentheses."""
        (root / "etc/hosts").write_text(f"127.0.0.1 localhost\n{self.address} {self.conf.host}\n")

    def _answers(self, url: str, token: str) -> bool:
        with contextlib.suppress(OSError):
            request = urllib.request.Request(f"{url}/openapi/v3", headers={"X-SLURM-USER-TOKEN": token})
            urllib.request.urlopen(request, timeout=10).close()
            return True
        return False

    def _wait_daemon(self, process: str, answers: Callable[[], bool]) -> None:
        """Waits until it answers; one that has ended is not waited for."""

        def is_so() -> bool:
            if not self.processes.alive(process):
                last = self.processes.log(process).read_text(errors="replace").splitlines()[-5:]
                raise SlurmError("\n".join([f"{process} has ended; the end of its log:", *last]))
            with contextlib.suppress(SlurmError):
                return answers()
            return False

        wait_until(is_so, 30, f"{process} does not answer")

    # ---- workers as processes

    def add_slurmds(self, names: Iterable[str], *, features: str = "worker", timeout_s: float = 120) -> None:
        """Starts a real slurmd with eight fake GPUs for each name and waits until Slurm calls them all IDLE.

        They share this machine and one root file system, each with a port of its own; a thousand take about 4.5 GB.
        """
        if not os.path.ismount(self._nodes_root):
            root = mount_overlay(slurm_rootfs(self.version), self._nodes_root.parent)
            self._write_hosts(root)
            _folder(root / "run/slurm", 0)
            _folder(root / "var/spool/slurmd", 0)
            # The same files as slurmctld's, so that a reconfigure reaches these nodes too.
            subprocess.run(["mount", "--bind", self.etc, root / "etc/slurm"], check=True)
        wanted = list(names)
        known = [name for name in self.processes.names() if name.startswith(f"slurmd-{self.cluster}-")]
        fresh = [name for name in wanted if f"slurmd-{self.cluster}-{name}" not in known]
        ports = {name: self.ports.slurmd + len(known) + index for index, name in enumerate(fresh)}
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda name: self._start_slurmd(name, ports.get(name), features), wanted))
        wait_until(lambda: self.idle().issuperset(wanted), timeout_s, f"not all of {len(wanted)} slurmds became IDLE")

    def _start_slurmd(self, name: str, port: int | None, features: str) -> None:
        process = f"slurmd-{self.cluster}-{name}"
        if port is None:
            if not self.processes.alive(process):
                self.processes.restart(process)
            return
        slurmd = ["slurmd", "-D", "-Z", "-N", name, "--conf", node_conf(port=port, features=features)]
        self.processes.start(process, [*_OWN_RUN, *slurmd], chroot=str(self._nodes_root))


_OWN_RUN = ("unshare", "--mount", "--propagation=slave", "sh", "-c", 'mount -t tmpfs run /run/slurm && exec "$@"', "sh")
"""A slurmd makes /run/slurm/sack.socket and dies if another makes it in the same moment: each gets its own."""


def _own_address() -> str:
    """This machine's address towards the default route (nothing is sent); loopback where there is no route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])
    return "127.0.0.1"


def _folder(path: Path, uid: int) -> None:
    path.mkdir(parents=True, exist_ok=True)
    os.chown(path, uid, uid)
    path.chmod(0o755)


def _secret(path: Path, content: bytes, uid: int) -> None:
    paths.write(path, content, mode=0o600)
    os.chown(path, uid, uid)


def _end_all_in(root: Path) -> None:
    """Kills whatever has this folder as its root: jobs and their shepherds outlive a killed slurmd."""
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if process.name.isdigit() and (process / "root").readlink() == root:
                os.kill(int(process.name), signal.SIGKILL)
