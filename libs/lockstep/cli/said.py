"""The words of a story: as `happened` says it, and how long things took. Pure."""

from collections.abc import Iterable
from datetime import datetime

from lockstep.bus.envelope import Unknown
from lockstep.bus.events import EventSeen
from lockstep.cli.moments import lasting
from lockstep.contracts import events as e
from lockstep.contracts.facts import SITE
from lockstep.contracts.hold import JobBrief
from lockstep.contracts.subjects import tag_of
from lockstep.fleet.happened import said
from lockstep.slurm.reasons import is_ours

MAX_JOBS = 20


class Words:
    """What each event is called. To be asked in the order of the stream: it counts how long drains take."""

    def __init__(self) -> None:
        self._began: datetime | None = None
        self._drained: datetime | None = None
        self._waited: dict[int, None] = {}
        self._drains = 0
        self._took_s = 0.0
        self._out_s = 0.0

    def of(self, seen: EventSeen) -> str:
        """What happened, for people who know which worker it is about."""
        event = seen.event
        match event:
            case Unknown():
                return f"{event.type or 'something'}: cannot be read: {event.why}"
            case e.DrainEvent():
                return self._drain(event)
            case e.NodeEvent():
                return f"node {event.node} {said(event)}"
            case e.SourceEvent():
                return f"{event.source}{'' if event.of == SITE else f' of {event.of}'} {said(event)}"
            case e.JobEvent():
                what = {e.JobStarted: "started", e.JobRequeued: "was requeued"}.get(type(event), "ended")
                return f"job {event.job_id} of {event.user or 'somebody'} {what}"
            case _:
                return said(event)

    def summary(self) -> str:
        """How many drains there were, and what they took; empty when there was none."""
        parts = list[str]()
        if self._drains:
            drains, in_all = ("1 drain", "") if self._drains == 1 else (f"{self._drains} drains", " in all")
            parts += [drains, f"drained after {lasting(self._took_s)}{in_all}"]
        if self._out_s:
            parts.append(f"out of service for {lasting(self._out_s)}")
        if self._began:
            parts.append(f"out of service since {self._began:%Y-%m-%d %H:%M:%S}")
        return ", ".join(parts)

    def _drain(self, event: e.DrainEvent) -> str:
        self._waited |= {job.id: None for job in event.waiting_for[:MAX_JOBS]}
        lasted = self._lasted(event.at)
        match event:
            case e.DrainStarted():
                self._began, self._drained = event.at, None
                self._waited = {job.id: None for job in event.waiting_for[:MAX_JOBS]}
                return said(event)
            case e.DrainDone():
                self._drained = event.at
                if self._began is None:
                    return "drained"
                self._drains += 1
                self._took_s += (event.at - self._began).total_seconds()
                return f"drained after {lasted}{self._jobs()}"
            case e.DrainWaiting() if event.waiting_for:
                return f"drain waits for {', '.join(map(_job, event.waiting_for[:MAX_JOBS]))}"
            case e.DrainOverdue():
                return said(event) + (f", after {lasted}" if lasted else "")
            case e.DrainCancelled():
                self._began = None
                return "drain cancelled" + (f" after {lasted}" if lasted else "") + self._jobs()
            case e.DrainEnded():
                self._out_s += (event.at - self._began).total_seconds() if self._began else 0.0
                self._began = None
                return "nothing holds it any more" + (f", after {lasted} out of service" if lasted else "")
            case _:
                return said(event)

    def _lasted(self, at: datetime) -> str:
        return lasting((at - self._began).total_seconds()) if self._began else ""

    def _jobs(self) -> str:
        jobs = ", ".join(map(str, list(self._waited)[:MAX_JOBS]))
        return f", waited for job{'s' if len(self._waited) > 1 else ''} {jobs}" if jobs else ""


def together(events: Iterable[e.Event | Unknown]) -> str:
    """A new state of a Slurm node with its phase and its reason, the phase first: it is what people ask for."""
    phases, states, rest = list[str](), list[str](), list[str]()
    for event in events:
        match event:
            case e.SlurmPhaseChanged():
                phases.append(said(event))
            case e.SlurmStateChanged():
                states.append(said(event))
            case e.SlurmReasonChanged() if not event.after:
                rest.append("reason cleared")
            case e.SlurmReasonChanged() if event.cause_id and is_ours(event.after):
                rest.append("with our reason")
            case e.Event():
                rest.append(said(event))
            case _:
                pass
    return ", ".join([*phases, *states, *rest])


def _job(job: JobBrief) -> str:
    owner = f" of {job.user}" if job.user else ""
    return f"job {job.id}{owner}" + (f", {job.state.lower()}" if job.state else "")


def kind_of(seen: EventSeen) -> str:
    """The event's type, such as `hold.placed.v1`."""
    return seen.event.type if isinstance(seen.event, Unknown) else tag_of(type(seen.event))


def by_of(event: e.Event | Unknown) -> str:
    """Who did it, or whose it is; empty where the event does not say."""
    match event:
        case e.NodeCordoned() | e.SlurmReasonChanged() | e.HoldOverridden() | e.RequestEvent():
            return event.by
        case e.HoldPlaced() | e.ForeignDrainRespected():
            return event.hold.owner
        case e.JobEvent():
            return event.user
        case _:
            return ""
