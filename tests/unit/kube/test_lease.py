"""At most one leads, whatever fails; time is the loop's and jumps."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from random import Random

import msgspec
import pytest

from lockstep.kube.errors import AlreadyExists, Conflict, Unreachable
from lockstep.kube.lease import Leadership
from lockstep.kube.wire import Lease, LeaseSpec, ObjectMeta

pytestmark = pytest.mark.looptime


class Leases:
    """One Lease, and one way to it that may fail."""

    def __init__(self) -> None:
        self.lease: Lease | None = None
        self.version = 0
        self.cut: set[str] = set()
        """Candidates that reach the server no more."""
        self.deaf: set[str] = set()
        """Candidates whose writes arrive, but who never hear of it."""
        self.slow_s = 0.0

    def of(self, who: str) -> "Way":
        """The way of one candidate."""
        return Way(self, who)

    @property
    def spec(self) -> LeaseSpec:
        """What it says now."""
        assert self.lease is not None
        return self.lease.spec

    def store(self, lease: Lease) -> Lease:
        """Keep it under a new version."""
        self.version += 1
        meta = msgspec.structs.replace(lease.metadata, resource_version=str(self.version))
        self.lease = msgspec.structs.replace(lease, metadata=meta)
        return self.lease


class Way:
    """`LeaseApi` for one candidate."""

    def __init__(self, leases: Leases, who: str) -> None:
        self._leases, self._who = leases, who

    async def get_lease(self, namespace: str, name: str) -> Lease | None:
        """What the server has."""
        await self._there()
        return self._leases.lease

    async def create_lease(self, lease: Lease) -> Lease:
        """The first one wins."""
        await self._there()
        if self._leases.lease is not None:
            raise AlreadyExists("there")
        return await self._back(self._leases.store(lease))

    async def update_lease(self, lease: Lease) -> Lease:
        """Only at the version that was read."""
        await self._there()
        now = self._leases.lease
        if now is None or now.metadata.resource_version != lease.metadata.resource_version:
            raise Conflict("another version")
        return await self._back(self._leases.store(lease))

    async def _there(self) -> None:
        await asyncio.sleep(self._leases.slow_s)
        if self._who in self._leases.cut:
            raise Unreachable("cut off")

    async def _back(self, lease: Lease) -> Lease:
        if self._who in self._leases.deaf:
            await asyncio.sleep(3600)
        return lease


def now() -> float:
    """The loop's time."""
    return asyncio.get_running_loop().time()


def candidate(leases: Leases, who: str, seed: int = 0) -> Leadership:
    """A candidate on the loop's time."""
    return Leadership(leases.of(who), "lockstep-drain", "slurm", who, clock=now, random=Random(seed))


@asynccontextmanager
async def running(*candidates: Leadership) -> AsyncIterator[list[Callable[[], object]]]:
    """Run them; yields what stops each."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(c.run()) for c in candidates]
        yield [t.cancel for t in tasks]
        for task in tasks:
            task.cancel()


async def test_the_first_leads_and_stays_leader() -> None:
    """Nobody else comes in while it renews."""
    leases = Leases()
    a, b = candidate(leases, "a"), candidate(leases, "b")
    async with running(a, b):
        await a.held()
        for _ in range(100):
            await asyncio.sleep(1)
            assert a.holds(now())
            assert not b.holds(now())
        assert (b.leader, leases.spec.holder_identity) == ("a", "a")
        assert leases.spec.lease_transitions == a.epoch


async def test_a_leader_that_cannot_renew_stops_before_another_begins() -> None:
    """BR-108: cut off from the API, it refuses by its own clock; the next one's epoch is higher."""
    leases = Leases()
    a, b = candidate(leases, "a"), candidate(leases, "b")
    async with running(a, b):
        first = await a.held()
        leases.cut.add("a")
        last_of_a = now()
        while not b.holds(now()):
            last_of_a = now() if a.holds(now()) else last_of_a
            await asyncio.sleep(0.05)
        assert now() - last_of_a >= 2.0, "the margin lies between them"
        assert not a.holds(now())
        await a.lost()
        assert b.epoch > first
        assert a.error == "cut off"
        leases.cut.clear()
        await asyncio.sleep(60)
        assert b.holds(now())
        assert not a.holds(now())


async def test_after_an_outage_in_which_nobody_wrote_the_leader_goes_on_at_once() -> None:
    """The version is still the one that it wrote itself: nobody is waited for, and the new epoch outranks the old."""
    leases = Leases()
    a = candidate(leases, "a")
    async with running(a):
        first = await a.held()
        leases.cut.add("a")
        await a.lost()
        await asyncio.sleep(30)
        leases.cut.clear()
        began = now()
        assert await a.held() > first
        assert now() - began < 4


async def test_after_a_renewal_whose_answer_was_lost_the_leader_goes_on_at_once() -> None:
    """On a busy machine it comes too late to count; the Lease is as it was sent, so nobody else has written since."""
    leases = Leases()
    a, b = candidate(leases, "a"), candidate(leases, "b")
    async with running(a, b):
        first = await a.held()
        leases.deaf.add("a")
        await a.lost()
        leases.deaf.clear()
        began = now()
        assert await a.held() > first
        assert now() - began < 4
        assert not b.holds(now())


async def test_whoever_never_hears_of_its_writes_leaves_the_lease_to_others() -> None:
    """It may take it once more on no more than its own word; a second time it waits like anybody."""
    leases = Leases()
    a, b = candidate(leases, "a"), candidate(leases, "b")
    async with running(a, b):
        await a.held()
        leases.deaf.add("a")
        async with asyncio.timeout(60):
            await b.held()
        assert not a.holds(now())


