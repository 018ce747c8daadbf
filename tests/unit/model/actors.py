"""Everybody at random: administrators, users, jobs, sources that fall silent, and services that are late or die."""

from collections.abc import Callable

from lockstep.contracts.hold import Drain, DrainPolicy, WorkerSelector
from tests.builders import HOST, NAME, a_hold
from tests.unit.model.kube import NodeTruth
from tests.unit.model.world import MOMENT, STEP, World


class Actors:
    """Those who act on a world, by its own dice."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.dice = world.random

    def step(self) -> None:
        """A second in which somebody does something, and everybody else goes on, early or late."""
        chance = self.dice.random
        for _ in range(self.dice.choice((0, 1, 1, 2))):
            self._somebody_acts()
        self.world.pass_time()
        if chance() < 0.8:
            self.world.read_slurm()
        if chance() < 0.9:
            self.world.read_kube()
        services: list[Callable[[], object]] = [self._drain_looks, self._reconciler_looks]
        self.dice.shuffle(services)
        for look in services:
            look()

    def _drain_looks(self) -> None:
        if self.dice.random() < 0.03:
            self.world.drain.mirror.join_anew()
        self.world.drain.mirror.follow(self._some(), twice=self.dice.random() < 0.1)
        self.world.now += MOMENT
        self.world.look()

    def _reconciler_looks(self) -> None:
        if self.dice.random() < 0.03:
            self.world.reconciler.mirror.join_anew()
        self.world.reconciler.mirror.follow(self._some(), twice=self.dice.random() < 0.1)
        dies = self.dice.random() < 0.1
        self.world.now += MOMENT
        self.world.reconciler.look(self.world.now, dies_after=self.dice.randrange(3) if dies else None)
        if dies:
            self.world.reconciler.mirror.join_anew()

    def _some(self) -> int | None:
        return None if self.dice.random() < 0.6 else self.dice.randrange(4)

    def _somebody_acts(self) -> None:
        acts: list[Callable[[], None]] = [
            self._admin_drains, self._admin_drains, self._admin_lifts, self._admin_lifts, self._admin_fails,
            self._user_cordons, self._user_cordons, self._user_uncordons, self._user_uncordons, self._user_drains,
            self._user_drains, self._user_deletes_pod, self._user_marks_pod, self._user_holds, self._user_holds,
            self._user_releases, self._user_releases, self._node_goes, self._node_comes, self._source_falls_silent,
            self._job_is_suspended, self._job_goes_on, self._record_goes, self.world.start_job, self.world.start_job,
            self._stream_is_lost, self._node_sickens, self._node_sickens,
        ]  # fmt: skip
        act = self.dice.choice(acts)
        self.world.log.append(f"{self.world.now:%M:%S.%f} {act.__name__.lstrip('_')}")
        act()

    def _admin_drains(self) -> None:
        if self.world.slurm.known:
            reason = self.dice.choice(("bad DIMM", "ask ops", "Kill task failed", ""))
            self.world.slurm.set_drain(reason)
            self.world.foreign = reason

    def _admin_fails(self) -> None:
        if not self.world.slurm.known:
            return
        words = self.dice.choice(("smoke", "smoke", ""))
        self.world.foreign, self.world.lifted_at = words or self.world.foreign, self.world.now
        (self.world.slurm.set_fail if self.dice.random() < 0.5 else self.world.slurm.set_down)(words)

    def _admin_lifts(self) -> None:
        pod = self.world.kube.pod
        if not self.world.slurm.known:
            return
        if pod is not None and not pod.protected:
            self.world.opened.add(pod.uid)
        self.world.foreign, self.world.lifted_at = None, self.world.now
        if self.dice.random() < 0.5:
            self.world.slurm.resume(self.world.now)
        elif self.world.slurm.drain:
            self.world.slurm.undrain(self.world.now)

    def _a_node(self) -> NodeTruth | None:
        return self.dice.choice(list(self.world.kube.nodes.values())) if self.world.kube.nodes else None

    def _user_cordons(self) -> None:
        node = self.world.kube.host or self._a_node()
        if node is not None and node.cordon("kubectl"):
            self.world.cordoned.add(node.name)

    def _user_uncordons(self) -> None:
        node = self._a_node()
        if node is not None:
            node.uncordon()
            self.world.cordoned.discard(node.name)
            self.world.evicting = ""

    def _user_drains(self) -> None:
        node = self.world.kube.host
        if node is not None:
            self._user_cordons()
            self.world.evicting = node.name

    def _user_deletes_pod(self) -> None:
        pod = self.world.kube.pod
        if pod is not None and self.dice.random() < 0.5:
            pod.deleting_since = pod.deleting_since or self.world.now
            self.world.deleted.add(pod.uid)

    def _user_marks_pod(self) -> None:
        if self.world.kube.pod is not None:
            self.world.kube.pod.pod_cordon = not self.world.kube.pod.pod_cordon

    def _user_holds(self) -> None:
        name = self.dice.choice("abc")
        if name not in self.world.kube.holds:
            now, drain = self.world.now, Drain(policy=self.dice.choice(list(DrainPolicy)))
            selector = WorkerSelector(names=[NAME]) if self.dice.random() < 0.7 else WorkerSelector(nodes=[HOST])
            expires = now + 8 * STEP if self.dice.random() < 0.2 else None
            self.world.kube.holds[name] = a_hold(
                name, created_at=now, drain=drain, workers=selector, expires_at=expires, reason=f"hold {name}"
            )

    def _user_releases(self) -> None:
        if self.world.kube.holds:
            del self.world.kube.holds[self.dice.choice(list(self.world.kube.holds))]

    def _node_goes(self) -> None:
        node = self._a_node()
        if node is not None and self.dice.random() < 0.5:
            del self.world.kube.nodes[node.name]
            self.world.cordoned.discard(node.name)

    def _node_comes(self) -> None:
        for name in (HOST, "host-8"):
            self.world.kube.nodes.setdefault(name, NodeTruth(name))

    def _node_sickens(self) -> None:
        node = self._a_node()
        if node is not None:
            node.sick = not node.sick

    def _source_falls_silent(self) -> None:
        until = self.world.now + self.dice.randrange(2, 12) * STEP
        self.world.silent[self.dice.choice(("slurm", "kube"))] = until

    def _job_is_suspended(self) -> None:
        for job in self.world.slurm.jobs:
            job.suspended = not job.completing

    def _job_goes_on(self) -> None:
        for job in self.world.slurm.jobs:
            job.suspended = False

    def _record_goes(self) -> None:
        """Slurm forgets a node whose slurmd is gone."""
        if self.world.slurm.silent_since is not None and self.dice.random() < 0.5:
            self.world.slurm.forget()
            self.world.foreign, self.world.lifted_at = None, self.world.now

    def _stream_is_lost(self) -> None:
        if self.dice.random() < 0.3:
            self.world.lose_the_stream()
