"""`lockstep version`."""

from argparse import Namespace
from importlib.metadata import version

from lockstep.cli.exits import Exit

DISTRIBUTION = "slurm-lockstep"


def run(_args: Namespace) -> int:
    """Prints the version."""
    print(version(DISTRIBUTION))
    return Exit.OK
