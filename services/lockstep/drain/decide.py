"""Which holds stand, how far the drain is, and which jobs a drain's policy ends. Pure."""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from lockstep.contracts.events import (
    DrainCancelled,
    DrainDone,
    DrainEnded,
    DrainEvent,
    DrainOverdue,
    DrainStarted,
    DrainWaiting,
    Event,
    ForeignDrainRespected,
    HoldExpired,
    HoldPlaced,
    HoldReleased,
)
from lockstep.contracts.facts import Desired, HoldView, JobAct, Progress
from lockstep.contracts.hold import DrainPolicy
from lockstep.contracts.policy import Policy
from lockstep.contracts.subjects import tag_of
from lockstep.drain.model import Decision
from lockstep.fleet.drained import why_not_closed, why_not_drained
from lockstep.fleet.holds import ends_jobs, in_order, is_slurms_own, projected, standing, words
from lockstep.fleet.worker import Worker, is_fresh
from lockstep.slurm import states

MAX_JOBS = 20
"""Jobs that a drain names; the rest is counted in `why_not`."""


def decide(worker: Worker, policy: Policy, now: datetime) -> Decision | None:
    """What is wanted of a worker now; None when nothing changes, or when too little is known to say anything."""
    before = worker.desired
    if before is None and (worker.kube_as_of is None or worker.slurm_as_of is None):
        return None
    slurm = worker.slurm
    holds = _with_unheard(standing(worker, policy, now), worker, policy, now)
    if slurm is None and worker.pod is None and (before is None or not holds):
        return _forgotten(worker, policy, now)
    episode = _episode(worker, holds)
    wanted = Desired(
        cluster=worker.cluster,
        name=worker.name,
        in_service=not holds,
        holds=holds,
        episode=episode,
        traceparent=before.traceparent if before and before.holds and holds and before.episode == episode else "",
        words=words(holds, slurm.reason if slurm and states.has_reason(slurm.base, slurm.flags) else ""),
        waiting_for=[job.brief for job in worker.jobs[:MAX_JOBS]] if holds else [],
        deadline=min((h.deadline for h in holds if h.deadline), default=None),
        job_acts=_job_acts(worker, holds, policy, now),
        kube_node=worker.node_name,
        had_pod=worker.pod is not None or (before is not None and before.had_pod and slurm is not None),
        read_at=now,
    )
    progress, why_not = _progress(worker, wanted, policy, now)
    wanted = msgspec.structs.replace(wanted, progress=progress, why_not=why_not)
    if before is not None and _same(before, wanted):
        return None
    number = int(before.revision or 0) + 1 if before else 1
    desired = msgspec.structs.replace(wanted, revision=str(number))
    return Decision(desired=desired, events=_events(worker, before, desired, now))


def _forgotten(worker: Worker, policy: Policy, now: datetime) -> Decision | None:
    """A worker that neither system has any more and no hold is about: it takes its desired state along."""
    before = worker.desired
    heard = [is_fresh(as_of, now, policy.stale_after_s) for as_of in (worker.kube_as_of, worker.slurm_as_of)]
    if before is None or not all(heard):
        return None
    return Decision(desired=msgspec.structs.replace(before, gone=True, read_at=now))


def _episode(worker: Worker, holds: Sequence[HoldView]) -> int:
    """Counts on from what was last written too, so that a number is never given twice."""
    before, wrote = worker.desired, worker.wrote
    count = max(before.episode if before else 0, wrote.episode if wrote else 0)
    begins = bool(projected(holds)) and not (before and projected(before.holds))
    return count + 1 if begins else count


def _with_unheard(found: list[HoldView], worker: Worker, policy: Policy, now: datetime) -> list[HoldView]:
    """The holds found, and those of a source that cannot be read now: its silence ends nothing."""
    ids = {hold.id for hold in found}
    kube = is_fresh(worker.kube_as_of, now, policy.stale_after_s)
    slurm = is_fresh(worker.slurm_as_of, now, policy.stale_after_s)
    before = worker.desired.holds if worker.desired else []
    return in_order(found + [h for h in before if h.id not in ids and not (slurm if is_slurms_own(h) else kube)])


