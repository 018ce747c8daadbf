"""Each service may be killed or frozen at any moment: the outcome is the same, and no worker is ever unprotected."""

import os
import random
import time
from collections.abc import Iterator

import pytest

from tests.e2e.guard import Guard, in_step
from tests.e2e.site import WORKERS, Site, always, eventually
from tests.lab.lab import Lab
from tests.lab.lockstep import SERVICES, Lockstep

LEASE = {"lease": {"duration_s": 3}}
"""Short leases: a killed leader's successor waits for them to run out."""
TAKEOVER_S = 3 + 2.5
"""A lease, and the time to notice, to begin and to write."""
ROUNDS = 20
SEED = int(os.environ.get("LOCKSTEP_SEED", "0")) or random.SystemRandom().randrange(1, 1_000_000)


@pytest.fixture(scope="module", name="brisk")
def _brisk(lab: Lab, running: Lockstep) -> Iterator[Lockstep]:
    running.stop()
    lockstep = Lockstep(lab, separate=True, settings=LEASE)
    lockstep.up()
    yield lockstep
    lockstep.stop()
    running.up()


@pytest.fixture(name="site")
def _site(lab: Lab, brisk: Lockstep) -> Iterator[Site]:
    site = Site(lab, brisk)
    site.settle()
    yield site
    brisk.up()
    site.reset()


@pytest.fixture(name="second")
def _second(lab: Lab, brisk: Lockstep) -> Iterator[Lockstep]:
    """A second replica of each service; none of them leads."""
    site = Site(lab, brisk)
    eventually("the first leads", lambda: all(leads(site, brisk, service) for service in SERVICES))
    second = Lockstep(lab, separate=True, settings=LEASE, replica=2)
    second.up()
    yield second
    second.stop()


@pytest.fixture(name="guard")
def _guard(site: Site) -> Iterator[Guard]:
    with Guard(site).watching() as guard:
        yield guard


def leads(site: Site, lockstep: Lockstep, service: str) -> bool:
    """Whether the Lease of this service is this installation's."""
    lease = site.lab.kube.get_json("lease", f"lockstep-{service}", "-n", "slurm")
    pid = site.lab.processes.pid(lockstep.process(service))
    return bool(lease["spec"].get("holderIdentity", "").endswith(f"-{pid}"))


@pytest.mark.parametrize("service", [*SERVICES, pytest.param("", id="all of them")])
def test_a_service_is_killed_in_a_drain_and_on_the_way_up(site: Site, guard: Guard, service: str) -> None:
    """The job's end is missed and the worker is drained all the same; the same with the uncordon and its return."""
    job = site.job("gpu-1")
    host = site.cordon("gpu-1")
    eventually("DRAIN", lambda: site.slurm("gpu-1").drained)
    guard.stays("gpu-1")

    site.lockstep.kill(service)
    site.cancel(job)
    site.lockstep.up()
    shown = in_step(site, "drained after the crash")["gpu-1"]
    assert shown.ours
    assert not shown.protected

    guard.may_return("gpu-1")
    site.kubectl("uncordon", host)
    site.lockstep.kill(service)
    site.lockstep.up()
    shown = in_step(site, "back after the crash")["gpu-1"]
    assert shown.protected
    assert not shown.drained


@pytest.mark.timeout(240)
def test_services_are_killed_at_random_moments(site: Site, guard: Guard) -> None:
    """In each round somebody holds or frees a worker, a moment later one to four services die and are started again."""
    print(f"LOCKSTEP_SEED={SEED}")
    chance = random.Random(SEED)
    held: set[str] = set()
    for number in range(ROUNDS):
        worker = chance.choice(WORKERS)
        guard.may_return(worker)
        if worker in held:
            site.kubectl("uncordon", site.host(worker))
        else:
            site.cordon(worker)
        held ^= {worker}
        time.sleep(chance.uniform(0, 0.4))
        for service in chance.sample(SERVICES, chance.choice((1, 1, 1, 2, 4))):
            site.lockstep.kill(service)
        time.sleep(chance.uniform(0, 0.3))
        site.lockstep.up()
        shown = in_step(site, f"seed {SEED}, round {number}")
        assert {name for name in WORKERS if shown[name].ours} == held
        guard.stays(*held)


def test_a_standby_takes_over_from_a_killed_leader(site: Site, guard: Guard, second: Lockstep) -> None:
    """A cordon in that moment is a DRAIN within the time of the lease."""
    site.lockstep.kill()
    began = time.monotonic()
    site.cordon("gpu-1")

    eventually("DRAIN", lambda: site.slurm("gpu-1").drained, TAKEOVER_S + 2)
    print(f"drained {time.monotonic() - began:.1f} s after the leaders were killed")
    assert time.monotonic() - began < TAKEOVER_S
    assert all(leads(site, second, service) for service in ("drain", "reconciler"))
    in_step(site)


def test_a_frozen_leader_that_wakes_changes_nothing(site: Site, guard: Guard, second: Lockstep) -> None:
    """It wakes with a cordon before its eyes that is no longer so, and writes nothing: its lease has run out."""
    fail, names = site.lab.fail, site.lockstep.names
    for name in names:
        fail.stop(name)
    try:
        host = site.cordon("gpu-1")
        eventually("the others drain", lambda: site.slurm("gpu-1").drained, TAKEOVER_S + 2)
        site.kubectl("uncordon", host)
        in_step(site, "the others undrain")
        site.lab.slurm.proxy.forget()
        ends = {name: site.lockstep.log_end(name) for name in names}
    finally:
        for name in names:
            fail.cont(name)

    always("in service", lambda: not site.slurm("gpu-1").drained, 3)
    assert not [what for what in site.lab.slurm.proxy.requests() if what.startswith("POST ")]
    said = [line["event"] for name in names for line in site.lockstep.log_lines(name, ends[name])]
    assert not {"Wrote", "Decided"} & set(said)
    assert all(leads(site, second, service) for service in SERVICES)
    in_step(site)
