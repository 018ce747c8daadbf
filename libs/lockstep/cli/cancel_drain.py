"""`lockstep cancel-drain`: ends all holds of one's own on a worker, if nothing else keeps it out."""

from argparse import Namespace

from lockstep.base.errors import BadInput
from lockstep.cli import choose
from lockstep.cli.connect import Reach
from lockstep.cli.exits import Exit, Stop
from lockstep.cli.kube_only import with_holds_of_now
from lockstep.cli.order import faults_of_text
from lockstep.cli.output import Out
from lockstep.cli.override import end
from lockstep.cli.release import Sight
from lockstep.cli.rows import HoldRow
from lockstep.cli.sources import read_fleet
from lockstep.cli.through import faults_of_way, goes_by_nats, nats_user, request, request_id
from lockstep.cli.who import whoami
from lockstep.contracts.common import WorkerKey
from lockstep.contracts.requests import CancelDrainRequest


async def run(args: Namespace) -> int:
    """Looks what keeps the worker out, and ends all of it or nothing."""
    if wrong := [*faults_of_way(args), *(faults_of_text("--why", args.why) if args.why else [])]:
        raise BadInput(wrong)
    out = Out(form=args.output)
    async with Reach.of(args) as reach:
        fleet = await read_fleet(reach, out)
        clusters = choose.clusters(fleet, args.cluster)
        key = choose.worker(fleet, args.worker, clusters)
        if await goes_by_nats(args, reach):
            what = CancelDrainRequest(id=request_id(args), cluster=key[0], worker=key[1], why=args.why.strip())
            return await request(reach, what, nats_user(args, reach), out, to_the_end=True)
        sight = Sight.of(await with_holds_of_now(reach, fleet), clusters, await whoami(reach))
        for row in all_of_mine(key, sight):
            done = await end(reach, sight.target(row))
            out.tell(f"{row.id}: {done}", {"hold": row.id, "cluster": row.cluster, "outcome": done})
    return Exit.OK


def all_of_mine(key: WorkerKey, sight: Sight) -> list[HoldRow]:
    """The holds of one's own that keep out this worker alone, if there is nothing else.

    Raises:
        Stop: there are others, or none.
    """
    on = [row for row in sight.rows if row.cluster == key[0] and key[1] in row.workers]
    mine = [row for row in on if sight.is_mine(row) and len(row.workers) == 1]
    others = [f"{row.id} of {row.owner} ({len(row.workers)} workers)" for row in on if row not in mine]
    name = f"worker {'/'.join(key)}"
    if others:
        raise Stop(Exit.DENIED, f"{name}: is kept out by {', '.join(others)}; these are not ended by cancel-drain")
    if not mine:
        raise Stop(Exit.NO, f"{name}: no hold of yours stands on it; see `lockstep why`")
    return mine
