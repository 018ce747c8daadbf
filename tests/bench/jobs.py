"""``python -m tests.bench.jobs``: what it costs to follow every job of a cluster (the setting ``jobs: all``).

Needs no lab: the answers are made here, as Slurm 26.05 writes them, and go through the client and the poller's
bookkeeping. Between two readings some jobs end and as many begin.
"""

import argparse
import asyncio
import copy
import gc
import sys
import time
import tracemalloc
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import msgspec

from lockstep.slurm.client import SlurmRest
from lockstep.slurm.port import JobList
from lockstep.slurm.transport import Answer, Transport
from lockstep.slurm_poller.jobs import Runs

RECORDED = Path(__file__).parents[1] / "unit/slurm/golden/26.05-v0.0.45-jobs.json"
AT = datetime(2026, 7, 1, tzinfo=UTC)
BEGAN = 1_782_000_000
READINGS = 3


class Cluster:
    """A Slurm with so many jobs, of which a part runs; stands for the way to it."""

    def __init__(self, jobs: int, running: int, turn: int) -> None:
        """`turn` jobs end, and as many begin, with each reading."""
        self._answer = msgspec.json.decode(RECORDED.read_bytes())
        self._row = self._answer["jobs"][0]
        self._jobs, self._running, self._turn = jobs, running, turn
        self._first = 0
        self.body = b""

    def go_on(self) -> None:
        """Time passes: the next answer is made, which is not a part of what is measured."""
        self._answer["jobs"] = list(self._rows())
        self.body = msgspec.json.encode(self._answer)
        self._first += self._turn

    def who(self) -> dict[str, str]:
        """As the transport."""
        return {}

    async def send(self, _method: str, _parser: str, route: str, *_: Any, **__: Any) -> Answer:
        """As the transport."""
        body = self.body if route == "jobs/" else b'{"pings": [{"responding": true}]}'
        return Answer(status=200, content_type="application/json", body=body)

    def _rows(self) -> Iterator[dict[str, Any]]:
        for i in range(self._jobs):
            job_id = self._first + i
            state = "COMPLETED" if i < self._turn else "RUNNING" if i < self._turn + self._running else "PENDING"
            row = copy.copy(self._row) | {"job_id": job_id, "job_state": [state]}
            waits = state == "PENDING"
            row["nodes"] = "" if waits else f"gpu-[{job_id % 9_000}-{job_id % 9_000 + 3}]"
            row["start_time"] = {"set": True, "infinite": False, "number": 0 if waits else BEGAN + job_id}
            yield row


def measured(jobs: int, running: int, turn: int) -> dict[str, str]:
    """The numbers, each with its unit."""
    cluster = Cluster(jobs, running, turn)
    slurm = SlurmRest(cast(Transport, cluster), cluster="main")
    runs = Runs("main")
    read_s, told_s, events = [], [], 0
    for _ in range(READINGS + 1):
        cluster.go_on()
        began = time.process_time()
        answer = asyncio.run(_read(slurm))
        between = time.process_time()
        events = len(runs.events(answer, AT, facts={}))
        told_s.append(time.process_time() - between)
        read_s.append(between - began)
        del answer
    peak, kept = _memory(slurm, cluster)
    return {
        "jobs, of which run, end and begin each time": f"{jobs:,}, {running:,}, {turn:,}",
        "answer": f"{len(cluster.body) / 2**20:,.0f} MiB",
        "processor time to read it": f"{min(read_s[1:]):.2f} s",
        "processor time to find what happened": f"{min(told_s[1:]):.3f} s",
        "events": f"{events:,}",
        "memory while it is read, beside the answer": f"{peak:,.0f} MiB",
        "memory that stays": f"{kept:,.1f} MiB",
    }


def _memory(slurm: SlurmRest, cluster: Cluster) -> tuple[float, float]:
    """The most that one reading needs, and what it leaves behind, in MiB."""
    runs = Runs("main")
    gc.collect()
    tracemalloc.start()
    answer = asyncio.run(_read(slurm))
    runs.events(answer, AT, facts={})
    peak = tracemalloc.get_traced_memory()[1]
    del answer
    gc.collect()
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return peak / 2**20, kept / 2**20


async def _read(slurm: SlurmRest) -> JobList:
    answer = await slurm.jobs()
    assert answer is not None
    return answer


def main(arguments: list[str]) -> int:
    """Run it; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.jobs", description=__doc__)
    parser.add_argument("--jobs", type=int, default=100_000, help="in Slurm's answer (default 100,000)")
    parser.add_argument("--running", type=int, default=50_000, help="of them (default 50,000)")
    parser.add_argument("--turn", type=int, default=1_000, help="that end and begin between readings (default 1,000)")
    options = parser.parse_args(arguments)
    for name, value in measured(options.jobs, options.running, options.turn).items():
        sys.stdout.write(f"{name:<46} {value}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
