"""``python -m tests.bench``: measures Lockstep on real slurmds, prints a table and writes ``docs/bench``.

``python -m tests.bench stream`` measures the streams alone.
"""

import argparse
import asyncio
import os
import sys
import time
from contextlib import suppress
from typing import Any

import aiohttp

from tests.bench import cost, fleet, report, stream
from tests.bench.eyes import PROTECT, KubeEyes, SlurmEyes
from tests.bench.legs import Legs, Numbers
from tests.lab import versions
from tests.lab.lab import Lab
from tests.lab.lockstep import Lockstep
from tests.lab.progress import say

FULL = 1000
"""Workers of the run whose results are kept in the documentation."""
IDLE_S = 60
BESIDE = ("slurmctld-main", "slurmrestd-main", "kube-apiserver", "etcd")
"""Processes whose idle cost is recorded beside Lockstep's: what Lockstep makes them do."""
LEGS = ("idle", "cordons", "drains", "all-cordons", "all-drains")


def main(arguments: list[str]) -> int:
    """Run it; returns the exit status."""
    if arguments[:1] == ["stream"]:
        return stream.main(arguments[1:])
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--workers", type=int, default=FULL, help="real slurmds (default 1,000; about 4.5 GB)")
    parser.add_argument("--samples", type=int, default=100, help="of each leg that is measured one worker at a time")
    parser.add_argument("--idle", type=float, default=IDLE_S, metavar="SECONDS", help="length of the idle leg")
    parser.add_argument("--legs", nargs="+", choices=LEGS, default=LEGS, help="measure only these")
    parser.add_argument("--keep", action="store_true", help="leave the lab and Lockstep running")
    options = parser.parse_args(arguments)
    lab, names = fleet.up(options.workers)
    lockstep = Lockstep(lab, embedded_nats=True, clusters=[_cluster(lab)])
    lockstep.stop()
    lockstep.install()
    try:
        legs = asyncio.run(_measure(lab, lockstep, names, options))
    finally:
        if not options.keep:
            lockstep.stop()
            lab.down()
    result = {
        "workers": options.workers,
        "machine": {"cores": os.cpu_count(), "kubernetes": versions.KUBERNETES, "slurm": lab.slurm.version},
        "legs": legs,
    }
    if _is_whole(options):
        report.write(result)
    print(report.table(result))
    return 0


def _is_whole(options: argparse.Namespace) -> bool:
    """Whether the run is one whose results are kept."""
    return bool(options.workers == FULL and options.idle >= IDLE_S and set(options.legs) == set(LEGS))


def _cluster(lab: Lab) -> dict[str, Any]:
    """As a site has it: all workers in pods, and nothing between Lockstep and slurmrestd."""
    return {
        "name": "main",
        "namespace": "slurm",
        "url": lab.slurm.direct_url,
        "key_file": str(lab.slurm.key_file),
    }


async def _measure(
    lab: Lab, lockstep: Lockstep, names: list[str], options: argparse.Namespace
) -> dict[str, Numbers | dict[str, Numbers]]:
    found: dict[str, Any] = {}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=64)) as session, asyncio.TaskGroup() as group:
        kube, slurm = KubeEyes(session, lab), SlurmEyes(session, lab)
        watching = group.create_task(kube.follow())
        legs = Legs(kube, slurm, names, options.samples)
        found["start"] = await _take_over(lockstep, kube, names)
        wanted = set(options.legs)
        await legs.settle()
        if "idle" in wanted:
            say(f"idle, {options.idle:g} s")
            found["idle"] = await cost.idle(_pids(lab, lockstep), options.idle)
        if "cordons" in wanted:
            say("cordons, one at a time")
            found["cordon"], found["uncordon"] = await legs.cordons()
            await legs.settle()
        if "drains" in wanted:
            say("Slurm drains, one at a time")
            found["drain"], found["undrain"] = await legs.drains()
            await legs.settle()
        if "all-cordons" in wanted:
            say("all cordons at once")
            found["cordon-all"] = await legs.all_cordons(on=True)
            await kube.quiet(3)
            found["uncordon-all"] = await legs.all_cordons(on=False)
            await legs.settle()
        if "all-drains" in wanted:
            say("all Slurm drains at once")
            found["drain-all"] = await legs.all_drains(on=True)
            await kube.quiet(3)
            found["undrain-all"] = await legs.all_drains(on=False)
            await legs.settle()
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
    return found


async def _take_over(lockstep: Lockstep, kube: KubeEyes, names: list[str]) -> Numbers:
    """Start Lockstep on a fleet that it does not know, until every pod is protected and every node says so."""
    begun = time.monotonic()
    await asyncio.to_thread(lockstep.up)
    ready = time.monotonic()
    await kube.until(names, lambda marks: PROTECT in marks)
    protected = time.monotonic()
    await kube.in_service(names)
    return {"ready_s": ready - begun, "protected_s": protected - begun}


def _pids(lab: Lab, lockstep: Lockstep) -> dict[str, int]:
    """Lockstep's processes by what they are, and those that it makes work."""
    found = {name: pid for root in lockstep.names for pid, name in cost.tree(lab.processes.pid(root)).items()}
    return found | {name: lab.processes.pid(name) for name in BESIDE}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
