"""People and automation do anything in any order on both sides: whoever did it last in a system is respected there.

An oracle keeps what people did, in the words of the two systems, and knows nothing of Lockstep but its promise: what
Kubernetes holds is drained in Slurm, what an administrator did in Slurm stays, and nothing else is drained.
"""

import os
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from tests.e2e.guard import Guard, Shown, Sight, in_step
from tests.e2e.site import HOLDS, POD_CORDON, WORKERS, Site, always, eventually
from tests.lab.slurm_commands import SlurmError

SEED = int(os.environ.get("LOCKSTEP_SEED", "0")) or random.SystemRandom().randrange(1, 1_000_000)
BATCHES, ROUNDS, STEPS = 3, 6, (4, 8)
"""In each round there is a sequence on every worker: 54 in all."""
QUIET_S = 1.0
REST_WITHIN_S = 15.0


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
    by_slurm: tuple[float, float] = (0.0, 0.0)
    """Between when and when she did it, by the machine's clock: a command takes a while where everybody is busy."""
    resumed: bool = False
    """She lifted a drain while a hold stood: ours comes at once, but a second time it waits for half a minute."""
    job: int = 0
    lost: list[tuple[str, tuple[float, float]]] = field(default_factory=list)
    """Words of hers that stood no more when she came to resume, and when she had said them."""

    @property
    def hers(self) -> bool:
        """Something of the administrator's stands in Slurm."""
        return self.drain or self.down


class Play:
    """A sequence of actions on one worker, and what must come of it."""

    def __init__(self, site: Site, worker: str, seed: int) -> None:
        self._site = site
        self._worker = worker
        self._chance = random.Random(f"{seed} {worker}")
        self._number = 0
        self.wanted = Expected()
        self._script: list[str] = []
        self._host = site.host(worker)

    def __str__(self) -> str:
        """What was done."""
        return f"{self._worker}: {', '.join(self._script)}"

    def act(self) -> None:
        """The whole sequence."""
        for _ in range(self._chance.randint(*STEPS)):
            self._step()

    def _step(self) -> None:
        """One thing that is possible now."""
        wanted = self.wanted
        can = ["cordon", "pod_cordon", "hold", "drain", "job"]
        can += ["release"] if wanted.holds - {"cordon", "pod-cordon"} else []
        can += ["down"] if not wanted.down else []
        may = not (wanted.holds and wanted.resumed)
        can += ["resume", "resume"] if may and (wanted.hers or wanted.holds) else []
        can += ["undrain", "undrain"] if may and wanted.drain and not wanted.down else []
        do = self._chance.choice(can)
        self._script.append(do)
        getattr(self, f"_{do}")()
        time.sleep(self._chance.choice((0, 0, 0.05, 0.2, 0.5)))

    def _cordon(self) -> None:
        self.wanted.holds ^= {"cordon"}
        self._site.unschedulable(self._host, value="cordon" in self.wanted.holds)

    def _pod_cordon(self) -> None:
        self.wanted.holds ^= {"pod-cordon"}
        value = "true" if "pod-cordon" in self.wanted.holds else None
        change = {"metadata": {"annotations": {POD_CORDON: value}}}
        self._site.patch(f"/api/v1/namespaces/slurm/pods/{self._worker}", change)

    def _hold(self) -> None:
        self._number += 1
        name = f"{self._worker}-{self._number}"
        self.wanted.holds.add(name)
        self._site.hold(name, {"names": [self._worker]}, f"reason {self._number}")

    def _release(self) -> None:
        name = min(self.wanted.holds - {"cordon", "pod-cordon"})
        self.wanted.holds.remove(name)
        self._site.lab.kube.request("DELETE", f"{HOLDS}/{name}")

    def _drain(self) -> None:
        self._number += 1
        self.wanted.drain, self.wanted.reason = True, f"admin {self._number}"
        self._scontrol(state="drain", reason=self.wanted.reason)

    def _down(self) -> None:
        """Over a DRAIN of ours it makes that one hers too: the words are hers."""
        self._number += 1
        self.wanted.down, self.wanted.reason = True, f"admin {self._number}"
        self._scontrol(state="down", reason=self.wanted.reason)

    def _resume(self) -> None:
        wanted = self.wanted
        wanted.resumed |= bool(wanted.holds)
        words, wanted.drain, wanted.down, wanted.reason = wanted.reason, False, False, ""
        try:
            self._scontrol(state="resume")
        except SlurmError:  # there is nothing to resume: not yet, if no words of hers stand
            if words:
                wanted.lost.append((words, wanted.by_slurm))

    def _undrain(self) -> None:
        self.wanted.resumed |= bool(self.wanted.holds)
        self.wanted.drain, self.wanted.reason = False, ""
        self._scontrol(state="undrain")

    def _job(self) -> None:
        if self.wanted.job:
            self._site.cancel(self.wanted.job)
            self.wanted.job = 0
        else:
            self.wanted.job = self._site.submit(self._worker)

    def _scontrol(self, **settings: str) -> None:
        began = time.time()  # noqa: TID251  the clock of the proxy
        self._site.scontrol(self._worker, **settings)
        self.wanted.by_slurm = began, time.time()  # noqa: TID251  the same

    def wrong(self, shown: dict[str, Shown]) -> list[str]:
        """What is not as people left it."""
        worker, wanted, each = self._worker, self.wanted, shown[self._worker]
        lost = [words for words, when in wanted.lost if not self._was_in_flight(when)]
        found = [f"{worker}: {words!r} of the administrator was gone when she resumed" for words in lost]
        if wanted.hers and each.reason != wanted.reason:
            if self._was_in_flight(wanted.by_slurm):
                print(f"{worker}: {wanted.reason!r} met a write of ours in flight")
                return found
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

    def _was_in_flight(self, said: tuple[float, float]) -> bool:
        """Whether she said it between a reading of ours that came before a write, and the answer to that write.

        Slurm has no compare-and-set: what an administrator does then may be lost.
        """
        began, ended = said
        return any(read < ended and began < answered for read, answered in self._writes())

    def _writes(self) -> Iterator[tuple[float, float]]:
        """Each write to this worker: when it was read for it, and when the write was answered."""
        read = 0.0
        for each in self._site.lab.slurm.proxy.passed():
            if each.method == "GET" and each.path.endswith(f"/node/{self._worker}"):
                read = each.began
            elif each.method == "POST" and f'"{self._worker}"' in each.body:
                yield read or each.began, each.ended

    def tidy(self) -> None:
        """Undoes everything, as those who did it would."""
        if self.wanted.job:
            self._site.cancel(self.wanted.job)
        for hold in sorted(self.wanted.holds):
            match hold:
                case "cordon":
                    self._cordon()
                case "pod-cordon":
                    self._pod_cordon()
                case _:
                    self._release()
        if self.wanted.hers:
            self._resume()


