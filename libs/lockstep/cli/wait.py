"""`lockstep hold --wait`: shows how far a Hold is until it is drained, or can never be."""

import asyncio
from contextlib import nullcontext

from lockstep.base.clock import monotonic
from lockstep.base.errors import Retry
from lockstep.cli.exits import Exit
from lockstep.cli.output import Out
from lockstep.contracts.hold import HoldPhase
from lockstep.kube.port import KubeApi
from lockstep.kube.wire import Hold

EVERY_S = 0.5
UNHEARD_S = 10.0
"""After so long without a word from Lockstep the person is told that nobody may be there."""
PATIENCE_S = 120.0
"""For an API server that cannot be reached."""


async def wait_for(kube: KubeApi, hold: Hold, out: Out) -> int:
    """Looks until the Hold is drained (0), or is refused, expired or released (1).

    Raises:
        Retry: Kubernetes could not be reached for two minutes.
    """
    started = heard = monotonic()
    shown = ""
    name = f"{hold.metadata.namespace}/{hold.metadata.name}"
    with out.out.status("waiting") if out.is_terminal and out.form == "text" else nullcontext() as status:
        while True:
            try:
                current = await kube.get_hold(hold.metadata.namespace, hold.metadata.name)
                heard = monotonic()
            except Retry as e:
                if monotonic() - heard > PATIENCE_S:
                    raise
                line, end = f"Kubernetes cannot be read: {e}", None
            else:
                line, end = told(current, hold.metadata.uid, monotonic() - started)
            if status is not None and end is None:
                status.update(line)
            elif line != shown:
                out.tell(line, {"hold": name, "told": line, "done": end is not None})
            shown = line
            if end is not None:
                return end
            await asyncio.sleep(EVERY_S)


def told(hold: Hold | None, uid: str, waited_s: float) -> tuple[str, Exit | None]:
    """What is to be said of a Hold now, and the exit code if there is nothing more to wait for."""
    if hold is None or hold.metadata.uid != uid or hold.metadata.deletion_timestamp is not None:
        return "released by somebody; it is no longer waited for", Exit.NO
    status = hold.status
    counts = f"{status.workers.drained} of {status.workers.selected} drained"
    match status.phase:
        case HoldPhase.DRAINED:
            return f"drained: {counts}", Exit.OK
        case HoldPhase.REFUSED | HoldPhase.EXPIRED:
            return f"{status.phase.lower()}: {status.message or 'no reason given'}", Exit.NO
    if not status.conditions and waited_s > UNHEARD_S:
        return "pending: nobody has taken it up; are Lockstep's services running? see `lockstep doctor`", None
    jobs = [f"{job.id} on {w.worker}" for w in status.waiting_for for job in w.jobs]
    waits = f", waits for {len(jobs)} job{'s' if len(jobs) != 1 else ''}: {', '.join(jobs[:5])}" if jobs else ""
    why = f" ({status.message})" if status.message and not jobs else ""
    return f"{status.phase.lower()}: {counts}{waits}{' …' if len(jobs) > 5 else ''}{why}", None
