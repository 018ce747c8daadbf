"""Lockstep's two deciders on tables of facts that lag, and their hands on the model's two systems.

`Hands` does in one place what `services/lockstep/reconciler` does: it reads before it writes, and remembers what was
answered. A crash may come between the answer and the memory.
"""

from collections.abc import Callable
from datetime import datetime

import msgspec

from lockstep.contracts.facts import Desired, Fact, NodeCondition, Wrote
from lockstep.contracts.policy import Policy
from lockstep.drain.decide import decide as decide_holds
from lockstep.fleet.drained import why_not_let_go
from lockstep.fleet.facts import FactTable, key_of
from lockstep.fleet.holds import is_foreign
from lockstep.fleet.pairing import Site, pair, workers_on
from lockstep.fleet.worker import Worker
from lockstep.reconciler.decide import decide, decide_node
from lockstep.reconciler.model import (
    DrainNode,
    EndJob,
    LiftMirror,
    MirrorCordon,
    NodeAction,
    Protect,
    ShowService,
    ShowState,
    UndrainNode,
    Unprotect,
    WorkerAction,
)
from lockstep.slurm import reasons
from tests.builders import CLUSTER, KEY, NAME
from tests.unit.model.kube import US, KubeTruth
from tests.unit.model.slurm import SlurmTruth

SITE = Site()


class Stream:
    """All facts in their order, the last of each subject kept for those that join later."""

    def __init__(self) -> None:
        self.facts: list[Fact] = []

    def publish(self, fact: Fact) -> None:
        """One more."""
        self.facts.append(fact)

    def latest(self) -> list[Fact]:
        """What a consumer reads that joins now."""
        return list({key_of(fact): fact for fact in self.facts}.values())


class Mirror:
    """One service's table, which follows the stream at its own pace."""

    def __init__(self, stream: Stream) -> None:
        self.table = FactTable()
        self._stream = stream
        self._at = 0

    def follow(self, most: int | None = None, *, twice: bool = False) -> None:
        """Takes in the next facts, all or at most so many; each twice if the server delivers again."""
        end = len(self._stream.facts) if most is None else self._at + most
        for fact in self._stream.facts[self._at : end]:
            self.table.apply(fact)
            if twice:
                self.table.apply(fact)
        self._at = min(end, len(self._stream.facts))

    def join_anew(self) -> None:
        """The process was started again."""
        self.table = FactTable()
        for fact in self._stream.latest():
            self.table.apply(fact)
        self._at = len(self._stream.facts)


class Hands:
    """Writes to the two systems, as the reconciler does, and counts them."""

    def __init__(self, slurm: SlurmTruth, kube: KubeTruth, policy: Policy, judge: Callable[[str], None]) -> None:
        self._slurm = slurm
        self._kube = kube
        self._policy = policy
        self._judge = judge
        self.writes = 0

    def do(self, action: WorkerAction, worker: Worker, now: datetime) -> Wrote | None:
        """Carries one action out, unless the systems are no longer as it was decided on."""
        slurm = self._slurm
        match action:
            case DrainNode(words=words):
                if not slurm.known or is_foreign(slurm.fact(now)):
                    return None
                if not (slurm.drain and slurm.reason == words):
                    self._note(f"DRAIN {words}")
                    slurm.set_drain(words)
                return _drained(action, worker, now)
            case UndrainNode():
                if not slurm.known or (slurm.drain and not reasons.is_ours(slurm.reason)):
                    return None
                if slurm.drain:
                    self._note("UNDRAIN")
                    slurm.undrain(now)
                return Wrote(cluster=CLUSTER, name=NAME, undrained_at=now, read_at=now)
            case Protect(uid=uid):
                self._label(uid, protected=True)
            case Unprotect(uid=uid):
                if not why_not_let_go(slurm.fact(now), self._policy):
                    self._label(uid, protected=False)
            case ShowState(uid=uid, conditions=wanted):
                if self._kube.pod and str(self._kube.pod.uid) == uid:
                    shown = [NodeCondition(type=c.type, status=c.status, message=c.message) for c in wanted]
                    self._kube.pod.conditions = shown
            case EndJob(job_id=job_id):
                slurm.jobs = [job for job in slurm.jobs if job.id != job_id]
                self._note(f"end job {job_id}")
        return None

    def do_on_node(self, action: NodeAction) -> None:
        """Carries one action on a Kubernetes node out."""
        node = self._kube.nodes.get(action.node)
        if node is None:
            return
        match action:
            case ShowService(condition=c):
                node.in_service = NodeCondition(type=c.type, status=c.status, reason=c.reason, message=c.message)
            case MirrorCordon():
                if not node.mark and node.cordon(US):
                    node.mark = True
                    self._note(f"cordon {node.name}")
            case LiftMirror(uid=uid, cordoned=cordoned):
                if str(node.uid) == uid:
                    node.mark = False
                    self._note(f"lift {node.name}")
                    if cordoned and node.cordoned_by == US:
                        node.uncordon()

    def _label(self, uid: str, *, protected: bool) -> None:
        pod = self._kube.pod
        if pod is not None and str(pod.uid) == uid:
            pod.protected = protected
            pod.ever_protected |= protected
            self._note("protect" if protected else "unprotect")

    def _note(self, what: str) -> None:
        self.writes += 1
        self._judge(what)


