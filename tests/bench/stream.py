"""``python -m tests.bench stream``: what the streams carry, and for how long. Needs no lab: a nats-server of its own.

One process publishes as a service does, another subscribes and holds all facts (`tests.bench.reader`).
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from lockstep.base import clock
from lockstep.bus.envelope import pack_event, pack_fact, unpack_event, unpack_fact
from lockstep.bus.lanes import Lanes
from lockstep.bus.publisher import Publisher
from lockstep.contracts.common import WorkerRef
from lockstep.contracts.events import Event, SlurmStateChanged
from lockstep.contracts.facts import SlurmNode
from lockstep.fleet.facts import FactTable
from tests.bench import stream_report
from tests.bench.cost import cpu_s, rss_mib
from tests.bench.legs import Numbers
from tests.bench.reader import WIDTH, ident
from tests.fakes.nats import NatsServer, connected, nats_server
from tests.lab.progress import say

WORKERS = 1_000
BACKLOG = 100_000
RATE = 500
"""Events a second of the soak, and as many facts."""
LEGS = ("latency", "backlog", "decode", "soak")


def main(arguments: list[str]) -> int:
    """Run it; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench stream", description=__doc__)
    parser.add_argument("--soak", type=float, default=600, metavar="SECONDS", help="length of the soak (default 600)")
    parser.add_argument("--legs", nargs="+", choices=LEGS, default=LEGS, help="measure only these")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="lockstep-bench-") as folder:
        legs = asyncio.run(_measure(Path(folder), options))
    result = {"cores": os.cpu_count(), "load": os.getloadavg()[0], "legs": legs}
    if set(options.legs) == set(LEGS) and options.soak >= 600:
        stream_report.write(result)
    sys.stdout.write(stream_report.table(result) + "\n")
    return 0


