"""What `lockstep doctor` asks of NATS: the streams, and whether the services tell anything."""

from lockstep.bus.streams import stream_state
from lockstep.cli.checks import Check, fail, ok, warn
from lockstep.cli.connect import Reach
from lockstep.cli.sources import facts_of, fleet_of
from lockstep.cli.view import old_sources
from lockstep.contracts.subjects import DEAD, STREAMS


async def bus(reach: Reach) -> list[Check]:
    """Connection, streams, and how old each source is."""
    connection = await reach.bus()
    found = []
    for stream in STREAMS:
        state = await stream_state(connection, stream.name)
        if state is None:
            found.append(fail("nats", f"stream {stream.name} does not exist", "start a service; it makes the streams"))
        elif stream is DEAD and state.messages:
            what = "there are dead letters: what a service could not handle"
            found.append(warn("nats", what, "see `lockstep dead list`, mend the cause, then `lockstep dead replay`"))
        else:
            found.append(ok("nats", f"stream {stream.name} has messages {state.first} to {state.last}"))
    if any(check.level == "fail" for check in found):
        return found
    fleet = fleet_of(await facts_of(reach), reach.settings)
    old = [f"{text} ({of})" for _, of, text in old_sources(fleet)]
    hint = "see the log of pod_watcher (kube) or slurm_poller (slurm)"
    stale = [fail("sources", text, hint) for text in old]
    return [*found, *(stale or [ok("sources", f"all are fresh; {len(fleet.table)} facts")])]
