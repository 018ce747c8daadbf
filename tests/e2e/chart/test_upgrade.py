"""From the last released chart to this one and back, while a drain is under way and Kubernetes changes all the time."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.e2e.guard import Guard, in_step
from tests.e2e.site import Site, eventually
from tests.lab import product
from tests.lab.installed import PERSON, Installed
from tests.lab.lab import Lab

RELEASED = next(Path(__file__).parent.glob("lockstep-*.tgz"))
"""The chart as it was last released; here it runs the image of today, for there is no other."""
TAKEOVERS = 2
"""While nodes change: in the upgrade and in the rollback."""
NODES = 20
EVERY_S = 0.05
"""Between two changes of a Kubernetes node: twenty facts a second, which a busy machine reaches too."""

UNSCHEDULABLE = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
"""Set together with a cordon it is not left to Kubernetes' own controller, which asks twice more for it."""


class Changes:
    """Cordons and uncordons nodes without workers in turn, and counts."""

    def __init__(self, lab: Lab) -> None:
        self._kube = lab.kube
        self._ended = threading.Event()
        self.cordoned = dict.fromkeys((f"spare-{number}" for number in range(NODES)), False)
        self.count = 0

    @contextmanager
    def running(self) -> Iterator["Changes"]:
        """Changes until the end of the block."""
        for name in self.cordoned:
            self._kube.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield self
        finally:
            self._ended.set()
            thread.join()

    def remove(self) -> None:
        """The nodes are gone."""
        self._kube.kubectl("delete", "node", *self.cordoned)

    def _run(self) -> None:
        began = time.monotonic()
        while not self._ended.is_set():
            name = f"spare-{self.count % NODES}"
            cordon = not self.cordoned[name]
            change = {"spec": {"unschedulable": cordon, "taints": [UNSCHEDULABLE] if cordon else None}}
            self._kube.request("PATCH", f"/api/v1/nodes/{name}", change, kind="application/merge-patch+json")
            self.cordoned[name] = cordon
            self.count += 1
            time.sleep(max(0, began + self.count * EVERY_S - time.monotonic()))


class Released(NamedTuple):
    """A site that began with the last released chart."""

    site: Site
    password: str
    """Which a NATS user got then."""


@pytest.fixture(scope="module", name="released")
def _released(lab: Lab) -> Iterator[Released]:
    """The last released chart is installed once, where nothing of a later one is; the tests go on from there."""
    before = Installed(lab, chart=RELEASED)
    before.stop()
    lab.kube.kubectl("delete", "crd", "holds.lockstep.sh", "--ignore-not-found")
    before.install({"image": {"tag": product.version()}})
    site = Site(lab, before)
    site.settle()
    yield Released(site, before.password(PERSON))
    site.reset()


def test_an_upgrade_and_a_rollback_lose_nothing_and_let_nobody_go(lab: Lab, released: Released) -> None:
    """A job runs on a worker that is leaving: all services are replaced, twice, and it is still leaving."""
    now, site = Installed(lab), released.site
    job = site.job("gpu-1")
    host = site.cordon("gpu-1")
    in_step(site)
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    changes = Changes(lab)
    with Guard(site).watching() as guard:
        guard.stays("gpu-1")
        with changes.running():
            now.install({"log": {"level": "debug", "format": "json"}})
            now.up()
            assert site.job_state(job) == "RUNNING"
            now.helm.rollback()
            now.up()
        now.install()
        now.up()
        assert site.job_state(job) == "RUNNING"
        site.cancel(job)
        eventually("let go", lambda: not in_step(site)["gpu-1"].protected)
        guard.may_return("gpu-1")
        site.unschedulable(host, value=False)
        in_step(site)
    print(f"{changes.count} changes of nodes")
    assert changes.count > NODES * 10
    _all_were_told(site, changes, since)
    changes.remove()


def _all_were_told(site: Site, changes: Changes, since: str) -> None:
    """Each node was told to be cordoned and uncordoned in turn, up to how it is now; and nothing of it was lost.

    Who takes over tells again what its predecessor told and had not written down as known: once a node and takeover.
    """

    def told() -> dict[str, list[str]]:
        found: dict[str, list[str]] = {name: [] for name in changes.cordoned}
        for event in site.events(since=since, kind="node"):
            if event.get("node") in found and event["type"] in {"node.cordoned.v1", "node.uncordoned.v1"}:
                found[event["node"]].append(event["type"])
        return found

    def is_now(found: dict[str, list[str]]) -> bool:
        return all(
            kinds and (kinds[-1] == "node.cordoned.v1") == changes.cordoned[name] for name, kinds in found.items()
        )

    last = eventually("the last of each node is told", lambda: (found := told()) and is_now(found) and found, 30, 1)
    for name, kinds in last.items():
        twice = [pair for pair in pairwise(kinds) if pair[0] == pair[1]]
        assert len(twice) <= TAKEOVERS, f"{name}: {Counter(kinds)}, told twice in a row: {len(twice)}"
    assert not site.events(since=since, kind="fleet.gap-found")


def test_the_settings_people_had_are_kept(released: Released, lab: Lab) -> None:
    """The passwords of NATS' users survive an upgrade: who subscribes need not be told a new one."""
    now = Installed(lab)
    now.install()
    assert now.password(PERSON) == released.password