async def _measure(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for leg in options.legs:
        say(leg)
        async with nats_server(folder / leg) as server, connected(server.address) as connection:
            publisher = Publisher(connection, source="bench", patience_s=60)
            match leg:
                case "latency":
                    found[leg] = await latency(server, publisher)
                case "backlog":
                    found[leg] = await backlog(server, publisher)
                case "decode":
                    found[leg] = await decode()
                case "soak":
                    found[leg] = await soak(server, publisher, options.soak)
    return found


def an_event(number: int) -> Event:
    """One of a worker, made now."""
    ref = WorkerRef(
        cluster="main", name=f"gpu-{number % WORKERS}", kube_node=f"host-{number % WORKERS}", namespace="slurm",
        pod=f"slurmd-gpu-{number % WORKERS}",
    )  # fmt: skip
    before, after = ("IDLE", "MIXED") if number // WORKERS % 2 else ("MIXED", "IDLE")
    return SlurmStateChanged(id=ident(number), at=clock.now(), worker=ref, before=before, after=after)


def a_fact(number: int) -> SlurmNode:
    """One of a worker; differs from the one before."""
    return SlurmNode(
        cluster="main", name=f"gpu-{number % WORKERS}", base="MIXED" if number // WORKERS % 2 else "IDLE",
        alloc_cpus=number // WORKERS, partitions=["train", "debug"], features=["h100"], gres="gpu:h100:8",
        version="26.05", read_at=clock.now(),
    )  # fmt: skip


async def latency(server: NatsServer, publisher: Publisher) -> Numbers:
    """Event by event, 100 a second: from the moment before it is made until the subscriber has it."""
    count = 2_000
    async with reading(server, 0, count) as done:
        for number in range(count):
            began = time.monotonic()
            await publisher.event(an_event(number))
            await asyncio.sleep(max(0.01 - (time.monotonic() - began), 0))
        return await done()


async def backlog(server: NatsServer, publisher: Publisher) -> Numbers:
    """All at once: the rate from which on one subscriber would fall behind; and at which one service publishes."""
    began, cpu = time.monotonic(), time.process_time()
    for start in range(0, BACKLOG, WORKERS):
        await publisher.events(an_event(number) for number in range(start, start + WORKERS))
    published_s, publish_cpu_s = time.monotonic() - began, time.process_time() - cpu
    before = cpu_s(_pid(server))
    async with reading(server, 1, BACKLOG) as done:
        found = await done()
    return {
        "read_per_s": BACKLOG / found["seconds"],
        "read_cpu_us": found["cpu_s"] / BACKLOG * 1e6,
        "nats_cpu_us": (cpu_s(_pid(server)) - before) / BACKLOG * 1e6,
        "publish_per_s": BACKLOG / published_s,
        "publish_cpu_us": publish_cpu_s / BACKLOG * 1e6,
    }


async def decode() -> Numbers:
    """Without NATS: a body becomes an event and a job in a lane; a body becomes a fact in the table."""
    count = 50_000
    events = [pack_event(an_event(number), "bench").body for number in range(count)]
    facts = [pack_fact(a_fact(number), "bench").body for number in range(count)]

    async def look() -> None:
        pass

    began = time.process_time()
    async with Lanes[str](WIDTH) as lanes:
        for number, body in enumerate(events):
            event = unpack_event(body)
            assert isinstance(event, SlurmStateChanged)
            lanes.put(event.worker.name, look)
            if number % 50 == 0:
                await asyncio.sleep(0)
        await lanes.idle()
    event_s, began = time.process_time() - began, time.process_time()
    table = FactTable()
    for body in facts:
        fact = unpack_fact(body)
        assert isinstance(fact, SlurmNode)
        table.apply(fact)
    return {"event_us": event_s / count * 1e6, "fact_us": (time.process_time() - began) / count * 1e6}


async def soak(server: NatsServer, publisher: Publisher, for_s: float) -> dict[str, Any]:
    """500 events and 500 facts a second; the memory of the three processes every ten seconds."""
    count = int(for_s * RATE)
    batch = RATE // 10
    samples: list[list[float]] = []
    async with reading(server, 0, count) as done:
        pids = {"publisher": os.getpid(), "subscriber": done.pid, "nats-server": _pid(server)}
        cpus = {name: cpu_s(pid) for name, pid in pids.items()}
        began, late_s = time.monotonic(), 0.0
        for number, start in enumerate(range(0, count, batch)):
            now = time.monotonic() - began
            late_s = max(late_s, now - number / 10)
            await asyncio.sleep(max(number / 10 - now, 0))
            await publisher.facts(a_fact(n) for n in range(start, start + batch))
            await publisher.events(an_event(n) for n in range(start, start + batch))
            if number % 100 == 0:
                samples.append([round(now), *(round(rss_mib(pid), 1) for pid in pids.values())])
        shares = {name: (cpu_s(pid) - cpus[name]) / (time.monotonic() - began) for name, pid in pids.items()}
        found = await done()
    return {
        "seconds": for_s,
        "late_s": late_s,
        "core_share": shares,
        "p50_s": found["p50_s"],
        "p99_s": found["p99_s"],
        "rss_mib": {"columns": ["second", *pids], "rows": samples},
    }


class Reading:
    """A subscriber at work."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = process.pid

    async def __call__(self) -> Numbers:
        """What it saw, when it has seen all."""
        assert self._process.stdout is not None
        async with asyncio.timeout(120):
            while not (line := await self._process.stdout.readline()).startswith(b"{"):
                assert line, "the subscriber ended without numbers"
        found: Numbers = json.loads(line)
        return found


@asynccontextmanager
async def reading(server: NatsServer, start: int, count: int) -> AsyncIterator[Reading]:
    """A subscriber in a process of its own, inside the context."""
    url, user, password_file = server.address
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.bench.reader", url, user, password_file, str(start), str(count),
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        if not start:
            assert await process.stdout.readline() == b"ready\n"
        yield Reading(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def _pid(server: NatsServer) -> int:
    assert server.pid is not None
    return server.pid
