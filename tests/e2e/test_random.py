"""People and automation do anything in any order on both sides: whoever did it last in a system is respected there.

An oracle keeps what people did, in the words of the two systems, and knows nothing of Lockstep but its promise: what
Kubernetes holds is drained in Slurm, what an administrator did in Slurm stays, and nothing else is drained.
"""

import os
import random
import time
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.e2e.guard import Guard, Shown, Sight, in_step
from tests.e2e.site import WORKERS, Site
from tests.lab.slurm_commands import SlurmError

SEED = int(os.environ.get("LOCKSTEP_SEED", "0")) or random.SystemRandom().randrange(1, 1_000_000)
BATCHES, SEQUENCES, STEPS = 5, 10, (4, 8)
QUIET_S = 1.0
REST_WITHIN_S = 15.0
IN_FLIGHT_S = 0.05
"""Slurm has no compare-and-set: what an administrator does in the few milliseconds of a write of ours may be lost."""
POD_CORDON = "nodeset.slinky.slurm.net/pod-cordon"


@dataclass
class Expected:
    """What people want of one worker."""

    holds: set[str] = field(default_factory=set)
    """`cordon`, `pod-cordon` and names of Hold resources."""
    drain: bool = False
    """An administrator's DRAIN."""
    down: bool = False
    reason: str = ""
    """The administrator's words."""
    by_slurm_at: float = 0.0
    """When she did it, by the machine's clock."""
    resumed: bool = False
    """She lifted a drain while a hold stood: ours comes at once, but a second time it waits for half a minute."""
    job: int = 0

    @property
    def hers(self) -> bool:
        """Something of the administrator's stands in Slurm."""
        return self.drain or self.down


class Play:
    """A sequence of actions, and what must come of it."""

    def __init__(self, site: Site, seed: int) -> None:
        self._site = site
        self._chance = random.Random(seed)
        self._number = 0
        self.expected = {worker: Expected() for worker in WORKERS}
        self.script: list[str] = []
        self._hosts = {worker: site.host(worker) for worker in WORKERS}

    def act(self) -> None:
        """One thing that is possible now, on one worker."""
        worker = self._chance.choice(WORKERS)
        wanted = self.expected[worker]
        can = ["cordon", "pod_cordon", "hold", "drain", "job"]
        can += ["release"] if wanted.holds - {"cordon", "pod-cordon"} else []
        can += ["down"] if not wanted.down else []
        may = not (wanted.holds and wanted.resumed)
        can += ["resume", "resume"] if may and (wanted.hers or wanted.holds) else []
        can += ["undrain", "undrain"] if may and wanted.drain and not wanted.down else []
        do = self._chance.choice(can)
        self.script.append(f"{do} {worker}")
        getattr(self, f"_{do}")(worker, wanted)
        time.sleep(self._chance.choice((0, 0, 0.05, 0.2, 0.5)))

    def _cordon(self, worker: str, wanted: Expected) -> None:
        self._toggle(wanted, "cordon")
        self._patch(f"/api/v1/nodes/{self._hosts[worker]}", {"spec": {"unschedulable": "cordon" in wanted.holds}})

    def _pod_cordon(self, worker: str, wanted: Expected) -> None:
        self._toggle(wanted, "pod-cordon")
        value = "true" if "pod-cordon" in wanted.holds else None
        self._patch(f"/api/v1/namespaces/slurm/pods/{worker}", {"metadata": {"annotations": {POD_CORDON: value}}})

    def _hold(self, worker: str, wanted: Expected) -> None:
        self._number += 1
        name = f"{worker}-{self._number}"
        wanted.holds.add(name)
        self._site.hold(name, {"names": [worker]}, f"reason {self._number}")

    def _release(self, worker: str, wanted: Expected) -> None:
        name = min(wanted.holds - {"cordon", "pod-cordon"})
        wanted.holds.remove(name)
        self._site.lab.kube.request("DELETE", f"/apis/lockstep.sh/v1alpha1/namespaces/slurm/holds/{name}")

    def _drain(self, worker: str, wanted: Expected) -> None:
        self._number += 1
        wanted.drain, wanted.reason = True, f"admin {self._number}"
        self._scontrol(worker, wanted, state="drain", reason=wanted.reason)

    def _down(self, worker: str, wanted: Expected) -> None:
        """Over a DRAIN of ours it makes that one hers too: the words are hers."""
        self._number += 1
        wanted.down, wanted.reason = True, f"admin {self._number}"
        self._scontrol(worker, wanted, state="down", reason=wanted.reason)

    def _resume(self, worker: str, wanted: Expected) -> None:
        wanted.resumed |= bool(wanted.holds)
        refusable, wanted.drain, wanted.down, wanted.reason = not wanted.hers, False, False, ""
        with suppress(SlurmError) if refusable else nullcontext():  # there is nothing to resume yet
            self._scontrol(worker, wanted, state="resume")

    def _undrain(self, worker: str, wanted: Expected) -> None:
        wanted.resumed |= bool(wanted.holds)
        wanted.drain, wanted.reason = False, ""
        self._scontrol(worker, wanted, state="undrain")

    def _job(self, worker: str, wanted: Expected) -> None:
        if wanted.job:
            self._site.cancel(wanted.job)
            wanted.job = 0
        else:
            wanted.job = self._site.submit(worker)

    def _scontrol(self, worker: str, wanted: Expected, **settings: str) -> None:
        self._site.scontrol(worker, **settings)
        wanted.by_slurm_at = datetime.now(UTC).timestamp()  # noqa: TID251  the clock of the events

    def _patch(self, path: str, change: dict[str, Any]) -> None:
        kind = "application/merge-patch+json"
        self._site.lab.kube.request("PATCH", f"{path}?fieldManager=kubectl", change, kind=kind)

    @staticmethod
    def _toggle(wanted: Expected, hold: str) -> None:
        wanted.holds ^= {hold}

    def wrong(self, shown: dict[str, Shown], writes: list[dict[str, Any]]) -> list[str]:
        """What is not as people left it."""
        found = []
        for worker, wanted in self.expected.items():
            each = shown[worker]
            if wanted.hers and each.reason != wanted.reason:
                if self._was_in_flight(worker, wanted, writes):
                    print(f"{worker}: {wanted.reason!r} met a write of ours in flight")
                    continue
                found.append(f"{worker}: {wanted.reason!r} of the administrator became {each.reason!r}")
            if wanted.drain and not each.drained:
                found.append(f"{worker}: the administrator's DRAIN is gone")
            if wanted.down and "DOWN" not in each.states:
                found.append(f"{worker}: the administrator's DOWN is gone")
            if not wanted.hers and wanted.holds and not each.ours:
                found.append(f"{worker}: {sorted(wanted.holds)} stand, and Slurm shows {sorted(each.states)}")
            if not wanted.hers and not wanted.holds and each.drained:
                found.append(f"{worker}: nobody holds it, and Slurm shows {each.reason!r}")
            if each.holds != wanted.holds:
                found.append(f"{worker}: Kubernetes had {sorted(wanted.holds)}, now {sorted(each.holds)}")
        return found

    @staticmethod
    def _was_in_flight(worker: str, wanted: Expected, writes: list[dict[str, Any]]) -> bool:
        at = [datetime.fromisoformat(w["at"]).timestamp() for w in writes if w["worker"]["name"] == worker]
        return any(abs(moment - wanted.by_slurm_at) < IN_FLIGHT_S for moment in at)

    def tidy(self) -> None:
        """Undoes everything, as those who did it would."""
        for worker, wanted in self.expected.items():
            if wanted.job:
                self._site.cancel(wanted.job)
            for hold in sorted(wanted.holds):
                match hold:
                    case "cordon":
                        self._cordon(worker, wanted)
                    case "pod-cordon":
                        self._pod_cordon(worker, wanted)
                    case _:
                        self._release(worker, wanted)
            if wanted.hers:
                self._resume(worker, wanted)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("batch", range(BATCHES))
