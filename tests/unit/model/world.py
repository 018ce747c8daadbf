"""A small world in which everybody acts at random: administrators, users, jobs, controllers, and Lockstep on old facts.

`Broken` is raised the moment something happens that must never happen.
"""

from collections.abc import Callable
from datetime import timedelta
from random import Random

import msgspec

from lockstep.contracts.facts import SITE, Fact, KubeHold, Progress, SourceHealth
from lockstep.contracts.hold import Drain, DrainPolicy, WorkerSelector
from lockstep.contracts.policy import Policy, Protect
from lockstep.fleet.facts import key_of
from tests.builders import CLUSTER, HOST, NAME, NOW, a_hold
from tests.unit.model.kube import KubeTruth, NodeTruth, PodTruth
from tests.unit.model.lockstep import DrainService, Hands, Reconciler, Stream, content
from tests.unit.model.slurm import Job, SlurmTruth

MOMENT = timedelta(milliseconds=10)
STEP = timedelta(seconds=1)
LAG = timedelta(seconds=8)
"""Facts that are older are stale to Lockstep."""


class Broken(AssertionError):
    """Something happened that must never happen."""


class World:
    """One worker, two Kubernetes nodes, and all who have a hand in it."""

    def __init__(self, seed: int, policy: Policy) -> None:
        self.random = Random(seed)
        self.policy = policy
        self.now = NOW
        self.tolerates_cordon = self.random.random() < 0.5
        self.slurm = SlurmTruth(slurmd_start=NOW - STEP)
        self.kube = KubeTruth(nodes={name: NodeTruth(name) for name in (HOST, "host-8")})
        self.kube.pod = PodTruth(node=HOST, started_at=NOW - 2 * STEP, ready=True)
        self.stream = Stream()
        self.log: list[str] = []
        self.hands = Hands(self.slurm, self.kube, policy, self._judge)
        self.drain = DrainService(self.stream, policy)
        self.reconciler = Reconciler(self.stream, self.hands, policy, self.moment)
        self.foreign: str | None = None
        """The reason of an administrator's drain that nobody has lifted."""
        self.cordoned: set[str] = set()
        """Nodes that a user cordoned and nobody but a user may lift."""
        self.evicting = ""
        """The node on which a `kubectl drain` waits."""
        self.silent = {"slurm": NOW, "kube": NOW}
        """Until when a source cannot be read."""
        self.acting = True
        self._opened: set[int] = set()
        """Pods whose worker an administrator opened while they could be evicted, until they are protected."""
        self._unseen: set[int] = set()
        """Pods that were evicted before Lockstep had seen them."""
        self._deleted: set[int] = set()
        """Pods that a user deleted outright."""
        self._told: dict[object, Fact] = {}
        self._fit_at = NOW - LAG
        """When Kubernetes last showed a worker that is ready and that nothing holds."""
        self._lifted_at = NOW - LAG
        """When somebody else than Lockstep last lifted a DRAIN."""

    def step(self) -> None:
        """A second in which somebody does something, and everybody else goes on, early or late."""
        chance = self.random.random
        for _ in range(self.random.choice((0, 1, 1, 2))):
            self._somebody_acts()
        self.pass_time()
        if chance() < 0.8:
            self.read_slurm()
        if chance() < 0.9:
            self.read_kube()
        services: list[Callable[[], object]] = [self._drain_looks, self._reconciler_looks]
        self.random.shuffle(services)
        for look in services:
            look()

    def rest(self) -> None:
        """Nobody acts any more; what runs may end, and every source is heard."""
        self.acting, self.evicting = False, ""
        self.silent = dict.fromkeys(self.silent, self.now)
        self._job_goes_on()
        self.log.append(f"{self.now:%M:%S.%f} everybody rests")

    def round(self) -> bool:
        """A second in which every source is read and every message arrives; whether there was anything to do."""
        self.pass_time()
        self.read_slurm()
        self.read_kube()
        self.drain.mirror.follow()
        wants = self.look()
        self.reconciler.mirror.follow()
        return self.reconciler.look(self.now) or wants

    def moment(self) -> None:
        """The time between any two writes: an eviction that waits gets through, a job starts."""
        self.now += MOMENT
        pod = self.kube.pod
        if pod is not None and pod.ready and not pod.deleting_since and self.kube.host and not self.held():
            self._fit_at = self.now
        if pod is not None and pod.protected:
            self._opened.discard(pod.uid)
        if pod is not None and pod.node and self.evicting == pod.node and not pod.protected and not pod.deleting_since:
            self._evict(pod)
        if self.acting and self.random.random() < 0.2:
            self._start_job()

    def held(self) -> list[str]:
        """What in Kubernetes wants the worker out of service, as one sees it without Lockstep."""
        pod, host = self.kube.pod, self.kube.host
        found = [name for name, hold in self.kube.holds.items() if self._is_held_by(hold)]
        found += [f"cordon of {host.name}"] if host and host.name in self.cordoned else []
        return found + (["pod-cordon"] if pod and pod.pod_cordon else [])

    def look(self) -> bool:
        """The drain service's look; whether it wants something new."""
        desired = self.drain.look(self.now)
        proven = desired is not None and desired.progress is Progress.DRAINED
        slurm = self.slurm
        if proven and self.now - self._lifted_at > LAG and (not slurm.drain or slurm.jobs):
            raise Broken("said to be drained, and is not")
        return desired is not None

    def pass_time(self) -> None:
        """What happens by itself in a second."""
        self.now += STEP
        self.slurm.tick(self.now)
        self._move_pod()
        for job in list(self.slurm.jobs):
            if self.random.random() < (0.15 if self.acting else 0.6) and not job.suspended:
                if job.completing or self.random.random() < 0.5:
                    self.slurm.jobs.remove(job)
                else:
                    job.completing = True
        self.moment()

    def read_slurm(self) -> None:
        """The poller's cycle: the node, its heartbeat, and where it may matter the jobs and theirs."""
        self.now += MOMENT
        if self.silent["slurm"] > self.now:
            return
        slurm, at = self.slurm, self.now
        facts: list[Fact] = [slurm.fact(at)] if slurm.known else []
        jobs_matter = slurm.drain or slurm.fail or bool(slurm.down_by)
        jobs: list[Fact] = [job.fact() for job in slurm.jobs] if jobs_matter else []
        self._publish("slurm.node", facts)
        self.stream.publish(SourceHealth(source="slurm.node", of=CLUSTER, complete_as_of=at))
        self._publish("slurm.job", jobs)
        if jobs_matter:
            self.stream.publish(SourceHealth(source="slurm.job", of=CLUSTER, complete_as_of=at))

    def read_kube(self) -> None:
        """The watch's news, and its heartbeat."""
        self.now += MOMENT
        if self.silent["kube"] > self.now:
            return
        kube = self.kube
        facts: list[Fact] = [node.fact(self.now) for node in kube.nodes.values()]
        facts += [kube.pod.fact(self.now)] if kube.pod else []
        self._publish("kube", [*facts, *kube.holds.values()])
        self.stream.publish(SourceHealth(source="kube", of=SITE, complete_as_of=self.now))

    def lose_the_stream(self) -> None:
        """NATS lost its data: the mirrors are empty, and the sources tell everything anew."""
        self.stream.facts.clear()
        self._told.clear()
        self.drain.mirror.join_anew()
        self.reconciler.mirror.join_anew()

    def _publish(self, source: str, facts: list[Fact]) -> None:
        there = {(source, *key_of(fact)): fact for fact in facts}
        for key, fact in there.items():
            before = self._told.get(key)
            if before is None or content(before) != content(fact):
                self.stream.publish(fact)
                self._told[key] = fact
        for key in [k for k in self._told if isinstance(k, tuple) and k[0] == source and k not in there]:
            self.stream.publish(msgspec.structs.replace(self._told.pop(key), gone=True, read_at=self.now))

    def _drain_looks(self) -> None:
        if self.random.random() < 0.03:
            self.drain.mirror.join_anew()
        self.drain.mirror.follow(self._some(), twice=self.random.random() < 0.1)
        self.now += MOMENT
        self.look()

    def _reconciler_looks(self) -> None:
        if self.random.random() < 0.03:
            self.reconciler.mirror.join_anew()
        self.reconciler.mirror.follow(self._some(), twice=self.random.random() < 0.1)
        dies = self.random.random() < 0.1
        self.now += MOMENT
        self.reconciler.look(self.now, dies_after=self.random.randrange(3) if dies else None)
        if dies:
            self.reconciler.mirror.join_anew()

    def _some(self) -> int | None:
        return None if self.random.random() < 0.6 else self.random.randrange(4)

    def _evict(self, pod: PodTruth) -> None:
        pod.deleting_since = self.now
        self.log.append(f"{self.now:%M:%S.%f} pod {pod.uid} evicted")
        if not pod.ever_protected:
            self._unseen.add(pod.uid)
        if self.slurm.jobs:
            self._never(pod, f"an eviction killed {[job.id for job in self.slurm.jobs]}")

    def _judge(self, what: str) -> None:
        self.log.append(f"{self.now:%M:%S.%f} wrote {what}")
        if what == "UNDRAIN" and self.now - self._fit_at > LAG:
            raise Broken(f"opened a worker that was not ready, or held by {self.held()}")

    def _is_held_by(self, hold: KubeHold) -> bool:
        spec, host = hold.spec, self.kube.host
        if spec is None or (spec.expires_at and spec.expires_at <= self.now):
            return False
        return bool(spec.workers.names) or (host is not None and host.name in (spec.workers.nodes or ()))

    def _start_job(self) -> None:
        pod = self.kube.pod
        if pod is None or not pod.started_at or not self.slurm.offered(self.now):
            return
        job = Job(start=self.now, requeue=self.random.random() < 0.5)
        self.slurm.jobs.append(job)
        self.log.append(f"{self.now:%M:%S.%f} job {job.id} starts")
        if pod.deleting_since:
            self._never(pod, "Slurm offered a worker that Kubernetes was taking")

    def _never(self, pod: PodTruth, what: str) -> None:
        excused = self._unseen | self._opened | self._deleted
        if self.policy.protect is Protect.UNDRAINED and pod.uid not in excused:
            raise Broken(what)

    def _move_pod(self) -> None:
        kube, pod, now = self.kube, self.kube.pod, self.now
        eager = not self.acting or self.random.random() < 0.6
        if pod is None:
            kube.pod = PodTruth() if eager else None
        elif (pod.node and pod.node not in kube.nodes) or (pod.deleting_since and eager):
            kube.pod = None
            self.slurm.lose_slurmd(now)
        elif not pod.node:
            kube.schedule(tolerates_cordon=self.tolerates_cordon)
        elif pod.started_at is None:
            pod.started_at = now
        elif self.slurm.slurmd_start is None or self.slurm.slurmd_start < pod.started_at:
            if eager:
                self.slurm.register(now)
        else:
            pod.ready = True

    def _somebody_acts(self) -> None:
        acts: list[Callable[[], None]] = [
            self._admin_drains, self._admin_drains, self._admin_lifts, self._admin_lifts, self._admin_fails,
            self._user_cordons, self._user_cordons, self._user_uncordons, self._user_uncordons, self._user_drains,
            self._user_drains, self._user_deletes_pod, self._user_marks_pod, self._user_holds, self._user_holds,
            self._user_releases, self._user_releases, self._node_goes, self._node_comes, self._source_falls_silent,
            self._job_is_suspended, self._job_goes_on, self._record_goes, self._start_job, self._start_job,
            self._stream_is_lost,
        ]  # fmt: skip
        act = self.random.choice(acts)
        self.log.append(f"{self.now:%M:%S.%f} {act.__name__.lstrip('_')}")
        act()

    def _admin_drains(self) -> None:
        if self.slurm.known:
            reason = self.random.choice(("bad DIMM", "ask ops", "Kill task failed", ""))
            self.slurm.set_drain(reason)
            self.foreign = reason

    def _admin_fails(self) -> None:
        if not self.slurm.known:
            return
        self.foreign, self._lifted_at = "smoke", self.now
        if self.random.random() < 0.5:
            self.slurm.set_fail("smoke")
        else:
            self.slurm.set_down("smoke")

    def _admin_lifts(self) -> None:
        pod = self.kube.pod
        if not self.slurm.known:
            return
        if pod is not None and not pod.protected:
            self._opened.add(pod.uid)
        self.foreign, self._lifted_at = None, self.now
        if self.random.random() < 0.5:
            self.slurm.resume(self.now)
        elif self.slurm.drain:
            self.slurm.undrain(self.now)

    def _a_node(self) -> NodeTruth | None:
        return self.random.choice(list(self.kube.nodes.values())) if self.kube.nodes else None

    def _user_cordons(self) -> None:
        node = self.kube.host or self._a_node()
        if node is not None and node.cordon("kubectl"):
            self.cordoned.add(node.name)

    def _user_uncordons(self) -> None:
        node = self._a_node()
        if node is not None:
            node.uncordon()
            self.cordoned.discard(node.name)
            self.evicting = ""

    def _user_drains(self) -> None:
        node = self.kube.host
        if node is not None:
            self._user_cordons()
            self.evicting = node.name

    def _user_deletes_pod(self) -> None:
        pod = self.kube.pod
        if pod is not None and self.random.random() < 0.5:
            pod.deleting_since = pod.deleting_since or self.now
            self._deleted.add(pod.uid)

    def _user_marks_pod(self) -> None:
        if self.kube.pod is not None:
            self.kube.pod.pod_cordon = not self.kube.pod.pod_cordon

    def _user_holds(self) -> None:
        name = self.random.choice("abc")
        if name not in self.kube.holds:
            drain = Drain(policy=self.random.choice(list(DrainPolicy)))
            selector = WorkerSelector(names=[NAME]) if self.random.random() < 0.7 else WorkerSelector(nodes=[HOST])
            expires = self.now + 8 * STEP if self.random.random() < 0.2 else None
            self.kube.holds[name] = a_hold(
                name, created_at=self.now, drain=drain, workers=selector, expires_at=expires, reason=f"hold {name}"
            )

    def _user_releases(self) -> None:
        if self.kube.holds:
            del self.kube.holds[self.random.choice(list(self.kube.holds))]

    def _node_goes(self) -> None:
        node = self._a_node()
        if node is not None and self.random.random() < 0.5:
            del self.kube.nodes[node.name]
            self.cordoned.discard(node.name)

    def _node_comes(self) -> None:
        for name in (HOST, "host-8"):
            self.kube.nodes.setdefault(name, NodeTruth(name))

    def _source_falls_silent(self) -> None:
        self.silent[self.random.choice(("slurm", "kube"))] = self.now + self.random.randrange(2, 12) * STEP

    def _job_is_suspended(self) -> None:
        for job in self.slurm.jobs:
            job.suspended = not job.completing

    def _job_goes_on(self) -> None:
        for job in self.slurm.jobs:
            job.suspended = False

    def _record_goes(self) -> None:
        """Slurm forgets a node whose slurmd is gone."""
        if self.slurm.silent_since is not None and self.random.random() < 0.5:
            self.slurm.forget()
            self.foreign, self._lifted_at = None, self.now

    def _stream_is_lost(self) -> None:
        if self.random.random() < 0.3:
            self.lose_the_stream()
