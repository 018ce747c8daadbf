"""The `lockstep` command: parse, hand over to the command's own module, end with a code that scripts can use.

A command lives in the module of its name; the module is imported only when it is wanted.
"""

import asyncio
import os
import sys
from collections.abc import Coroutine, Sequence
from importlib import import_module

from lockstep.base.errors import LockstepError
from lockstep.cli.exits import Exit, code_of, lines_of
from lockstep.cli.parser import build


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; the exit code as `exits.Exit` explains it. Never ends in a traceback for what is foreseen."""
    args = build().parse_args(argv)
    try:
        work = import_module(f"lockstep.cli.{args.command.replace('-', '_')}").run(args)
        code = int(asyncio.run(work) if isinstance(work, Coroutine) else work)
        sys.stdout.flush()
    except LockstepError as error:
        for line in lines_of(error):
            print(f"lockstep: {line}", file=sys.stderr)
        return code_of(error)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.OK
    return code


if __name__ == "__main__":
    sys.exit(main())
