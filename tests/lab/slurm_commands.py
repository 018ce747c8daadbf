"""Slurm's own commands, run in a cluster's root file system, and what its nodes are.

A person's way into the cluster, beside the REST interface that Lockstep uses: tests compare what Lockstep did with
what these say.
"""

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_PATH = "PATH=/usr/sbin:/usr/bin:/sbin:/bin"


class SlurmError(RuntimeError):
    """A command failed or a state did not come; the text has its output."""


class Commands:
    """The commands of one cluster."""

    def __init__(self, cluster: str, root: Path) -> None:
        """Commands run chrooted in `root`, which has the cluster's configuration."""
        self.cluster = cluster
        self.root = root
        """Root file system of slurmctld, slurmrestd and the commands."""

    def run(self, *argv: str, user: int = 0, stdin: str | None = None, timeout_s: float = 60) -> str:
        """Runs a Slurm command as a user (a uid of :mod:`tests.lab.rootfs`) and returns what it printed.

        SlurmError when it fails.
        """
        clean = ["env", "--ignore-environment", "--chdir=/tmp", _PATH]
        command = ["chroot", f"--userspec={user}:{user}", str(self.root), *clean, *argv]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False)
        if done.returncode != 0:
            raise SlurmError(f"{' '.join(argv)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def scontrol(self, *argv: str) -> str:
        """Runs scontrol as root."""
        return self.run("scontrol", *argv)

    def sinfo(self, *argv: str) -> str:
        """Runs sinfo."""
        return self.run("sinfo", *argv)

    def squeue(self, *argv: str) -> str:
        """Runs squeue."""
        return self.run("squeue", *argv)

    def srun(self, *argv: str, user: int = 0, timeout_s: float = 60) -> str:
        """Runs a command on workers and returns its output."""
        return self.run("srun", *argv, user=user, timeout_s=timeout_s)

    def sbatch(self, script: str, *argv: str, user: int = 0) -> int:
        """Submits a script; without a first line of its own it is a shell script. Returns the job's id."""
        text = script if script.startswith("#!") else f"#!/bin/sh\n{script}\n"
        answer = self.run("sbatch", "--parsable", "--output=/dev/null", *argv, user=user, stdin=text)
        return int(answer.partition(";")[0])

    def scancel(self, *argv: str | int) -> None:
        """Ends jobs."""
        self.run("scancel", *map(str, argv))

    def token(self, user: str = "slurm", lifespan_s: int = 3600) -> str:
        """A fresh JWT for this user; slurm may do everything."""
        return self.scontrol("token", f"username={user}", f"lifespan={lifespan_s}").strip().partition("=")[2]

    def node(self, name: str) -> dict[str, Any]:
        """What slurmctld knows of a node now, as `scontrol --json` says it; SlurmError when there is none."""
        nodes: list[dict[str, Any]] = json.loads(self.scontrol("show", "node", name, "--json"))["nodes"]
        if not nodes:
            raise SlurmError(f"{self.cluster} has no node {name}")
        return nodes[0]

    def nodes(self) -> dict[str, dict[str, Any]]:
        """All nodes by name, from one full list; the only read that is fresh in everything."""
        return {node["name"]: node for node in json.loads(self.scontrol("show", "nodes", "--json"))["nodes"]}

    def idle(self) -> set[str]:
        """The nodes that can take a job at once."""
        return set(self.sinfo("--noheader", "--Node", "--states=idle", "--responding", "--format=%N").split())

    def wait_node(self, name: str, is_so: Callable[[dict[str, Any]], bool], timeout_s: float = 30) -> dict[str, Any]:
        """Waits until the node is there and is so; returns it. SlurmError says what it was at the end."""
        deadline = time.monotonic() + timeout_s
        while True:
            node = self.nodes().get(name)
            if node and is_so(node):
                return node
            if time.monotonic() > deadline:
                seen = f"{'+'.join(node['state'])}, reason {node['reason']!r}" if node else "unknown to Slurm"
                raise SlurmError(f"node {name} did not become so in {timeout_s:.0f} s; it is {seen}")
            time.sleep(0.1)


def wait_until(is_so: Callable[[], bool], timeout_s: float, complaint: str) -> None:
    """Asks until the answer is yes; SlurmError with the complaint when it is not within the time."""
    deadline = time.monotonic() + timeout_s
    while not is_so():
        if time.monotonic() > deadline:
            raise SlurmError(f"{complaint} in {timeout_s:.0f} s")
        time.sleep(0.1)
