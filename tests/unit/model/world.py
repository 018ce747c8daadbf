"""A small world: one worker in Slurm and Kubernetes, jobs, controllers, sources, and Lockstep on old facts.

`Broken` is raised the moment something happens that must never happen.
"""

from datetime import datetime, timedelta
from random import Random

import msgspec

from lockstep.contracts.facts import SITE, Fact, KubeHold, Progress, SourceHealth
from lockstep.contracts.policy import Policy, Protect
from lockstep.fleet.facts import key_of
from tests.builders import CLUSTER, HOST, NOW
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
        self.opened: set[int] = set()
        """Pods whose worker an administrator opened while they could be evicted, until they are protected."""
        self._unseen: set[int] = set()
        """Pods that were evicted before Lockstep had seen them."""
        self.deleted: set[int] = set()
        """Pods that a user deleted outright."""
        self._told: dict[object, Fact] = {}
        self._fit_at = NOW - LAG
        """When Kubernetes last showed a worker that is ready and that nothing holds."""
        self.lifted_at = NOW - LAG
        """When somebody else than Lockstep last lifted a DRAIN."""

    def rest(self) -> None:
        """Nobody acts any more; what runs may end, and every source is heard."""
        self.acting, self.evicting = False, ""
        self.silent = dict.fromkeys(self.silent, self.now)
        for job in self.slurm.jobs:
            job.suspended = False
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
        living = pod is not None and not pod.deleting_since
        if pod is not None and living and pod.ready and self.kube.host and not self.held(self.now + LAG):
            self._fit_at = self.now
        if pod is not None and living and pod.protected:
            self.opened.discard(pod.uid)
        if pod is not None and pod.node and self.evicting == pod.node and not pod.protected and not pod.deleting_since:
            self._evict(pod)
        if self.acting and self.random.random() < 0.2:
            self.start_job()
        if self.acting and self.random.random() < 0.2:
            self.reconciler.mirror.follow(self.random.randrange(4))

    def held(self, at: datetime | None = None) -> list[str]:
        """What in Kubernetes wants the worker out of service, as one sees it without Lockstep."""
        pod, host = self.kube.pod, self.kube.host
        found = [name for name, hold in self.kube.holds.items() if self._is_held_by(hold, at or self.now)]
        found += [f"cordon of {host.name}"] if host and host.name in self.cordoned else []
        found += ["DiskPressure"] if host and host.sick and self.policy.node_conditions else []
        return found + (["pod-cordon"] if pod and pod.pod_cordon else [])

    def look(self) -> bool:
        """The drain service's look; whether it wants something new."""
        desired = self.drain.look(self.now)
        proven = desired is not None and desired.progress is Progress.DRAINED
        slurm = self.slurm
        if proven and self.now - self.lifted_at > LAG and (not slurm.drain or slurm.jobs):
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

    def _is_held_by(self, hold: KubeHold, at: datetime) -> bool:
        spec, host = hold.spec, self.kube.host
        if spec is None or (spec.expires_at and spec.expires_at <= at):
            return False
        return bool(spec.workers.names) or (host is not None and host.name in (spec.workers.nodes or ()))

    def start_job(self) -> None:
        """Slurm places a job, if it offers the worker."""
        pod = self.kube.pod
        if pod is None or not pod.started_at or not self.slurm.offered(self.now):
            return
        job = Job(start=self.now, requeue=self.random.random() < 0.5)
        self.slurm.jobs.append(job)
        self.log.append(f"{self.now:%M:%S.%f} job {job.id} starts")
        if pod.deleting_since:
            self._never(pod, "Slurm offered a worker that Kubernetes was taking")

    def _never(self, pod: PodTruth, what: str) -> None:
        excused = self._unseen | self.opened | self.deleted
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
