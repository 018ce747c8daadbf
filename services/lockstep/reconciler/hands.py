"""Carries one action out, and says what to remember and to publish of it."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import assert_never

import msgspec
import structlog

from lockstep.base import clock
from lockstep.base.errors import Retry
from lockstep.contracts.events import (
    DrainActed,
    DrainLifted,
    DrainSet,
    Event,
    HoldReasserted,
    ProtectionOff,
    ProtectionOn,
    WriteRefused,
)
from lockstep.contracts.facts import NodeCondition, Wrote
from lockstep.contracts.hold import Condition, DrainPolicy
from lockstep.contracts.policy import Policy
from lockstep.fleet.drained import why_not_let_go
from lockstep.fleet.worker import Worker
from lockstep.kube import keys
from lockstep.kube.errors import KubeError
from lockstep.kube.port import KubeApi, Regarding
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
from lockstep.reconciler.writer import SlurmWriter
from lockstep.runtime.tracing import current_traceparent
from lockstep.slurm import again
from lockstep.slurm.errors import Refused
from lockstep.slurm.port import SlurmApi

log = structlog.get_logger()


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """What came of an action."""

    wrote: Wrote | None = None
    events: list[Event] = []
    refused: bool = False
    """Slurm will not do it now; the sweep asks again."""


NOTHING_TO_TELL = Done()


class Hands:
    """Everything the reconciler writes goes through here. Raises `Retry`, `KubeError` and `SlurmError`."""

    def __init__(
        self,
        kube: KubeApi,
        slurm: Mapping[str, SlurmApi],
        writers: Mapping[str, SlurmWriter],
        policy: Policy,
        epoch: int,
    ) -> None:
        self._kube = kube
        self._slurm = slurm
        self._writers = writers
        self._policy = policy
        self._epoch = epoch

    async def carry_out(self, worker: Worker, action: WorkerAction) -> Done:
        """Do one action on a worker."""
        match action:
            case Protect():
                return await self._label(worker, action)
            case Unprotect():
                return await self._label(worker, action, await self._read_once_more(worker, action))
            case DrainNode():
                return await self._drain(worker, action)
            case UndrainNode():
                return await self._undrain(worker)
            case EndJob():
                return await self._end_job(worker, action)
            case ShowState(namespace=namespace, pod=pod, uid=uid, conditions=wanted):
                shown = _shown(worker.pod.conditions if worker.pod else ())
                prefix = keys.SLURM_STATE_PREFIX
                await self._kube.set_pod_conditions(namespace, pod, wanted, prefix, uid=uid, shown=shown)
                return NOTHING_TO_TELL
            case _:
                assert_never(action)

    async def carry_out_on_node(self, action: NodeAction) -> None:
        """Do one action on a Kubernetes node."""
        match action:
            case ShowService(node=node, uid=uid, shown=before, condition=condition):
                await self._kube.set_node_condition(node, condition, uid=uid, shown=_shown([before] if before else ()))
            case MirrorCordon(node=node):
                await self._kube.cordon(node, mark=True)
            case LiftMirror(node=node, uid=uid, cordoned=cordoned):
                if not (cordoned and await self._kube.uncordon(node)):
                    await self._kube.annotate_node(node, {keys.MIRRORED_CORDON: None}, uid=uid)
            case _:
                assert_never(action)

    async def _read_once_more(self, worker: Worker, action: Unprotect) -> str:
        """Before a pod may be taken, both sides again, directly. Returns the version of the pod that was read."""
        node = await again.read(partial(self._slurm[worker.cluster].node, worker.name))
        why_not = why_not_let_go(node, self._policy)
        if why_not:
            raise Retry(f"not to be let go after all: {why_not}", after_s=0.5)
        pod = await self._kube.get_pod(action.namespace, action.pod)
        if pod is None or pod.metadata.uid != action.uid:
            raise Retry("the pod is another one by now")
        return pod.metadata.resource_version

    async def _label(self, worker: Worker, action: Protect | Unprotect, revision: str | None = None) -> Done:
        protect = isinstance(action, Protect)
        label = {keys.POD_PROTECT: keys.TRUE if protect else None}
        await self._kube.patch_pod_labels(
            action.namespace, action.pod, label, uid=action.uid, resource_version=revision
        )
        now = clock.now()
        mark = f"{action.uid}:{now.timestamp():.6f}:{'protected' if protect else 'unprotected'}"
        kind = ProtectionOn if protect else ProtectionOff
        return Done(events=[kind(id=mark, at=now, worker=worker.ref, why=action.because)])

    async def _drain(self, worker: Worker, action: DrainNode) -> Done:
        answer = await self._writers[worker.cluster].drain(worker.name, action.words)
        desired = worker.desired
        again = action.reassert and answer.wrote
        episode = desired.episode if desired else 0
        before = worker.wrote.reasserted_at if worker.wrote and worker.wrote.episode == episode else None
        wrote = Wrote(
            cluster=worker.cluster,
            name=worker.name,
            words=action.words,
            drained_at=answer.at,
            traceparent=current_traceparent(),
            episode=episode,
            reasserted_at=answer.at if again else before,
            epoch=self._epoch,
            read_at=answer.at,
        )
        if not answer.wrote:
            return Done(wrote=wrote)
        mark = f"{worker.cluster}/{worker.name}:{answer.at.timestamp():.6f}"
        events: list[Event] = [DrainSet(id=f"{mark}:drained", at=answer.at, worker=worker.ref, words=action.words)]
        if again:
            holds = [hold.id for hold in desired.holds] if desired else []
            reasserted = HoldReasserted(
                id=f"{mark}:reasserted", at=answer.at, worker=worker.ref, words=action.words, holds=holds
            )
            events.append(reasserted)
            await self._tell_people(worker, "HoldReasserted", f"resumed in Slurm, drained again: {action.words}")
        return Done(wrote=wrote, events=events)

    async def _undrain(self, worker: Worker) -> Done:
        answer = await self._writers[worker.cluster].undrain(worker.name)
        wrote = Wrote(
            cluster=worker.cluster,
            name=worker.name,
            undrained_at=answer.at,
            traceparent=current_traceparent(),
            epoch=self._epoch,
            read_at=answer.at,
        )
        words = worker.slurm.reason if worker.slurm else ""
        mark = f"{worker.cluster}/{worker.name}:{answer.at.timestamp():.6f}"
        undrained = DrainLifted(id=f"{mark}:undrained", at=answer.at, worker=worker.ref, words=words)
        return Done(wrote=wrote, events=[undrained] if answer.wrote else [])

    async def _end_job(self, worker: Worker, action: EndJob) -> Done:
        slurm = self._slurm[worker.cluster]
        try:
            await (slurm.cancel if action.act is DrainPolicy.CANCEL else slurm.requeue)(action.job_id)
        except Refused as error:
            write = f"{action.act.lower()} job {action.job_id}"
            mark = f"{worker.cluster}:{action.job_id}:{action.start}:refused"
            now = clock.now()
            told = WriteRefused(id=mark, at=now, worker=worker.ref, write=write, error=str(error))
            return Done(events=[told], refused=True)
        acted = DrainActed(
            id=f"{worker.cluster}:{action.job_id}:{action.start}:{action.act}",
            at=clock.now(),
            worker=worker.ref,
            act=action.act.lower(),
            jobs=[action.job_id],
        )
        await self._tell_people(worker, "DrainActed", f"{action.act.lower()} job {action.job_id}: {action.because}")
        return Done(events=[acted])

    async def _tell_people(self, worker: Worker, reason: str, message: str) -> None:
        """As an Event of the pod. Nobody's work depends on it: that it cannot be written is logged, and no more."""
        pod = worker.pod
        if pod is None:
            return
        regarding = Regarding(kind="Pod", name=pod.name, namespace=pod.namespace, uid=pod.uid)
        try:
            await self._kube.emit_event(regarding, reason=reason, message=message, kind="Warning")
        except KubeError as error:
            log.warning("Not written", kind="event", name=f"{pod.namespace}/{pod.name}", error=str(error))


def _shown(conditions: Iterable[NodeCondition]) -> list[Condition]:
    """Conditions as the watch has told them: what they replace need not be read again."""
    return [
        Condition(type=c.type, status=c.status, reason=c.reason, message=c.message, last_transition_time=c.since)
        for c in conditions
    ]
