"""Histories that went wrong for others, told on the same small world, one after the other."""

from collections.abc import Callable

import pytest

from lockstep.contracts.facts import Desired, Progress
from lockstep.contracts.policy import MirrorCordon as Mirror
from lockstep.contracts.policy import Policy
from tests.builders import HOST, a_hold
from tests.unit.model.kube import NodeTruth
from tests.unit.model.slurm import Job
from tests.unit.model.world import STEP, World

PLAIN, MIRRORING = Policy(), Policy(mirror=Mirror.CORDON)
BOTH = pytest.mark.parametrize("policy", [PLAIN, MIRRORING], ids=["no mirror", "mirror"])


def a_world(policy: Policy = PLAIN) -> World:
    """A worker in service, on which nobody acts but the test."""
    world = World(0, policy)
    world.tolerates_cordon = True
    world.rest()
    rounds(world, 6)
    return world


def rounds(world: World, number: int) -> None:
    """So many seconds go by."""
    for _ in range(number):
        world.round()


def until(world: World, so: Callable[[], object], *, most: int = 30) -> None:
    """Seconds go by until something is so."""
    for _ in range(most):
        if so():
            return
        world.round()
    raise AssertionError("it never came about")


def desired(world: World) -> Desired:
    """What Lockstep wants."""
    return next(fact for fact in reversed(world.stream.facts) if isinstance(fact, Desired))


def is_drained(world: World) -> bool:
    """Lockstep says that the worker is proven drained."""
    return desired(world).progress is Progress.DRAINED


def hold(world: World, *names: str) -> None:
    """Somebody creates Holds."""
    for name in names:
        world.kube.holds[name] = a_hold(name, created_at=world.now)


def run_a_job(world: World) -> Job:
    """A job starts, as Slurm may while it offers the worker."""
    assert world.slurm.offered(world.now)
    job = Job(start=world.now)
    world.slurm.jobs.append(job)
    return job


def restart(world: World) -> None:
    """Both services start anew."""
    world.drain.mirror.join_anew()
    world.reconciler.mirror.join_anew()


@pytest.mark.parametrize("reason", ["bad DIMM", "Kill task failed", "slurm-operator: cordoned", ""])
def test_an_administrators_drain_stays_until_she_lifts_it(reason: str) -> None:
    """Not a single write in Slurm, for twenty seconds and a restart."""
    world = a_world()
    written = world.hands.writes
    world.slurm.set_drain(reason)
    rounds(world, 10)
    restart(world)
    rounds(world, 10)
    assert (world.slurm.drain, world.slurm.reason) == (True, reason)
    assert world.hands.writes == written
    assert [view.id for view in desired(world).holds] == ["slurm/gpu-7"]


def test_ours_comes_at_once_when_an_administrator_lifts_hers() -> None:
    """The Hold stood all the time."""
    world = a_world()
    world.slurm.set_drain("bad DIMM")
    hold(world, "dimm")
    rounds(world, 5)
    assert world.slurm.reason == "bad DIMM"
    world.slurm.undrain(world.now)
    rounds(world, 2)
    assert world.slurm.reason == "lockstep: ops@example.com: DIMM B2"


@BOTH
@pytest.mark.parametrize("first", ["cordon", "hold"])
def test_a_users_cordon_outlives_a_hold_of_ours(policy: Policy, first: str) -> None:
    """Whichever came first, the end of the Hold lifts only what is ours."""
    world = a_world(policy)
    node = world.kube.nodes[HOST]
    steps: list[Callable[[], object]] = [lambda: node.cordon("kubectl"), lambda: hold(world, "dimm")]
    for step in steps if first == "cordon" else reversed(steps):
        step()
        rounds(world, 3)
    if policy is MIRRORING and first == "hold":
        node.uncordon()
        node.cordon("kubectl")
        rounds(world, 3)
    world.kube.holds.clear()
    rounds(world, 10)
    assert (node.unschedulable, node.cordoned_by, node.mark) == (True, "kubectl", False)
    assert world.slurm.reason == "lockstep: kubectl: Kubernetes node cordoned"
    node.uncordon()
    until(world, lambda: not world.slurm.drain)


