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
        case e.PodChanged():
            return f"pod {event.before or 'new'} → {event.after}"
        case e.NodeCordoned():
            return f"cordoned by {event.by or 'somebody'}" + _because(event.reason)
        case e.NodeUncordoned():
            return "uncordoned"
        case e.NodeRebooted():
            return "rebooted"
        case e.SlurmStateChanged():
            by = f" by {event.by}" if event.by and event.reason_after else ""
            return f"Slurm {event.before or 'absent'} → {event.after or 'absent'}{by}" + _because(event.reason_after)
        case e.SlurmNodeRegistered():
            return "slurmd registered"
        case e.SlurmNodeVanished():
            return f"Slurm no longer knows it (was {event.before})"
        case e.HoldPlaced():
            return f"held: {_hold(event.hold)}"
        case e.HoldReleased():
            left = f", {len(event.standing)} left" if event.standing else ""
            return f"{'expired' if event.expired else 'released'}: {_hold(event.hold)}{left}"
        case e.HoldReasserted():
            return f"drained again, still held by {', '.join(event.holds)}" + _because(event.words)
        case e.HoldOverridden():
            return f"overridden by {event.by}: {_hold(event.hold)}" + _because(event.why)
        case e.HoldRefused():
            return f"Hold {event.name} refused: {event.fault}"
        case e.ForeignDrainRespected():
            return f"somebody else's drain is left alone: {_hold(event.hold)}"
        case e.DrainProgressed():
            jobs = len(event.waiting_for)
            waits = f", waits for {jobs} job{'s' if jobs > 1 else ''}" if jobs else ""
            return f"drain {event.before} → {event.after}{waits}" + _because(event.why_not)
        case e.DrainActed():
            return f"{event.act} of jobs {', '.join(map(str, event.jobs))}"
        case e.WorkerDrained():
            return "DRAIN set in Slurm" + _because(event.words)
        case e.WorkerUndrained():
            return "DRAIN lifted in Slurm"
        case e.ProtectionChanged():
            return ("protected from eviction" if event.protected else "may be evicted") + _because(event.why)
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
        case _:
            return type(event).__name__


def _about(event: e.Event) -> str:
    return event.identity if event.scope.startswith("_") else f"{event.scope}/{event.identity}"


def _hold(hold: HoldView) -> str:
    return f"{hold.id} of {hold.owner}: {hold.reason}"


def _because(text: str) -> str:
    return f": {text}" if text else ""