def _progress(worker: Worker, wanted: Desired, policy: Policy, now: datetime) -> tuple[Progress, str]:
    """How far the drain is. Once proven drained it stays so while every reading shows it, for the same holds."""
    if not wanted.holds:
        return Progress.NONE, ""
    before = worker.desired
    proven = before is not None and before.progress is Progress.DRAINED and before.episode == wanted.episode
    of_now = msgspec.structs.replace(worker, desired=wanted)
    why_not = (why_not_closed if proven else why_not_drained)(of_now, policy, now)
    if not why_not:
        return Progress.DRAINED, ""
    if any(hold.deadline is not None and hold.deadline <= now for hold in wanted.holds):
        return Progress.OVERDUE, why_not
    slurm = worker.slurm
    shown = slurm is not None and states.is_drain(slurm.base, slurm.flags)
    return (Progress.DRAINING if shown else Progress.WAITING), why_not


def _job_acts(worker: Worker, holds: Sequence[HoldView], policy: Policy, now: datetime) -> list[JobAct]:
    """Which jobs are to be ended now. Only behind a closed door: Slurm shows DRAIN and is being read."""
    slurm = worker.slurm
    if slurm is None or not states.is_drain(slurm.base, slurm.flags):
        return []
    if not is_fresh(worker.slurm_as_of, now, policy.stale_after_s):
        return []
    acts = {ends_jobs(hold, now) for hold in projected(holds)}
    if DrainPolicy.CANCEL in acts:
        act = DrainPolicy.CANCEL
    elif DrainPolicy.REQUEUE in acts:
        act = DrainPolicy.REQUEUE
    else:
        return []
    return [
        JobAct(job_id=job.job_id, act=act, start=job.start)
        for job in worker.jobs
        if not states.job_is_ending(job.states) and (job.can_requeue or act is DrainPolicy.CANCEL)
    ]


def _same(before: Desired, wanted: Desired) -> bool:
    return before == msgspec.structs.replace(
        wanted, revision=before.revision, read_at=before.read_at, epoch=before.epoch
    )


def _events(worker: Worker, before: Desired | None, after: Desired, now: datetime) -> list[Event]:
    had = {hold.id: hold for hold in before.holds} if before else {}
    has = {hold.id: hold for hold in after.holds}
    mark = f"{worker.cluster}/{worker.name}:{after.revision}"
    events: list[Event] = []
    came = went = ""
    for hold in after.holds:
        if hold.id not in had:
            kind = ForeignDrainRespected if hold.id.startswith("slurm/") else HoldPlaced
            came = came or f"{mark}:placed:{hold.id}"
            events.append(kind(id=f"{mark}:placed:{hold.id}", at=now, worker=worker.ref, hold=hold))
    for hold in had.values():
        if hold.id not in has:
            ended = HoldExpired if hold.until is not None and hold.until <= now else HoldReleased
            went = f"{mark}:ended:{hold.id}"
            events.append(
                ended(id=f"{mark}:ended:{hold.id}", at=now, worker=worker.ref, hold=hold, standing=sorted(has))
            )
    was = before.progress if before else Progress.NONE
    waited = [job.id for job in before.waiting_for] if before else []
    if was is not after.progress or waited != [job.id for job in after.waiting_for]:
        cause = went if after.progress is Progress.NONE else came if was is Progress.NONE else ""
        for step_of in steps(was, after.progress):
            step = step_of(
                id=f"{mark}:{tag_of(step_of)}",
                at=now,
                cause_id=cause,
                worker=worker.ref,
                before=was,
                after=after.progress,
                waiting_for=after.waiting_for,
                deadline=after.deadline,
                why_not=after.why_not,
            )
            events.append(step)
            cause = step.id
    return events


def steps(was: Progress, now: Progress) -> list[type[DrainEvent]]:
    """What a drain's progress is called. One that begins and is at once further has both told.

    One that is as far as before waits for other jobs.
    """
    if was is now:
        return [DrainWaiting]
    if now is Progress.NONE:
        return [DrainEnded if was is Progress.DRAINED else DrainCancelled]
    begun: list[type[DrainEvent]] = [DrainStarted] if was is Progress.NONE else []
    match now:
        case Progress.DRAINED:
            return [*begun, DrainDone]
        case Progress.OVERDUE:
            return [*begun, DrainOverdue]
        case _:
            return begun or [DrainWaiting]
