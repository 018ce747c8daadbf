"""``python -m tests.lab``: the lab on the command line."""

import argparse
import os
import sys

from . import apart, leftovers, lock, needs, paths
from .build import ALL, KUBERNETES
from .lab import Lab, build_everything, clean


def main(arguments: list[str]) -> int:
    """Run one command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="start the lab, or attach to the one that runs")
    up.add_argument("--profile", choices=["kubelets", "hollow"], help="default: kubelets where they can run")
    up.add_argument("--nodes", type=int, default=3)
    up.add_argument("--workers", type=int, help="default: one a kubelet")
    down = commands.add_parser("down", help="end everything; the cache and the logs stay")
    for command in (up, down):
        command.add_argument("--no-wait", action="store_true", help="give up if another command is changing the lab")
    commands.add_parser("status", help="processes, and what is on the machine")
    fill = commands.add_parser("build", help="install and build everything that any test needs, start nothing")
    for command in (up, fill):
        command.add_argument("--slurm", default="26.05", help="26.05 or 24.11")
    commands.add_parser("doctor", help="what this machine lacks")
    logs = commands.add_parser("logs", help="follow a process's log")
    logs.add_argument("name")
    alone = commands.add_parser("apart", help="run a command with a lab of its own beside others")
    alone.add_argument("name")
    alone.add_argument("command_apart", metavar="COMMAND", nargs=argparse.REMAINDER)
    for name, what in (("kubectl", "kubectl as administrator"), ("slurm", "a Slurm command, such as: slurm sinfo")):
        commands.add_parser(name, help=what, add_help=False)
    options, rest = parser.parse_known_args(arguments)
    if rest and options.command not in ("kubectl", "slurm"):
        parser.error(f"unknown: {' '.join(rest)}")
    try:
        return _run(options, arguments[1:])
    except (RuntimeError, TimeoutError, FileNotFoundError) as error:
        print(error, file=sys.stderr)
        return 1


def _run(options: argparse.Namespace, rest: list[str]) -> int:
    match options.command:
        case "up":
            lab = Lab.up(options.profile, options.nodes, options.slurm, options.workers, wait=not options.no_wait)
            print(f"export KUBECONFIG={lab.kube.kubeconfig}")
            print(f"export NATS_URL={lab.nats.url}")
            print(f"export SLURMRESTD_URL={lab.slurm.url}")
        case "down":
            clean(wait=not options.no_wait)
        case "status":
            return _status()
        case "build":
            build_everything(options.slurm, ALL)
        case "doctor":
            print(needs.report())
        case "logs":
            os.execvp("tail", ["tail", "-n", "100", "-F", str(paths.LOGS / f"{options.name}.log")])
        case "apart":
            apart.run(options.name, options.command_apart)
        case "kubectl":
            program = str(KUBERNETES.path("kubectl"))
            os.execv(program, [program, f"--kubeconfig={Lab.attach().kube.kubeconfig}", *rest])
        case "slurm":
            print(Lab.attach().slurm.run(*rest, timeout_s=600), end="")
    return 0


def _status() -> int:
    lab = Lab.peek()
    if lab is None:
        print("No lab is running; start one: python -m tests.lab up")
        found = leftovers.find()
        print("\n".join(["Left on this machine:", *found]) if found else "Nothing is left on this machine.")
        return 1
    print(f"{lab.shape.profile}, {lab.shape.nodes} nodes, Slurm {lab.shape.slurm}, from {lab.shape.checkout}")
    for name in lab.processes.names():
        print(f"  {'up  ' if lab.processes.alive(name) else 'DOWN'}  {name:<28} {lab.processes.log(name)}")
    if users := lock.holders():
        print(f"in use by {'; '.join(users)}")
    return 0 if lab.healthy() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
