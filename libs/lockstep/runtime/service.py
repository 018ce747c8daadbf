"""How services run: settings, signals, and an end in order. The only place with signal handlers."""

import argparse
import asyncio
import gc
import signal
import sys
from collections.abc import Sequence
from importlib.metadata import version

import structlog

from lockstep.base.errors import BadInput, Fatal
from lockstep.runtime.health import Health
from lockstep.runtime.load import load
from lockstep.runtime.process import Process, Service, leaves
from lockstep.runtime.settings import Settings
from lockstep.runtime.telemetry import setup_logging
from lockstep.runtime.tracing import setup_tracing

__all__ = ["Service", "main", "run_services", "run_to_the_end"]

GRACE_S = 10.0
"""For everything to end after SIGTERM."""

_SIGNALS = (signal.SIGTERM, signal.SIGINT)

log = structlog.get_logger()


def main(*services: Service, argv: Sequence[str] | None = None) -> int:
    """The command `lockstep-<service>`: reads the settings, runs, and returns the exit code (2: bad settings)."""
    name = services[0].name
    parser = argparse.ArgumentParser(prog=f"lockstep-{name}", description=f"Runs Lockstep's {name}.")
    parser.add_argument("--config", help="YAML file with the settings (default: $LOCKSTEP_CONFIG)")
    parser.add_argument("--version", action="version", version=version("slurm-lockstep"))
    arguments = parser.parse_args(argv)
    try:
        settings = load(arguments.config)
    except BadInput as e:
        sys.stderr.write("".join(f"{fault}\n" for fault in e.faults))
        return 2
    return run_to_the_end(settings, services, name=name)


def run_to_the_end(
    settings: Settings, services: Sequence[Service], *, name: str, restarts: int = 0, embedded: bool = False
) -> int:
    """Sets up logs and traces, runs the services until SIGTERM or SIGINT (0) or until something fails (1)."""
    gc.freeze()  # what the imports made stays: going through it again would stop everything for a tenth of a second
    setup_logging(settings.log, name)
    finish = setup_tracing(settings.tracing, name)
    try:
        asyncio.run(run_services(settings, services, name=name, restarts=restarts, embedded=embedded))
    except (Exception, ExceptionGroup) as error:
        known = all(isinstance(e, Fatal | BadInput) for e in leaves(error))
        told = "; ".join(str(e) for e in leaves(error))
        log.error("Process ends", error=told, exc_info=None if known else leaves(error)[0])
        return 1
    finally:
        finish()
    return 0


async def run_services(
    settings: Settings, services: Sequence[Service], *, name: str, restarts: int = 0, embedded: bool = False
) -> None:
    """Runs services until SIGTERM or SIGINT.

    A service that fails is started anew up to `restarts` times; any other task that ends, or a service beyond that,
    ends everything. With `embedded` and no NATS address, a server of our own is started.

    Raises:
        Fatal: something without which nothing can go on.
        ExceptionGroup: several of them.
    """
    health = Health()
    stop = asyncio.Event()

    loop = asyncio.get_running_loop()

    def end() -> None:
        """The first signal ends in order; a second one ends at once, as it does by default."""
        health.stopping = True
        stop.set()
        for number in _SIGNALS:
            loop.remove_signal_handler(number)

    for number in _SIGNALS:
        loop.add_signal_handler(number, end)
    async with asyncio.TaskGroup() as group:
        process = Process(settings, name, health, restarts)
        work = group.create_task(process.run(services, embedded=embedded))
        waiting = group.create_task(stop.wait())
        await asyncio.wait({work, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if not work.done():
            log.info("Stopping")
            work.cancel()
            await asyncio.wait({work}, timeout=GRACE_S)
    log.info("Stopped")
