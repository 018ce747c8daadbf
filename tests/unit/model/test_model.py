"""A thousand random histories: whatever happened, Lockstep settles, and has undone nobody's work."""

import pytest

from lockstep.contracts.facts import Progress
from lockstep.contracts.policy import MirrorCordon as Mirror
from lockstep.contracts.policy import Policy, Protect
from lockstep.fleet.holds import projected, standing
from lockstep.fleet.invariants import broken
from lockstep.fleet.pairing import pair
from lockstep.fleet.ready import why_not_ready
from lockstep.slurm import reasons, states
from tests.builders import KEY, NAME
from tests.unit.model.actors import Actors
from tests.unit.model.lockstep import SITE
from tests.unit.model.world import STEP, World

STEPS = 25
ROUNDS = 45
QUIET = 5
"""Rounds without anything to do; longer than any of the policy's intervals."""
MANY_WRITES = 16

PACE = {"stale_after_s": 6.0, "reassert_every_s": 3.0}
POLICIES = [
    Policy(protect=Protect.UNDRAINED, mirror=Mirror.CORDON, node_conditions=["DiskPressure"], **PACE),
    Policy(protect=Protect.UNDRAINED, mirror=Mirror.NONE, down_is_drained=True, **PACE),
    Policy(protect=Protect.BUSY, mirror=Mirror.CORDON, **PACE),
    Policy(protect=Protect.OFF, mirror=Mirror.NONE, node_conditions=["DiskPressure"], **PACE),
]


def settle(world: World) -> None:
    """Nobody acts any more, every source is heard and every message arrives; how long until nothing is left to do."""
    world.rest()
    written, quiet = world.hands.writes, 0
    for _ in range(ROUNDS):
        pod_before = world.kube.pod and world.kube.pod.fact(world.now)
        busy = world.round()
        moved = pod_before != (world.kube.pod and world.kube.pod.fact(pod_before.read_at if pod_before else world.now))
        quiet = 0 if busy or moved or world.slurm.jobs else quiet + 1
        if quiet == QUIET:
            break
    else:
        raise AssertionError("does not settle")
    assert world.hands.writes - written <= MANY_WRITES


def check_end(world: World) -> None:
    """What must be so when all is quiet."""
    worker = pair(world.reconciler.mirror.table, KEY, SITE)
    slurm, desired, policy, now = world.slurm, worker.desired, world.policy, world.now
    assert broken(worker, policy, now) == []
    assert desired is not None
    base, flags = slurm.words(now)
    holds = standing(worker, policy, now)
    assert [hold.id for hold in desired.holds] == [hold.id for hold in holds]
    for name in world.cordoned:
        assert world.kube.nodes[name].cordoned_by == "kubectl", f"{name}: a user's cordon is gone"
    ours = slurm.drain and reasons.is_ours(slurm.reason)
    if world.foreign is not None:
        assert slurm.drain or slurm.fail or slurm.down_by, "an administrator's drain is gone"
        assert not world.foreign or slurm.reason == world.foreign
        assert not ours
    if slurm.known and slurm.down_by == "person":
        assert desired.holds[0].id == f"slurm/{NAME}", "nobody tells of an administrator's DOWN"
    assert {hold.id.rpartition("/")[2] for hold in holds} >= {name for name in world.held() if name in world.kube.holds}
    if (world.held() or projected(holds)) and slurm.known:
        assert not slurm.offered(now), "Slurm offers a worker that is held"
        assert ours or slurm.fail or slurm.down_by or world.foreign is not None
    if ours:
        assert projected(holds) or why_not_ready(worker, policy, now)
        assert reasons.same(slurm.reason, desired.words) or not projected(holds)
    if desired.holds and slurm.known and slurm.drain and base == "IDLE":
        assert desired.progress is Progress.DRAINED, desired.why_not
    host = world.kube.host
    if host is not None and host.in_service is not None:
        assert host.in_service.message == desired.words
        assert states.has_reason(base, flags) or not desired.words or not slurm.known
    for node in world.kube.nodes.values():
        if policy.mirror is Mirror.NONE or desired.in_service:
            assert node.cordoned_by != "lockstep", "our mirror stands without a hold"
            assert not node.mark


@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: f"protect {p.protect}, mirror {p.mirror}")
@pytest.mark.parametrize("tens", range(25))
def test_any_history_settles_and_undoes_nobodys_work(tens: int, policy: Policy) -> None:
    """Ten histories of twenty-five seconds each, then quiet."""
    for seed in range(tens * 10, tens * 10 + 10):
        world = World(seed, policy)
        actors = Actors(world)
        try:
            for _ in range(STEPS):
                actors.step()
            settle(world)
            check_end(world)
        except AssertionError as error:
            raise AssertionError("\n".join([f"seed {seed}: {error}", *world.log])) from error


def test_nothing_is_written_in_a_quiet_world() -> None:
    """A healthy worker is protected and shown once, and then left alone."""
    world = World(0, POLICIES[0])
    settle(world)
    written = world.hands.writes
    for _ in range(20):
        world.now += STEP
        settle(world)
    assert world.hands.writes == written == 1