@pytest.mark.timeout(240)
@pytest.mark.parametrize("batch", range(BATCHES))
def test_nobodys_drain_or_cordon_is_undone(site: Site, batch: int) -> None:
    """On all workers at once. After each sequence both systems come to rest, in step, and as people left them."""
    print(f"LOCKSTEP_SEED={SEED}")
    with Guard(site, tolerated_s=1.5).watching(), ThreadPoolExecutor(len(WORKERS)) as people:
        for number in range(ROUNDS):
            seed = SEED + batch * ROUNDS + number
            plays = [Play(site, worker, seed) for worker in WORKERS]
            list(people.map(Play.act, plays))
            what = f"seed {seed}: {'; '.join(map(str, plays))}"
            shown = in_step(site, what)
            wrong = [fault for play in plays for fault in play.wrong(shown)]
            assert not wrong, f"{what}: {'; '.join(wrong)}"
            at_rest(site, what)
            list(people.map(Play.tidy, plays))
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


def test_a_down_that_meets_a_write_in_flight_stays_somebodys(site: Site) -> None:
    """Slurm has no compare-and-set: our DRAIN takes her words. That she set it DOWN is told all the same."""
    before = _posts(site)
    site.lab.slurm.proxy.set("delay", ms=3000, method="POST", path="/nodes/", times=1)
    host = site.cordon("gpu-1")
    eventually("our DRAIN is on its way", lambda: _posts(site) > before)
    site.scontrol("gpu-1", state="down", reason="bad fan")
    eventually("our DRAIN comes over it", lambda: site.slurm("gpu-1").states >= {"DOWN", "DRAIN"})
    assert site.slurm("gpu-1").reason.startswith("lockstep: ")

    site.unschedulable(host, value=False)
    in_step(site)
    assert [hold["id"] for hold in site.why("gpu-1")["worker"]["holds"]] == ["slurm/gpu-1"]
    always("out of service", lambda: "DOWN" in site.slurm("gpu-1").states, 3)
    in_step(site)
    site.scontrol("gpu-1", state="down", reason="bad fan")
    assert in_step(site)["gpu-1"].service == ("False", "bad fan")