async def test_whoever_waits_to_lead_is_not_sent_off_with_a_right_that_has_run_out() -> None:
    """Between two looks at the Lease the time may be over: a service that began then could do nothing."""
    leases = Leases()
    a = candidate(leases, "a")
    async with running(a):
        await a.held()
        leases.cut.add("a")
        while a.holds(now()):
            await asyncio.sleep(0.01)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(20):
                await a.held()
        leases.cut.clear()
        await a.held()
        assert a.holds(now())


async def test_a_process_that_stood_still_knows_that_it_may_have_lost() -> None:
    """BR-108: no timer of its own has run meanwhile; the question alone is enough."""
    leases = Leases()
    a = candidate(leases, "a")
    async with running(a):
        await a.held()
        assert a.holds(now())
        assert not a.holds(now() + 12.1)


async def test_a_dead_holder_is_followed_after_its_time() -> None:
    """BR-105: a lease left behind by a crash, or by anybody, holds for its duration by our clock, and no longer."""
    leases = Leases()
    spec = LeaseSpec(
        holder_identity="a-laptop",
        lease_duration_seconds=15,
        renew_time=datetime(2000, 1, 1, tzinfo=UTC) + timedelta(days=36500),
        lease_transitions=7,
    )
    leases.store(Lease(metadata=ObjectMeta(name="lockstep-drain", namespace="slurm"), spec=spec))
    a = candidate(leases, "a")
    async with running(a):
        await asyncio.sleep(14.9)
        assert not a.holds(now())
        assert a.leader == "a-laptop"
        await asyncio.sleep(5)
        assert a.holds(now())
        assert a.epoch == 8


async def test_a_stopped_leader_gives_the_lease_back() -> None:
    """The next one leads with its next look."""
    leases = Leases()
    a, b = candidate(leases, "a"), candidate(leases, "b")
    async with running(a, b) as stop:
        await a.held()
        stop[0]()
        begun = now()
        await b.held()
        assert now() - begun < 4
        assert not a.holds(now())
        assert b.epoch == a.epoch + 1


async def test_a_restart_under_the_same_name_waits_like_anybody() -> None:
    """The other one with our name may still live; a name is no proof."""
    leases = Leases()
    old, new = candidate(leases, "pod-0"), candidate(leases, "pod-0", seed=1)
    async with running(old):
        await old.held()
        async with running(new):
            for _ in range(60):
                await asyncio.sleep(1)
                assert old.holds(now())
                assert not new.holds(now())


async def test_a_deleted_lease_never_takes_the_epoch_back() -> None:
    """Facts of a lower epoch are dropped everywhere, so a new Lease must not begin at zero."""
    leases = Leases()
    a = candidate(leases, "a")
    async with running(a):
        first = await a.held()
        leases.lease = None
        await asyncio.sleep(10)
        assert a.holds(now())
        assert a.epoch >= first > 100_000_000


async def test_a_write_whose_answer_is_lost_gives_no_right() -> None:
    """The server says that we hold it, but we cannot know since when; we wait like anybody, then take it anew."""
    leases = Leases()
    leases.deaf.add("a")
    a = candidate(leases, "a")
    async with running(a):
        await asyncio.sleep(6)
        assert leases.spec.holder_identity == "a"
        assert not a.holds(now())
        leases.deaf.clear()
        await asyncio.sleep(20)
        assert a.holds(now())


async def test_a_lease_taken_by_force_is_noticed() -> None:
    """An administrator writes another holder: we stop with the next look."""
    leases = Leases()
    a = candidate(leases, "a")
    async with running(a):
        await a.held()
        assert leases.lease is not None
        leases.store(
            msgspec.structs.replace(leases.lease, spec=LeaseSpec(holder_identity="b", lease_duration_seconds=15))
        )
        await asyncio.sleep(4)
        assert not a.holds(now())


@pytest.mark.parametrize("seed", range(8))
async def test_at_most_one_leads_whatever_fails(seed: int) -> None:
    """BR-108: three candidates; ways are cut, answers get lost, the server is slow, the Lease is deleted."""
    chance = Random(seed)
    leases = Leases()
    all_three = [candidate(leases, who, seed + i) for i, who in enumerate("abc")]
    led: list[tuple[int, str]] = []
    async with running(*all_three):
        for step in range(2500):
            await asyncio.sleep(0.1)
            leading = [c for c in all_three if c.holds(now())]
            assert len(leading) <= 1, f"step {step}"
            led += [(c.epoch, c.identity) for c in leading]
            if step % 40 == 0:
                leases.cut = {w for w in "abc" if chance.random() < 0.25}
                leases.deaf = {w for w in "abc" if chance.random() < 0.1}
                leases.slow_s = chance.choice([0.0, 0.1, 1.0, 4.0])
    assert len(led) > 250, "somebody leads most of the time"
    epochs = [e for e, _ in led]
    assert epochs == sorted(epochs), "later leaders have higher epochs"
    assert len(set(led)) == len(set(epochs)), "no epoch has two leaders"


@pytest.mark.parametrize("seed", range(20))
async def test_a_dead_leader_is_followed_within_fifteen_seconds(seed: int) -> None:
    """At the times that hold when nobody sets others, whenever it dies, as far as a Lease may have been seen late."""
    leases, random = Leases(), Random(seed)
    leases.slow_s = 0.1
    a, b = candidate(leases, "a", seed), candidate(leases, "b", seed + 1)
    async with running(a), running(b):
        await a.held()
        await asyncio.sleep(random.uniform(20, 30))
        leases.cut.add("a")
        died = now()
        await b.held()
        assert now() - died <= 14.5


def test_times_that_do_not_fit_are_refused() -> None:
    """Renewals must have time before the right runs out."""
    with pytest.raises(ValueError, match="duration_s"):
        Leadership(Leases().of("a"), "n", "ns", "a", duration_s=4)