def test_the_first_of_two_holders_to_finish_frees_nobody() -> None:
    """And the second is released by its deletion alone, without any farewell."""
    world = a_world()
    hold(world, "a", "b")
    until(world, lambda: is_drained(world))
    del world.kube.holds["a"]
    rounds(world, 10)
    assert world.slurm.drain
    assert is_drained(world)
    del world.kube.holds["b"]
    until(world, lambda: not world.slurm.drain)


def test_a_machine_that_is_gone_is_not_opened_before_a_new_one_has_registered() -> None:
    """Slurm goes on showing IDLE+DRAIN for a while, and nobody holds the ghost."""
    world = a_world()
    world.tolerates_cordon = False
    world.kube.nodes["host-8"].cordon("kubectl")
    world.kube.nodes[HOST].cordon("kubectl")
    until(world, lambda: is_drained(world))
    del world.kube.nodes[HOST]
    rounds(world, 15)
    assert world.slurm.drain
    world.kube.nodes[HOST] = NodeTruth(HOST)
    until(world, lambda: not world.slurm.drain)
    assert world.kube.pod is not None
    assert world.kube.pod.ready
    assert world.slurm.slurmd_start is not None
    assert world.kube.pod.started_at is not None
    assert world.slurm.slurmd_start >= world.kube.pod.started_at


@pytest.mark.parametrize("reason", ["", "bad DIMM"], ids=["our drain", "a foreign drain"])
def test_a_drain_of_ours_does_not_outlive_the_machine_it_was_about(reason: str) -> None:
    """The worker comes back on another machine; only a foreign drain still keeps it out."""
    world = a_world()
    world.kube.nodes[HOST].cordon("kubectl")
    until(world, lambda: is_drained(world))
    if reason:
        world.slurm.set_drain(reason)
    del world.kube.nodes[HOST]
    until(world, lambda: world.kube.pod is not None and world.kube.pod.node == "host-8" and world.kube.pod.ready)
    rounds(world, 5)
    assert world.slurm.drain == bool(reason)
    assert world.slurm.reason == reason


def test_a_drain_that_was_called_off_never_counts_as_done() -> None:
    """The Hold goes while a job still runs; the job's end proves nothing any more."""
    world = a_world()
    run_a_job(world).suspended = True
    hold(world, "dimm")
    rounds(world, 4)
    world.kube.holds.clear()
    told = []
    for _ in range(4):
        world.round()
        told.append(desired(world).progress)
    world.slurm.jobs.clear()
    for _ in range(6):
        world.round()
        told.append(desired(world).progress)
    assert Progress.DRAINED not in told
    assert desired(world).in_service


def test_a_user_who_uncordons_ends_the_drain_for_everybody() -> None:
    """While a job is waited for: no drain, no eviction, nothing cordoned again."""
    world = a_world(MIRRORING)
    job = run_a_job(world)
    job.suspended = True
    world.kube.nodes[HOST].cordon("kubectl")
    rounds(world, 4)
    assert world.slurm.drain
    world.kube.nodes[HOST].uncordon()
    rounds(world, 6)
    assert not world.slurm.drain
    assert not world.kube.nodes[HOST].unschedulable
    assert world.slurm.jobs == [job]


