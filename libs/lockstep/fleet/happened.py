"""One line for each kind of event, for people. Pure."""

from lockstep.base.text import one_line
from lockstep.contracts import events as e
from lockstep.contracts.facts import HoldView

MAX_LINE = 300


def line(event: e.Event) -> str:
    """When, about whom, and what happened."""
    about = str(event.worker) if isinstance(event, e.WorkerEvent) else _about(event)
    return one_line(f"{event.at:%Y-%m-%d %H:%M:%SZ}  {about}  {said(event)}", limit=MAX_LINE)


def said(event: e.Event) -> str:  # noqa: C901, PLR0912  one case an event
    """What happened, in words."""
    match event:
        case e.PodEvent():
            return f"pod {event.before or 'new'} → {event.after}"
        case e.NodeCordoned():
            return f"cordoned by {event.by or 'somebody'}" + _because(event.reason)
        case e.NodeUncordoned():
            return "uncordoned"
        case e.NodeConditionChanged():
            told = event.message or event.reason
            return f"{event.condition} {event.before or 'absent'} → {event.after or 'absent'}" + _because(told)
        case e.NodeTaintsChanged():
            return ", ".join(
                [*(f"tainted {t.key}" for t in event.added), *(f"no longer {t.key}" for t in event.removed)]
            )
        case e.NodeRebooted():
            return "rebooted"
        case e.NodeGone():
            return "Kubernetes no longer knows the node"
        case e.SlurmStateChanged():
            return f"Slurm {event.before or 'absent'} → {event.after or 'absent'}"
        case e.SlurmPhaseChanged():
            return f"{event.before or 'absent'} → {event.after}"
        case e.SlurmReasonChanged():
            by = f" by {event.by}" if event.by and event.after else ""
            return f"Slurm's reason{by}: {event.after}" if event.after else "Slurm's reason was cleared"
        case e.ReservationEntered():
            return f"under reservation {event.reservation}"
        case e.ReservationLeft():
            return f"no longer under reservation {event.reservation}"
        case e.JobEvent():
            what = {e.JobStarted: "started", e.JobRequeued: "requeued"}.get(type(event), "ended")
            return f"job of {event.user or 'somebody'} on {event.node_count} nodes {what}"
        case e.SlurmNodeRegistered():
            return "slurmd registered"
        case e.SlurmNodeVanished():
            return f"Slurm no longer knows it (was {event.before})"
        case e.HoldPlaced():
            return f"held: {_hold(event.hold)}"
        case e.HoldReleased():
            return f"released: {_hold(event.hold)}{_left(event.standing)}"
        case e.HoldExpired():
            return f"expired: {_hold(event.hold)}{_left(event.standing)}"
        case e.HoldReasserted():
            return f"drained again, still held by {', '.join(event.holds)}" + _because(event.words)
        case e.HoldOverridden():
            return f"overridden by {event.by}: {_hold(event.hold)}" + _because(event.why)
        case e.HoldRefused():
            return f"Hold {event.name} refused: {event.fault}"
        case e.ForeignDrainRespected():
            return f"somebody else's drain is left alone: {_hold(event.hold)}"
        case e.DrainEvent():
            jobs = len(event.waiting_for)
            waits = f", waits for {jobs} job{'s' if jobs > 1 else ''}" if jobs else ""
            return f"drain {_DRAINS.get(type(event), event.after)}{waits}" + _because(event.why_not)
        case e.DrainActed():
            return f"{event.act} of jobs {', '.join(map(str, event.jobs))}"
        case e.DrainSet():
            return "DRAIN set in Slurm" + _because(event.words)
        case e.DrainLifted():
            return "DRAIN lifted in Slurm"
        case e.ProtectionOn():
            return "protected from eviction" + _because(event.why)
        case e.ProtectionOff():
            return "may be evicted" + _because(event.why)
        case e.WriteRefused():
            return f"refused: {event.write}: {event.error}"
        case e.SourceLost():
            return f"cannot be read: {event.error}"
        case e.SourceBack():
            return f"can be read again, after {event.lost_for_s:.0f} s"
        case e.GapFound():
            return "facts or events were lost, all is read anew" + _because(event.detail)
        case e.DriftFound():
            return f"the systems disagree: {event.rule}" + _because(event.detail)
        case e.StreamFilling():
            return f"holds {event.used_bytes / event.limit_bytes:.0%} of what it may; the oldest will be dropped"
        case e.RequestAccepted():
            workers = f"{event.workers} worker{'' if event.workers == 1 else 's'}"
            return f"{event.verb} asked for by {event.by}: accepted, {workers}"
        case e.RequestRefused():
            return f"{event.verb} asked for by {event.by}: refused: {event.fault}"
        case e.RequestProgressed():
            return f"{event.verb}: {event.drained} of {event.selected} drained"
        case e.RequestDone():
            return f"{event.verb} of {event.by}: {event.outcome}"
        case _:
            return type(event).__name__


_DRAINS: dict[type[e.Event], str] = {
    e.DrainStarted: "started",
    e.DrainWaiting: "waits",
    e.DrainOverdue: "is overdue",
    e.DrainDone: "is done: drained",
    e.DrainCancelled: "cancelled",
    e.DrainEnded: "ended",
}


def _left(standing: list[str]) -> str:
    return f", {len(standing)} left" if standing else ""


def _about(event: e.Event) -> str:
    return event.identity if event.scope.startswith("_") else f"{event.scope}/{event.identity}"


def _hold(hold: HoldView) -> str:
    return f"{hold.id} of {hold.owner}: {hold.reason}"


def _because(text: str) -> str:
    return f": {text}" if text else ""
