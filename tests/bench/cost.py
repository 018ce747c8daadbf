"""What Lockstep costs while nothing happens: CPU and memory of its processes, as the kernel counts them."""

import asyncio
import os
import time
from pathlib import Path

from tests.bench.legs import Numbers

MACHINE = "machine"
"""Stands for all processes together, whosever they are."""
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def tree(pid: int) -> dict[int, str]:
    """A process and all below it, with their names."""
    found = {pid: Path(f"/proc/{pid}/comm").read_text().strip()}
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found |= tree(int(child))
    return found


def cpu_s(pid: int) -> float:
    """CPU seconds that a process has used so far, in its own code and in the kernel."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_S


def rss_mib(pid: int) -> float:
    """Resident memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE / 2**20


def busy_s() -> float:
    """CPU seconds that all processes of the machine have used so far, of all cores together."""
    user, nice, system, _, _, irq, softirq = map(int, Path("/proc/stat").read_text().split(maxsplit=8)[1:8])
    return (user + nice + system + irq + softirq) * _TICK_S


async def idle(pids: dict[str, int], for_s: float) -> dict[str, Numbers]:
    """Per process the share of one core over so many seconds, and its memory at the end."""
    before, busy, begun = {name: cpu_s(pid) for name, pid in pids.items()}, busy_s(), time.monotonic()
    await asyncio.sleep(for_s)
    passed_s = time.monotonic() - begun
    machine = {"core_share": (busy_s() - busy) / passed_s}
    return {MACHINE: machine} | {
        name: {"core_share": (cpu_s(pid) - before[name]) / passed_s, "rss_mib": rss_mib(pid)}
        for name, pid in pids.items()
    }