def test_an_eviction_waits_for_the_job_and_the_new_pod_comes_back_drained() -> None:
    """`kubectl drain` goes through when the worker is proven drained, and not a moment before."""
    world = a_world()
    job = run_a_job(world)
    job.suspended = True
    pod = world.kube.pod
    assert pod is not None
    world.kube.nodes[HOST].cordon("kubectl")
    world.evicting = HOST
    rounds(world, 10)
    assert pod.deleting_since is None
    assert world.slurm.drain
    assert not is_drained(world)
    world.slurm.jobs.clear()
    until(world, lambda: pod.deleting_since)
    assert is_drained(world)
    world.evicting = ""
    until(world, lambda: world.kube.pod is not None and world.kube.pod is not pod and world.kube.pod.ready)
    rounds(world, 5)
    assert world.slurm.drain


def test_a_mirror_is_no_reason_to_write_back() -> None:
    """An administrator's drain is mirrored as a cordon, which goes when she lifts it; then all is quiet."""
    world = a_world(MIRRORING)
    node, written = world.kube.nodes[HOST], world.hands.writes
    world.slurm.set_drain("bad DIMM")
    rounds(world, 5)
    assert (node.unschedulable, node.cordoned_by) == (True, "lockstep")
    world.slurm.undrain(world.now)
    rounds(world, 20)
    assert (node.unschedulable, node.mark) == (False, False)
    assert world.hands.writes == written + 2


def test_both_sides_changed_in_the_same_moment_end_in_peace() -> None:
    """A cordon and an administrator's drain at once, lifted at once."""
    world = a_world(MIRRORING)
    world.slurm.set_drain("bad DIMM")
    world.kube.nodes[HOST].cordon("kubectl")
    rounds(world, 8)
    assert world.slurm.reason == "bad DIMM"
    world.slurm.undrain(world.now)
    world.kube.nodes[HOST].uncordon()
    rounds(world, 10)
    assert not world.slurm.drain
    assert not world.kube.nodes[HOST].unschedulable
    assert not any(world.round() for _ in range(5))


def test_the_mirror_goes_although_the_pod_could_not_come_back_under_it() -> None:
    """Our own cordon keeps the pod away; the Hold's end must lift it all the same."""
    world = a_world(MIRRORING)
    world.tolerates_cordon = False
    world.kube.nodes["host-8"].cordon("kubectl")
    hold(world, "dimm")
    world.evicting = HOST
    until(world, lambda: world.kube.pod is None)
    rounds(world, 10)
    assert world.kube.nodes[HOST].cordoned_by == "lockstep"
    world.kube.holds.clear()
    until(world, lambda: not world.kube.nodes[HOST].unschedulable)
    until(world, lambda: not world.slurm.drain)


def test_what_slurm_shows_of_the_last_drain_is_not_the_proof_for_the_next() -> None:
    """UNDRAIN is answered, its memory is lost, a job starts, and a new hold comes before Slurm is read again."""
    world = a_world()
    hold(world, "first")
    until(world, lambda: is_drained(world))
    rounds(world, 3)
    world.kube.holds.clear()
    world.read_kube()
    world.drain.mirror.follow()
    world.look()
    world.reconciler.mirror.follow()
    world.reconciler.look(world.now, dies_after=1)
    assert world.log[-1].endswith("UNDRAIN")
    world.slurm.pinged_after = None
    run_a_job(world).suspended = True
    restart(world)
    hold(world, "second")
    world.read_kube()
    world.drain.mirror.follow()
    world.look()
    world.drain.mirror.follow()
    assert not is_drained(world)
    rounds(world, 3)
    assert world.kube.pod is not None
    assert world.kube.pod.protected


def test_a_silent_source_changes_nothing_and_its_return_finds_all_as_it_was() -> None:
    """Slurm cannot be read for half a minute: no write, no claim of being drained, protection stays."""
    world = a_world()
    run_a_job(world).suspended = True
    hold(world, "dimm")
    rounds(world, 5)
    written = world.hands.writes
    world.silent["slurm"] = world.now + 30 * STEP
    rounds(world, 25)
    assert world.hands.writes == written
    assert not is_drained(world)
    assert "cannot be read" in desired(world).why_not
    rounds(world, 10)
    assert world.hands.writes == written
