"""`make demo`: a short tour of what Lockstep does, on real Kubernetes and real Slurm, each step checked.

Exits with 1 at the first step that is wrong, and says what both systems show.
"""

import json
import shlex
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable

from . import needs, paths
from .build import FOR_CHART, KUBERNETES
from .installed import Installed
from .lab import SLURM, Lab, LabError, build_everything
from .lockstep import BIN, Command, Lockstep
from .progress import wait_for

BOLD, DIM, GREEN, RED, END = (
    ("\033[1m", "\033[2m", "\033[32m", "\033[31m", "\033[0m") if sys.stdout.isatty() else ("",) * 5
)


class TourError(AssertionError):
    """A step of the tour did not show what it should."""


class Tour:
    """Says what it does, does it, and checks what both systems say of it."""

    def __init__(self, lab: Lab, lockstep: Command) -> None:
        self._lab = lab
        self._lockstep = lockstep
        self._number = 0

    def title(self, text: str) -> None:
        """Begins a step."""
        self._number += 1
        print(f"\n{BOLD}{self._number}. {text}{END}", flush=True)

    def do(self, command: str) -> str:
        """Show a command, run it, show its answer."""
        print(f"  {DIM}${END} {command}", flush=True)
        program, *arguments = shlex.split(command)
        match program:
            case "kubectl":
                answer = self._lab.kube.kubectl(*arguments)
            case "lockstep":
                answer = self._lockstep.cli(*arguments)
            case _:
                answer = self._lab.slurm.run(program, *arguments)
        if answer.strip():
            print(textwrap.indent(answer.rstrip(), "    "), flush=True)
        return answer

    def check(self, what: str, ask: Callable[[], object], within_s: float = 20) -> None:
        """Wait until it is so, and say how long that took."""
        begun = time.monotonic()
        while not ask():
            if time.monotonic() - begun > within_s:
                print(f"  {RED}✗ {what}: not within {within_s:g} s{END}")
                print(textwrap.indent(self._lab.slurm.sinfo("-N", "-o", "%N %T %E"), "    "))
                raise TourError(what)
            time.sleep(0.05)
        print(f"  {GREEN}✓{END} {what} {DIM}({time.monotonic() - begun:.1f} s){END}", flush=True)

    def reason(self, worker: str) -> str:
        """Slurm's reason; empty when the worker is not drained."""
        node = self._lab.slurm.node(worker)
        return str(node["reason"]) if "DRAIN" in node["state"] else ""

    def in_service(self, worker: str) -> bool:
        """Slurm shows the worker idle, without any other flag."""
        return set(self._lab.slurm.node(worker)["state"]) <= {"IDLE", "DYNAMIC_NORM"}

    def message(self, host: str) -> str:
        """The message of the node's condition lockstep.sh/InService."""
        for condition in self._lab.kube.get_json("node", host)["status"]["conditions"]:
            if condition["type"] == "lockstep.sh/InService":
                return str(condition.get("message", ""))
        return ""


def tour(lab: Lab, lockstep: Command) -> None:
    """All steps."""
    t = Tour(lab, lockstep)
    if not lab.nodes:
        hollow_tour(t)
        return
    host = lab.workers.node_of("gpu-1")

    t.title("Lockstep, installed by helm: two pods of each service, of which one acts")
    t.do("kubectl get pods -n lockstep-system")

    t.title("Two schedulers, one fleet: the same three workers in Kubernetes and in Slurm")
    t.do("kubectl get pods -n slurm -o wide")
    t.do("sinfo -N -l")
    t.do("lockstep get workers")

    t.title("A cordon in Kubernetes is a DRAIN in Slurm, with the same reason")
    t.do(f"kubectl annotate node {host} 'nodeset.slinky.slurm.net/node-cordon-reason=swap DIMM B2'")
    t.do(f"kubectl cordon {host}")
    t.check(
        "Slurm shows DRAIN, and our words",
        lambda: t.reason("gpu-1").startswith("lockstep: ") and "DIMM" in t.reason("gpu-1"),
    )
    t.check("the Kubernetes node says the same", lambda: t.message(host) == t.reason("gpu-1"))
    t.do("sinfo -R")

    t.title("A second hold, by somebody else")
    t.do("lockstep hold gpu-1 --reason 'firmware 1.4' --name firmware")
    t.check("both hold it", lambda: t.reason("gpu-1").endswith("(+1 more)"))
    t.do("kubectl get holds -n slurm")

    t.title("The uncordon does not free the worker: one hold stands")
    t.do(f"kubectl uncordon {host}")
    t.check("still DRAIN, by the other hold's words", lambda: t.reason("gpu-1").endswith("firmware 1.4"))
    t.do("lockstep why gpu-1")

    t.title("The release does")
    t.do("lockstep release firmware")
    t.check("no DRAIN", lambda: not t.reason("gpu-1"))
    t.do(f"kubectl annotate node {host} nodeset.slinky.slurm.net/node-cordon-reason-")

    t.title("An administrator's drain is respected, and shown in Kubernetes")
    t.do("scontrol update nodename=gpu-2 state=drain reason='fan noise'")
    second = lab.workers.node_of("gpu-2")
    t.check("Kubernetes shows her words", lambda: t.message(second) == "fan noise")
    t.do(f"kubectl cordon {second}")
    t.do(f"kubectl uncordon {second}")
    time.sleep(2)
    t.check("it is as she left it", lambda: t.reason("gpu-2") == "fan noise")
    t.do("scontrol update nodename=gpu-2 state=undrain")
    t.check("she lifts it", lambda: not t.reason("gpu-2"))

    t.title("kubectl drain waits for a running GPU job, and then goes through")
    job = lab.slurm.sbatch("#!/bin/sh\nexec sleep 3600\n", "--gres=gpu:8", "--nodelist=gpu-3", "--job-name=train")
    print(f"  {DIM}${END} sbatch --gres=gpu:8 --nodelist=gpu-3 train.sh   (job {job})")
    t.check("it runs on 8 GPUs", lambda: "RUNNING" in lab.slurm.squeue("--noheader", f"--jobs={job}", "--format=%T"))
    drain_and_wait(t, lab, job)


