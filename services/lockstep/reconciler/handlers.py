"""Looks at a worker, decides, and has it carried out; remembers what was answered until a watch shows it."""

from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from datetime import datetime
from functools import partial

import msgspec

from lockstep.base import clock
from lockstep.base.errors import Retry
from lockstep.contracts.common import WorkerKey
from lockstep.contracts.events import DriftFound, Event
from lockstep.contracts.facts import SITE, Wrote
from lockstep.contracts.policy import Policy
from lockstep.fleet.drained import WAITS_FOR_A_READ, why_not_drained
from lockstep.fleet.facts import CauseOf, FactTable
from lockstep.fleet.holds import projected
from lockstep.fleet.invariants import broken
from lockstep.fleet.pairing import Site, believed, pair, workers_on
from lockstep.fleet.worker import Worker
from lockstep.kube.errors import Conflict, KubeError, NotFound
from lockstep.reconciler.causes import because, explained
from lockstep.reconciler.decide import decide, decide_node
from lockstep.reconciler.hands import Done, Hands
from lockstep.reconciler.model import (
    DrainNode,
    EndJob,
    NodeAction,
    Protect,
    ShowState,
    UndrainNode,
    Unprotect,
    WorkerAction,
)
from lockstep.reconciler.tally import counted
from lockstep.reconciler.traces import on_node, on_worker
from lockstep.reconciler.turns import Turns
from lockstep.runtime.tracing import step
from lockstep.slurm import reasons, states
from lockstep.slurm.errors import SlurmError, Unreachable

Told = Callable[[Wrote | None, list[Event]], object]
"""Takes what is to be published; must not wait."""

SWEEPS_UNTIL_DRIFT = 2
"""A rule may be broken for a moment after a change; what two sweeps in a row find is drift."""
SIDE_BY_SIDE = 32
"""How many writes go to Kubernetes at the same time; fewer than `kube.concurrency`, so that a lease never waits behind
them. More would be no faster, and what waits for its turn is decided on what is known when it comes."""
RANKS: dict[type[WorkerAction], int] = {Protect: 0, Unprotect: 1, ShowState: 2}
"""Who goes first to Kubernetes: what a write to Slurm waits for, what a person waits for, what is shown on pods."""
RANK_OF_NODES = 3


