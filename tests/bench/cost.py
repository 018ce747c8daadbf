"""What Lockstep costs while nothing happens: CPU and memory of its processes, as the kernel counts them."""

import asyncio
import os
import time
from pathlib import Path

from tests.bench.legs import Numbers

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


async def idle(pids: dict[str, int], for_s: float) -> dict[str, Numbers]:
    """Per process the share of one core over so many seconds, and its memory at the end."""
    before, begun = {name: cpu_s(pid) for name, pid in pids.items()}, time.monotonic()
    await asyncio.sleep(for_s)
    passed_s = time.monotonic() - begun
    return {
        name: {"core_share": (cpu_s(pid) - before[name]) / passed_s, "rss_mib": rss_mib(pid)}
        for name, pid in pids.items()
    }
