"""Faults on demand, for everything but slurmrestd, whose own are at ``lab.slurm.proxy``.

Processes are named as in ``status``: ``etcd``, ``kube-apiserver``, ``kubelet-1``, ``containerd-1``, ``nats``,
``slurmctld-main``, …
"""

import contextlib
import subprocess
from collections.abc import Iterator, Sequence

from . import ports
from .kube import Kube
from .nodes import Node
from .processes import Processes

_TRIES = 5
"""The kernel passes over a connection that is at work in the moment."""


class Faults:
    """What can go wrong, on order."""

    def __init__(self, processes: Processes, kube: Kube, nodes: Sequence[Node]) -> None:
        """Act on these processes, this cluster and its real nodes."""
        self._processes, self._kube = processes, kube
        self._nodes = {node.name: node for node in nodes}

    def kill(self, name: str) -> None:
        """End a process without warning; ``restart`` brings it back."""
        self._processes.kill(name)

    def restart(self, name: str) -> None:
        """Start a process again, after ending it if it is alive; returns before it is ready."""
        self._processes.restart(name)

    def stop(self, name: str) -> None:
        """Freeze a process: connections stay open and nothing answers."""
        self._processes.pause(name)

    def cont(self, name: str) -> None:
        """Let a frozen process go on."""
        self._processes.resume(name)

    @contextlib.contextmanager
    def frozen(self, name: str) -> Iterator[None]:
        """Freeze a process for the time of a ``with`` block."""
        self.stop(name)
        try:
            yield
        finally:
            self.cont(name)

    def power_off(self, node: str) -> None:
        """End everything on a real node without warning; Kubernetes calls it NotReady some 40 s later."""
        self._nodes[node].power_off()

    def power_on(self, node: str) -> None:
        """Start the node again, and wait until it is Ready."""
        self._nodes[node].power_on(self._kube)

    def restart_apiserver(self) -> None:
        """Kill the API server, start it again and wait until it is ready: every watch ends, its caches are empty."""
        self._processes.kill("kube-apiserver")
        self._processes.restart("kube-apiserver")
        self._kube.wait_ready()

    def drop_watches(self) -> None:
        """Reset every connection to the API server, so every watch breaks off in the middle; the server goes on.

        Raises:
            RuntimeError: The kernel cannot (it lacks INET_DIAG_DESTROY); use ``restart_apiserver`` there.
        """
        before = self._connections()
        for _ in range(_TRIES):
            subprocess.run(["ss", "-K", *self._filter()], capture_output=True, check=False)
            if not before & self._connections():
                return
        raise RuntimeError("this kernel resets no connection of others; use restart_apiserver")

    def compact(self) -> int:
        """Compact etcd now; a watch from an older revision gets 410 Gone. Returns the revision."""
        return self._kube.compact()

    def revoke(self, name: str) -> None:
        """Make the tokens of ``kube.token_for(name)`` worthless, within 10 s."""
        self._kube.revoke(name)

    def _connections(self) -> set[str]:
        answer = subprocess.run(["ss", "-Htn", *self._filter()], capture_output=True, text=True, check=True)
        return {" ".join(line.split()[2:]) for line in answer.stdout.splitlines()}

    @staticmethod
    def _filter() -> list[str]:
        return ["state", "established", f"( sport = :{ports.API_SERVER} )"]