class Reconciler:
    """Safe to call for any worker at any time; two calls for the same worker must not overlap."""

    def __init__(
        self,
        table: FactTable,
        site: Site,
        clusters: Collection[str],
        policy: Policy,
        hands: Hands,
        *,
        may_act: Callable[[], bool],
        anticipate: Callable[[Wrote], object],
        tell: Told,
        cause_of: CauseOf = lambda *_: "",
    ) -> None:
        self._table = table
        self._site = site
        self._clusters = clusters
        self._policy = policy
        self._hands = hands
        self._may_act = may_act
        self._anticipate = anticipate
        self._tell = tell
        self._cause_of = cause_of
        self._unsure: dict[WorkerKey, datetime] = {}
        """When a write to Slurm stayed without an answer: nothing is written before a later read."""
        self._answered: dict[tuple[str, ...], tuple[object, str]] = {}
        """Kubernetes writes that were answered, until the watch shows another revision of the object."""
        self._ended: set[tuple[str, int, datetime | None]] = set()
        """Runs of jobs that were asked to end."""
        self._refused: set[tuple[str, int, datetime | None]] = set()
        """Runs that Slurm would not end; asked again with the next sweep."""
        self._said: set[tuple[str, int, datetime | None]] = set()
        """Of these it was told that Slurm would not end them; once is enough, however often it is asked."""
        self._broken: dict[WorkerKey, dict[str, int]] = {}
        """The rules that are broken, and at how many sweeps in a row."""
        self._turns = Turns(SIDE_BY_SIDE)

    def worker(self, key: WorkerKey) -> Worker:
        """The worker as it is known now, with our own answered label that no watch has shown yet."""
        worker = pair(self._table, key, self._site)
        pod = worker.pod
        wanted, revision = self._answered.get(("label", pod.uid), (None, "")) if pod else (None, "")
        if pod is None or wanted is None or revision != pod.revision or wanted == pod.protected:
            return worker
        return msgspec.structs.replace(worker, pod=msgspec.structs.replace(pod, protected=bool(wanted)))

    def waits_for_a_read(self, key: WorkerKey) -> bool:
        """Whether the next heartbeat may change what is to be done, without any fact changing.

        So for a write without an answer, and for one that no reading has shown yet: somebody may undo it before, and
        then nothing that is read changes. So too for the last reading of a drain, and where Slurm does not show what is
        wanted: on the way up only fresh news count, and a drain that was resumed waits until it may be set again.
        """
        worker = self.worker(key)
        if key in self._unsure or believed(worker) is not worker.slurm:
            return True
        if why_not_drained(worker, self._policy, clock.now()) in WAITS_FOR_A_READ:
            return True
        return is_to_be_written(worker)

    async def look(self, key: WorkerKey) -> list[WorkerAction]:
        """Do what the worker needs, in order, up to the first failure. Returns what was done.

        Each step is decided anew when its turn has come.

        Raises:
            Retry: something did not work or has changed meanwhile; look again.
        """
        done: list[WorkerAction] = []
        while action := self._next(self.worker(key), done):
            kind = type(action)
            async with self._turns.turn(RANKS[kind]) if kind in RANKS else nullcontext():
                worker = self.worker(key)
                action = self._next(worker, done)
                if type(action) is kind:
                    with step(partial(on_worker, worker, action, self._table.flows)):
                        told = await self._try(worker, action)
                        self._remember(worker, action, told)
                    done.append(action)
        return done

    def _next(self, worker: Worker, done: Sequence[WorkerAction]) -> WorkerAction | None:
        """What is to be done now. Slurm is written once a look: what follows that is for the next reading to show."""
        wrote_slurm = any(isinstance(action, DrainNode | UndrainNode) for action in done)
        for action in decide(worker, self._policy, clock.now()):
            again = action in done or (wrote_slurm and isinstance(action, DrainNode | UndrainNode))
            if not (again or self._is_answered(worker, action) or self._must_read_first(worker, action)):
                return action
        return None

    async def look_at_node(self, name: str) -> list[NodeAction]:
        """Do what a Kubernetes node needs for all workers on it; raises as `look`."""
        if not self._next_on_node(name):
            return []
        done: list[NodeAction] = []
        workers = self._workers_on(name)
        async with self._turns.turn(RANK_OF_NODES):
            for action in self._next_on_node(name):
                self._check_lease()
                revision = self._table.nodes[name].revision if name in self._table.nodes else ""
                try:
                    with step(partial(on_node, name, workers, action, self._table.flows)):
                        await counted(action, self._hands.carry_out_on_node(action))
                except NotFound:
                    continue
                except KubeError as error:
                    raise Retry(f"{type(action).__name__} {name}: {error}") from error
                self._answered[_node_slot(name, action)] = (action, revision)
                done.append(action)
        return done

    def _next_on_node(self, name: str) -> list[NodeAction]:
        """What is to be done on a Kubernetes node now."""
        node = self._table.nodes.get(name)
        if node is None:
            return []
        workers = self._workers_on(name)
        kube = self._table.sources.get(("kube", SITE))
        as_of = kube.complete_as_of if kube else None
        actions = decide_node(node, workers, self._policy, clock.now(), kube_as_of=as_of)
        return [a for a in actions if self._answered.get(_node_slot(name, a)) != (a, node.revision)]

    def _workers_on(self, name: str) -> list[Worker]:
        return [self.worker(key) for key in workers_on(self._table, name, self._clusters, self._site)]

    def drift(self, key: WorkerKey) -> list[Event]:
        """What was broken at the last sweep already and still is; told once, until it has been right again."""
        worker, now = self.worker(key), clock.now()
        found = dict(broken(worker, self._policy, now))
        before = self._broken.pop(key, {})
        if found:
            self._broken[key] = {rule: before.get(rule, 0) + 1 for rule in found}
        mark = f"{worker.cluster}/{worker.name}:{now:%Y%m%dT%H%M%S}"
        return [
            DriftFound(id=f"{mark}:{rule}", at=now, worker=worker.ref, rule=rule, detail=detail)
            for rule, detail in found.items()
            if before.get(rule, 0) + 1 == SWEEPS_UNTIL_DRIFT
        ]

    def forget_answers(self) -> None:
        """Let the sweep write again what was answered long ago and still does not show."""
        self._answered.clear()
        self._refused.clear()
        running = {(job.cluster, job.job_id, job.start) for jobs in self._table.jobs.values() for job in jobs.values()}
        self._ended &= running
        self._said &= running

    def _check_lease(self) -> None:
        if not self._may_act():
            raise Retry("the lease may have run out", after_s=1.0)

    async def _try(self, worker: Worker, action: WorkerAction) -> Done:
        self._check_lease()
        what = f"{type(action).__name__} {worker.cluster}/{worker.name}"
        why = because(worker, self._cause_of)
        try:
            return explained(await counted(action, self._hands.carry_out(worker, action)), why)
        except Conflict as error:
            raise Retry(f"{what}: {error}", after_s=0.05) from error
        except Unreachable as error:
            self._unsure[worker.key] = clock.now()
            raise Retry(f"{what}: {error}") from error
        except (KubeError, SlurmError) as error:
            raise Retry(f"{what}: {error}") from error

    def _remember(self, worker: Worker, action: WorkerAction, done: Done) -> None:
        if done.wrote is not None:
            self._anticipate(done.wrote)
        events = done.events
        if isinstance(action, EndJob):
            run = (worker.cluster, action.job_id, action.start)
            (self._refused if done.refused else self._ended).add(run)
            if done.refused:
                events = [] if run in self._said else events
                self._said.add(run)
        if isinstance(action, Protect | Unprotect | ShowState):
            self._answered[_slot(action)] = (_wanted(action), worker.pod.revision if worker.pod else "")
        self._tell(done.wrote, events)

    def _is_answered(self, worker: Worker, action: WorkerAction) -> bool:
        if isinstance(action, EndJob):
            return (worker.cluster, action.job_id, action.start) in self._ended | self._refused
        if isinstance(action, Protect | Unprotect | ShowState):
            revision = worker.pod.revision if worker.pod else ""
            return self._answered.get(_slot(action)) == (_wanted(action), revision)
        return False

    def _must_read_first(self, worker: Worker, action: WorkerAction) -> bool:
        since = self._unsure.get(worker.key)
        if since is None or not isinstance(action, DrainNode | UndrainNode):
            return False
        if worker.slurm_as_of is None or worker.slurm_as_of <= since:
            return True
        del self._unsure[worker.key]
        return False


def is_to_be_written(worker: Worker) -> bool:
    """Whether Slurm does not show the drain that is wanted, or shows one of ours that is not."""
    slurm, desired = believed(worker), worker.desired
    if slurm is None or desired is None:
        return False
    drain = states.is_drain(slurm.base, slurm.flags)
    return not drain if projected(desired.holds) else drain and reasons.is_ours(slurm.reason)


def _slot(action: Protect | Unprotect | ShowState) -> tuple[str, ...]:
    kind = "conditions" if isinstance(action, ShowState) else "label"
    return (kind, action.uid)


def _node_slot(name: str, action: NodeAction) -> tuple[str, ...]:
    return ("node", name, type(action).__name__)


def _wanted(action: Protect | Unprotect | ShowState) -> object:
    return action.conditions if isinstance(action, ShowState) else isinstance(action, Protect)