def _drained(action: DrainNode, worker: Worker, now: datetime) -> Wrote:
    episode = worker.desired.episode if worker.desired else 0
    before = worker.wrote.reasserted_at if worker.wrote and worker.wrote.episode == episode else None
    return Wrote(
        cluster=CLUSTER,
        name=NAME,
        words=action.words,
        drained_at=now,
        episode=worker.desired.episode if worker.desired else 0,
        reasserted_at=now if action.reassert else before,
        read_at=now,
    )


class DrainService:
    """Publishes what is wanted; knows it itself only when the stream brings it back."""

    def __init__(self, stream: Stream, policy: Policy) -> None:
        self.mirror = Mirror(stream)
        self._stream = stream
        self._policy = policy

    def look(self, now: datetime) -> Desired | None:
        """One look; what was published."""
        decision = decide_holds(pair(self.mirror.table, KEY, SITE), self._policy, now)
        if decision is None:
            return None
        self._stream.publish(decision.desired)
        return decision.desired


class Reconciler:
    """Carries out what is needed, one write at a time; `between` is called after each, for the world to go on."""

    def __init__(self, stream: Stream, hands: Hands, policy: Policy, between: Callable[[], None]) -> None:
        self.mirror = Mirror(stream)
        self._stream = stream
        self._hands = hands
        self._policy = policy
        self._between = between
        self._labels: dict[str, tuple[bool, datetime]] = {}

    def look(self, now: datetime, *, dies_after: int | None = None) -> bool:
        """One look; whether anything was to be done. May die right after a write, before it is remembered."""
        done: list[WorkerAction] = []
        while action := self._next(done, now):
            wrote = self._hands.do(action, self._worker(), now)
            done.append(action)
            self._between()
            if len(done) - 1 == dies_after:
                self._labels.clear()
                return True
            if isinstance(action, Protect | Unprotect):
                self._labels[action.uid] = (isinstance(action, Protect), now)
            if wrote is not None:
                self.mirror.table.apply(wrote)
                self._stream.publish(wrote)
        return self._look_at_nodes(now) or bool(done)

    def _next(self, done: list[WorkerAction], now: datetime) -> WorkerAction | None:
        """Decided anew for each step; Slurm is written once a look."""
        slurm = DrainNode | UndrainNode
        wrote_slurm = any(isinstance(action, slurm) for action in done)
        for action in decide(self._worker(), self._policy, now):
            if action not in done and not (wrote_slurm and isinstance(action, slurm)):
                return action
        return None

    def _worker(self) -> Worker:
        """The worker, its pod's label as it was answered until the watch shows it."""
        worker = pair(self.mirror.table, KEY, SITE)
        pod = worker.pod
        if pod is None or pod.read_at is None:
            return worker
        protected, at = self._labels.get(pod.uid, (pod.protected, pod.read_at))
        known = msgspec.structs.replace(pod, protected=pod.protected if pod.read_at > at else protected)
        return msgspec.structs.replace(worker, pod=known)

    def _look_at_nodes(self, now: datetime) -> bool:
        table, busy = self.mirror.table, False
        for name, node in list(table.nodes.items()):
            workers = [pair(table, key, SITE) for key in workers_on(table, name, [CLUSTER], SITE)]
            as_of = pair(table, KEY, SITE).kube_as_of
            for action in decide_node(node, workers, self._policy, now, kube_as_of=as_of):
                self._hands.do_on_node(action)
                self._between()
                busy = True
        return busy


def content(fact: Fact) -> Fact:
    """A fact without when it was read."""
    return msgspec.structs.replace(fact, read_at=None, revision="", epoch=0)
