"""Leader election on a Lease, with fencing: whoever may have lost the lease knows it, without asking anybody.

- Expiry is judged by our own monotonic clock, from when we saw the holder's last sign of life; clocks of machines are
  never compared.
- Our own right ends `margin_s` before others may take over, counted from before our last renewal was sent.
- `epoch` grows with each change of leader, also when the Lease was deleted in between, so that later commands outrank
  earlier ones.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from random import Random

import msgspec

from lockstep.base.clock import monotonic, now
from lockstep.kube.errors import AlreadyExists, Conflict, KubeError
from lockstep.kube.port import LeaseApi
from lockstep.kube.wire import Lease, LeaseSpec, ObjectMeta


class Leadership:
    """One candidate. `run()` is started in a TaskGroup; everything else may be asked at any time."""

    def __init__(
        self,
        kube: LeaseApi,
        name: str,
        namespace: str,
        identity: str,
        *,
        duration_s: int = 12,
        renew_s: float = 2.4,
        margin_s: float = 2.4,
        clock: Callable[[], float] = monotonic,
        random: Random | None = None,
    ) -> None:
        if not renew_s + margin_s < duration_s:
            raise ValueError(f"lease: renew_s {renew_s} and margin_s {margin_s} must fit into duration_s {duration_s}")
        self._kube, self._name, self._namespace, self.identity = kube, name, namespace, identity
        self._duration_s, self._renew_s, self._margin_s = duration_s, renew_s, margin_s
        self._random = random or Random()  # noqa: S311  jitter is no secret
        self._clock = clock
        self._leading = asyncio.Event()
        self._following = asyncio.Event()
        self._following.set()
        self._until = 0.0
        self._watched: tuple[str, float] = ("", 0.0)
        self._mine: list[LeaseSpec] = []
        """What our last answered write made of the Lease, and the renewals since, each of which may have arrived."""
        self.epoch = 0
        """The Lease's transitions when we became leader."""
        self.leader = ""
        """Who holds the lease, as last seen."""
        self.error = ""
        """Why the last try failed; empty when it did not."""

    def holds(self, now_monotonic: float) -> bool:
        """Whether we lead at this moment of `clock.monotonic`; False once the lease may have run out."""
        return self._leading.is_set() and now_monotonic < self._until

    async def held(self) -> int:
        """Wait until we lead, and may act now; the epoch."""
        while True:
            await self._leading.wait()
            if self.holds(self._clock()):
                return self.epoch
            self._step_down()

    async def lost(self) -> None:
        """Wait until we do not lead."""
        await self._following.wait()

    async def run(self) -> None:
        """Try to become and to stay leader, for ever; gives the lease back when cancelled."""
        try:
            while True:
                await self._try()
                await asyncio.sleep(self._pause_s() * (0.8 + 0.4 * self._random.random()))
        finally:
            if self._leading.is_set():
                self._step_down()
                await self._give_back()

    def _pause_s(self) -> float:
        """A follower looks twice as often: what it sees late, it counts from late."""
        return self._renew_s if self._leading.is_set() else self._renew_s / 2

    async def _try(self) -> None:
        """One look, and the write that it asks for. Never longer than what is left of our right."""
        started = self._clock()
        left = self._until - started if self._leading.is_set() else self._renew_s
        try:
            async with asyncio.timeout(max(0.1, min(left, self._duration_s / 3))):
                await self._look(started)
            self.error = ""
        except (KubeError, TimeoutError) as e:
            self.error = str(e) or "no answer in time"
        if self._leading.is_set() and not self.holds(self._clock()):
            self._step_down()

    async def _look(self, started: float) -> None:
        lease = await self._kube.get_lease(self._namespace, self._name)
        if lease is None:
            self._step_down()
            await self._create(started)
            return
        self.leader = lease.spec.holder_identity or ""
        if self._leading.is_set():
            if self.leader == self.identity and lease.spec.lease_transitions == self.epoch:
                await self._write(lease, started, self.epoch)
            else:
                self._step_down()
        elif self._free(lease):
            await self._write(lease, started, (lease.spec.lease_transitions or 0) + 1)

    def _free(self, lease: Lease) -> bool:
        """Nobody holds it, or its holder gave no sign for as long as it said, by our clock.

        A holder with our own name is no exception: it may be another process, or our own past. But where nobody has
        written since we did, as after an outage of the API server, we go on at once, with a new epoch. So also where
        that was a renewal of whose answer we never heard; its microseconds are proof enough.
        """
        if lease.spec in self._mine:
            return True
        seen = self._clock()
        if self._watched[0] != lease.metadata.resource_version:
            self._watched = (lease.metadata.resource_version, seen)
        return not self.leader or seen >= self._watched[1] + (lease.spec.lease_duration_seconds or self._duration_s)

    async def _create(self, started: float) -> None:
        """A new Lease starts at tens of seconds since 1970, which is more than a deleted one can have counted to."""
        at = now()
        spec = LeaseSpec(
            holder_identity=self.identity,
            lease_duration_seconds=self._duration_s,
            acquire_time=at,
            renew_time=at,
            lease_transitions=int(at.timestamp()) // 10,
        )
        wanted = Lease(metadata=ObjectMeta(name=self._name, namespace=self._namespace), spec=spec)
        with suppress(AlreadyExists):
            self._won(await self._kube.create_lease(wanted), started)

    async def _write(self, lease: Lease, started: float, epoch: int) -> None:
        """Take or renew it, at the version that was looked at."""
        at = now()
        spec = LeaseSpec(
            holder_identity=self.identity,
            lease_duration_seconds=self._duration_s,
            acquire_time=lease.spec.acquire_time if self._leading.is_set() else at,
            renew_time=at,
            lease_transitions=epoch,
        )
        if self._leading.is_set():
            self._mine.append(spec)
        with suppress(Conflict):
            self._won(await self._kube.update_lease(msgspec.structs.replace(lease, spec=spec)), started)

    def _won(self, lease: Lease, started: float) -> None:
        self.leader, self.epoch = self.identity, lease.spec.lease_transitions or 0
        self._mine = [lease.spec]
        self._until = started + self._duration_s - self._margin_s
        self._following.clear()
        self._leading.set()

    def _step_down(self) -> None:
        self._leading.clear()
        self._following.set()

    async def _give_back(self) -> None:
        """Let the next one lead at once."""
        with suppress(KubeError, TimeoutError):
            async with asyncio.timeout(2.0):
                lease = await self._kube.get_lease(self._namespace, self._name)
                if lease is None or lease.spec.holder_identity != self.identity:
                    return
                spec = msgspec.structs.replace(lease.spec, holder_identity=None, renew_time=now())
                await self._kube.update_lease(msgspec.structs.replace(lease, spec=spec))
