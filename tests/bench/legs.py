"""What is measured: each leg is a dict of numbers in seconds (or as named), ready to be written as JSON."""

import asyncio
import random
import time
from collections.abc import Sequence
from statistics import quantiles

from tests.bench.eyes import DRAIN, PROTECT, KubeEyes, SlurmEyes

Numbers = dict[str, float]
GAP_S = (0.1, 0.4)
"""Between two samples, at random: so that they do not keep step with Lockstep's readings."""


class Legs:
    """The legs, on a fleet that Lockstep has taken over and that is quiet."""

    def __init__(self, kube: KubeEyes, slurm: SlurmEyes, names: Sequence[str], samples: int) -> None:
        self._kube, self._slurm, self._names = kube, slurm, names
        self._sampled = [names[number * 7 % len(names)] for number in range(samples)]
        self._random = random.Random(1)

    async def settle(self) -> None:
        """Wait until every pod is protected, shows no drain, and nothing changes any more."""
        await self._kube.until(self._names, lambda marks: PROTECT in marks and DRAIN not in marks)
        await self._kube.quiet(2)

    async def cordons(self) -> tuple[Numbers, Numbers]:
        """One worker at a time: from sending the cordon until Slurm shows DRAIN; and the same back."""
        there, back = list[float](), list[float]()
        for worker in self._sampled:
            for on, times in ((True, there), (False, back)):
                await self._gap()
                sent = time.monotonic()
                await self._kube.cordon(worker, on=on)
                times.append(await self._slurm.until(worker, drained=on) - sent)
        return spread(there), spread(back)

    async def drains(self) -> tuple[Numbers, Numbers]:
        """One worker at a time: from sending an administrator's drain until the pod shows it; and the same back."""
        there, back = list[float](), list[float]()
        for worker in self._sampled:
            for on, times in ((True, there), (False, back)):
                await self._gap()
                sent = time.monotonic()
                await self._slurm.drain(worker, on=on)
                seen = await self._kube.until([worker], _shows if on else _hides)
                times.append(seen[worker] - sent)
        return spread(there), spread(back)

    async def all_cordons(self, *, on: bool) -> Numbers:
        """All workers at once: from the last answered cordon (or uncordon) until Slurm shows all (or no) DRAIN."""
        begun = time.monotonic()
        answered, seen = await asyncio.gather(
            self._kube.cordon_all(self._names, on=on), self._slurm.until_count(len(self._names) if on else 0)
        )
        return {"all_s": max(seen - answered, 0), "cordoning_s": answered - begun, "from_first_s": seen - begun}

    async def all_drains(self, *, on: bool) -> Numbers:
        """All workers at once: from an administrator's one drain of all (or its end) until all pods show it."""
        sent = time.monotonic()
        await self._slurm.drain(f"gpu-[1-{len(self._names)}]", on=on)
        seen = await self._kube.until(self._names, _shows if on else _hides)
        times = [at - sent for at in seen.values()]
        return {"all_s": max(times), "p50_s": sorted(times)[len(times) // 2]}

    async def _gap(self) -> None:
        await asyncio.sleep(self._random.uniform(*GAP_S))


def _shows(marks: frozenset[str]) -> bool:
    return DRAIN in marks


def _hides(marks: frozenset[str]) -> bool:
    return DRAIN not in marks


def spread(times: Sequence[float]) -> Numbers:
    """Count, median, 99th percentile and maximum."""
    at = quantiles(times, n=100, method="inclusive") if len(times) > 1 else [times[0]] * 99
    return {"count": len(times), "p50_s": at[49], "p99_s": at[98], "max_s": max(times)}
