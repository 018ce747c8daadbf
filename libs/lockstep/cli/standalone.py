"""`lockstep standalone`: all services in one process. The table of services is here."""

from argparse import Namespace
from importlib import import_module

from lockstep.cli.connect import settings_of
from lockstep.cli.exits import Exit
from lockstep.runtime.service import Service, run_services

SERVICES = ("pod_watcher", "slurm_poller", "drain", "reconciler")


def services() -> list[Service]:
    """Every service there is; each says itself how it runs."""
    return [import_module(f"lockstep.{name}.main").SERVICE for name in SERVICES]


async def run(args: Namespace) -> int:
    """Runs until it is told to stop."""
    await run_services(settings_of(args), services())
    return Exit.OK
