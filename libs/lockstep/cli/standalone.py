"""`lockstep standalone`: all services in one process. The table of services is here."""

from argparse import Namespace
from importlib import import_module

from lockstep.base.errors import BadInput
from lockstep.cli.connect import settings_of
from lockstep.runtime.service import Service, run_to_the_end
from lockstep.runtime.settings import Settings

SERVICES = ("pod_watcher", "slurm_poller", "drain", "reconciler")
RESTARTS = 5
"""A service that fails is started anew so often before the process ends."""


def services(settings: Settings) -> list[Service]:
    """Every service that has something to do; each says itself how it runs."""
    names = [*SERVICES, *(["forward"] if settings.forward else [])]
    return [import_module(f"lockstep.{name}.main").SERVICE for name in names]


def run(args: Namespace) -> int:
    """Runs until it is told to stop."""
    settings = settings_of(args)
    if not settings.clusters:
        raise BadInput(["clusters: none are set; name them in a settings file and give it with --config"])
    return run_to_the_end(settings, services(settings), name="standalone", restarts=RESTARTS, embedded=True)