def test_nobodys_drain_or_cordon_is_undone(site: Site, batch: int) -> None:
    """After each sequence both systems come to rest, in step, and as people left them."""
    print(f"LOCKSTEP_SEED={SEED}")
    with Guard(site, tolerated_s=1.5).watching():
        for number in range(SEQUENCES):
            play = Play(site, seed := SEED + batch * SEQUENCES + number)
            since = datetime.now(UTC).isoformat()  # noqa: TID251  a test speaks to a real clock
            for _ in range(random.Random(seed).randint(*STEPS)):
                play.act()
            what = f"seed {seed}: {', '.join(play.script)}"
            shown = in_step(site, what)
            if play.wrong(shown, []):
                writes = [e for e in site.events(since=since) if e["type"].startswith("worker.")]
                wrong = play.wrong(shown, writes)
                assert not wrong, f"{what}: {'; '.join(wrong)}"
            at_rest(site, what)
            play.tidy()
            in_step(site, f"tidy after {what}")


def at_rest(site: Site, what: str) -> None:
    """Fails when something is written again and again: the two must not chase each other.

    What was still to be shown (a ping that came late, a label) may be written first.
    """
    deadline = time.monotonic() + REST_WITHIN_S
    before = _seen(site)
    while True:
        time.sleep(QUIET_S)
        after = _seen(site)
        if after == before:
            return
        assert time.monotonic() < deadline, f"{what}: still being written: {before} became {after}"
        before = after


def _seen(site: Site) -> tuple[int, dict[str, str]]:
    """How often Slurm was written to, and the version of each pod."""
    return _posts(site), {worker: each.revision for worker, each in Sight(site).look().items()}


def _posts(site: Site) -> int:
    return sum(count for what, count in site.lab.slurm.proxy.requests().items() if what.startswith("POST "))
