"""`lockstep forward`: posts events to the HTTP endpoints of the settings, as `lockstep-forward` does."""

from argparse import Namespace
from importlib import import_module

from lockstep.cli.connect import settings_of
from lockstep.runtime.service import run_to_the_end


def run(args: Namespace) -> int:
    """Runs until it is told to stop."""
    return run_to_the_end(settings_of(args), [import_module("lockstep.forward.main").SERVICE], name="forward")