def drain_and_wait(t: Tour, lab: Lab, job: int) -> None:
    """The last step: the eviction that waits."""
    host = lab.workers.node_of("gpu-3")
    print(f"  {DIM}${END} kubectl drain {host} &", flush=True)
    command = [KUBERNETES.path("kubectl"), f"--kubeconfig={lab.kube.kubeconfig}", "drain", host, "--ignore-daemonsets"]
    with (paths.LOGS / "demo-drain.log").open("w") as log:
        drain = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            t.check("Slurm shows DRAIN", lambda: bool(t.reason("gpu-3")))
            time.sleep(5)
            t.check("kubectl drain still waits, the job still runs", lambda: drain.poll() is None)
            t.do("lockstep why gpu-3")
            t.do(f"scancel {job}")
            t.check("kubectl drain has gone through", lambda: drain.poll() == 0, 40)
        finally:
            drain.kill()
            drain.wait()
    t.do(f"kubectl uncordon {host}")
    t.check("the worker is back in service", lambda: t.in_service("gpu-3"), 90)


def hollow_tour(t: Tour) -> None:
    """What can be shown where no kubelet runs: holds and drains, without pods."""
    t.title("No kubelets here: the hollow profile, with slurmds as processes")
    t.do("lockstep get workers")
    t.do("lockstep hold gpu-1 --reason 'firmware 1.4' --name firmware")
    t.check("Slurm shows DRAIN, and our words", lambda: t.reason("gpu-1").endswith("firmware 1.4"))
    t.do("lockstep release firmware")
    t.check("no DRAIN", lambda: not t.reason("gpu-1"))


def installed(lab: Lab) -> Command:
    """Lockstep as a site has it: the chart, in pods."""
    site = Installed(lab)
    site.install()
    return site


def beside_hollow_nodes(lab: Lab) -> Command:
    """Lockstep in one process, where no pod can run."""
    lab.slurm.add_slurmds(["gpu-1", "gpu-2", "gpu-3"])
    lockstep = Lockstep(lab, embedded_nats=True)
    lockstep.install()
    lockstep.up()
    return lockstep


def _read(lockstep: Command) -> bool:
    workers = json.loads(lockstep.cli("get", "workers", "-o", "json"))["items"]
    return bool(workers) and not any(worker["stale"] for worker in workers)


GOODBYE = """
{bold}The tour is over; everything it showed is still running.{end}

  Look around    export KUBECONFIG={kubeconfig} LOCKSTEP_CONFIG={settings}
                 {bin}/lockstep get workers        {bin}/lockstep events --follow
                 .venv/bin/python -m tests.lab kubectl get pods -A
                 .venv/bin/python -m tests.lab slurm sinfo -N -l
  Stop it        make down
"""


def main() -> int:
    """Start everything and play the tour."""
    begun = time.monotonic()
    missing = [need for need in needs.look() if not need.met and not need.for_kubelets]
    if missing:
        print(needs.report())
        return 1
    try:
        if needs.can_run_kubelets()[0]:
            build_everything(SLURM, FOR_CHART)
        lab = Lab.up()
        lockstep = installed(lab) if lab.nodes else beside_hollow_nodes(lab)
        wait_for("both systems read", lambda: _read(lockstep), 30, 0.3)
        print(f"\nReady after {time.monotonic() - begun:.0f} s.")
        tour(lab, lockstep)
    except (LabError, TourError, RuntimeError, TimeoutError) as error:
        print(f"\n{RED}The tour stopped: {error}{END}\nLogs: {paths.LOGS}", file=sys.stderr)
        return 1
    print(
        GOODBYE.format(
            bold=BOLD,
            end=END,
            kubeconfig=lab.kube.kubeconfig,
            settings=lockstep.settings_file,
            bin=BIN.relative_to(paths.CHECKOUT),
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
