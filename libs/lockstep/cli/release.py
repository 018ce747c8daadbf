"""`lockstep release`: ends holds. One's own by deleting them; somebody else's only with --override, where they live.

By a request over NATS a Hold alone can be ended: what lives elsewhere needs the person's own rights there.
"""

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass

from lockstep.base.errors import BadInput
from lockstep.cli import choose
from lockstep.cli.connect import Reach
from lockstep.cli.exits import Exit, Stop
from lockstep.cli.get import hold_names
from lockstep.cli.kube_only import with_holds_of_now
from lockstep.cli.order import faults_of_text
from lockstep.cli.output import Out
from lockstep.cli.override import Override, Target, end, record
from lockstep.cli.rows import HoldRow, hold_rows
from lockstep.cli.sources import read_fleet
from lockstep.cli.through import faults_of_way, goes_by_nats, nats_user, request, request_id
from lockstep.cli.view import Fleet, WorkerView, worker_view
from lockstep.cli.who import whoami
from lockstep.cli.why import ending
from lockstep.contracts.facts import KubeHold
from lockstep.contracts.requests import ReleaseRequest, owner_of
from lockstep.fleet.holds import hold_id


@dataclass(frozen=True)
class Sight:
    """All that is seen, and by whom."""

    fleet: Fleet
    views: Sequence[WorkerView]
    rows: Sequence[HoldRow]
    me: str

    @classmethod
    def of(cls, fleet: Fleet, clusters: Sequence[str], me: str) -> "Sight":
        """What this person sees of these clusters."""
        views = [worker_view(worker, fleet) for worker in fleet.workers(clusters)]
        return cls(fleet, views, hold_rows(fleet, views, clusters), me)

    def is_mine(self, row: HoldRow) -> bool:
        """Whether the API server recorded this person as the owner of the Hold."""
        hold = self._resource(row)
        return bool(self.me) and hold is not None and hold.owner == self.me

    def target(self, row: HoldRow) -> Target:
        """The hold with the workers that it keeps out."""
        held = [v for v in self.views if v.cluster == row.cluster and v.name in row.workers]
        hold = self._resource(row)
        return Target(row=row, views=held, mine=self.is_mine(row), uid=hold.uid if hold else "")

    def _resource(self, row: HoldRow) -> KubeHold | None:
        holds = self.fleet.table.holds[row.cluster].values()
        return next((hold for hold in holds if hold_id(hold) == row.id), None)


async def run(args: Namespace) -> int:
    """Finds everything that is meant, checks whose it is, and only then ends it."""
    if faults := [*_faults(args), *faults_of_way(args)]:
        raise BadInput(faults)
    out = Out(form=args.output)
    async with Reach.of(args) as reach:
        fleet = await read_fleet(reach, out)
        if by_nats := await goes_by_nats(args, reach):
            me = owner_of(nats_user(args, reach))
        else:
            fleet, me = await with_holds_of_now(reach, fleet), await whoami(reach)
        sight = Sight.of(fleet, choose.clusters(fleet, args.cluster), me)
        rows = [row for word in args.names for row in meant(word, sight, all_mine=args.all_mine)]
        targets = {(row.cluster, row.id): sight.target(row) for row in rows}
        for target in targets.values():
            permit(target, sight.me, override=args.override)
        if by_nats:
            return await ask_for(list(targets.values()), args, reach, out)
        for target in targets.values():
            done, row = await end(reach, target), target.row
            out.tell(f"{row.id}: {done}", {"hold": row.id, "cluster": row.cluster, "outcome": done})
            if not target.mine:
                await record(reach, target, Override(user=sight.me or "unknown", why=args.why.strip()), out)
    return Exit.OK


async def ask_for(targets: Sequence[Target], args: Namespace, reach: Reach, out: Out) -> Exit:
    """Asks for the end of each Hold, one after the other.

    Raises:
        BadInput: one of them is no Hold, or one id was given for several; then nothing is asked for.
        Stop: one was refused; those after it were not asked for.
    """
    wrong = [
        f"{t.row.id}: is no Hold, and is not ended by a request; it ends by: {ending(t.hold)}"
        for t in targets
        if not t.row.id.startswith("hold/")
    ]
    if args.request_id and len(targets) > 1:
        wrong.append(f"--request-id: is the id of one request, and there are {len(targets)} holds")
    if wrong:
        raise BadInput(wrong)
    for target in targets:
        name = target.row.id.rpartition("/")[2]
        why, cluster = args.why.strip(), target.row.cluster
        what = ReleaseRequest(id=request_id(args), cluster=cluster, hold=name, override=args.override, why=why)
        await request(reach, what, nats_user(args, reach), out, to_the_end=True)
    return Exit.OK


def _faults(args: Namespace) -> list[str]:
    if args.override and args.all_mine:
        return ["--all-mine: ends what is yours; --override is for what is not. Give one of them"]
    if args.override:
        return faults_of_text("--why", args.why)
    return ["--why: goes with --override"] if args.why else []


def meant(word: str, sight: Sight, *, all_mine: bool) -> list[HoldRow]:
    """The holds that a word means: a hold by its id or name, else the hold of the worker of that name.

    Raises:
        BadInput: it means several; says which.
        Stop: it means none.
    """
    named = [row for row in sight.rows if word in (*hold_names(row), row.id.removeprefix("hold/"))]
    workers = [view for view in sight.views if word in (view.name, f"{view.cluster}/{view.name}")]
    is_one = len({row.id for row in named}) == 1 and (
        len(named) == 1 or not word.startswith(("slurm/", "reservation/"))
    )
    if named and (workers or not is_one):
        meanings = [
            *(f"{row.id} of cluster {row.cluster}" for row in named),
            *(f"worker {v.cluster}/{v.name}" for v in workers),
        ]
        raise BadInput([f"{choose.quoted(word)}: means {', '.join(meanings)}; write one in full, or give --cluster"])
    if named:
        return named
    if not workers:
        known = sorted({name for row in sight.rows for name in hold_names(row)} | {view.name for view in sight.views})
        what = f"{choose.quoted(word)}: no hold and no worker has that name; {choose.among(word, known)}"
        raise Stop(Exit.NOT_FOUND, what)
    if len(workers) > 1:
        choices = ", ".join(f"{v.cluster}/{v.name}" for v in workers)
        raise BadInput([f"worker {choose.quoted(word)}: there are several, say which: {choices}"])
    return _holds_of(workers[0], sight, all_mine=all_mine)


def _holds_of(view: WorkerView, sight: Sight, *, all_mine: bool) -> list[HoldRow]:
    """The one hold of a worker, or all of one's own; never one that keeps other workers out too."""
    on = [row for row in sight.rows if row.cluster == view.cluster and view.name in row.workers]
    rows = [row for row in on if sight.is_mine(row)] if all_mine else on
    name = f"worker {view.cluster}/{view.name}"
    if not rows:
        raise Stop(Exit.NO, f"{name}: no hold{' of yours' if all_mine else ''} stands on it; see `lockstep why`")
    if len(rows) > 1 and not all_mine:
        ids = ", ".join(f"{row.id} of {row.owner}" for row in rows)
        raise BadInput([f"{name}: has {len(rows)} holds; name one, or give --all-mine: {ids}"])
    if wider := [row for row in rows if len(row.workers) > 1]:
        text = ", ".join(f"{row.id} ({len(row.workers)} workers)" for row in wider)
        raise BadInput([f"{name}: is kept out with others by {text}; release the hold by its name"])
    return rows


def permit(target: Target, me: str, *, override: bool) -> None:
    """Refuses to end what is somebody else's, unless that is meant.

    Raises:
        Stop: says who the owner is, and how the hold is ended properly.
    """
    if target.mine or override:
        return
    row = target.row
    way = "" if row.id.startswith("hold/") else f"; it ends by: {ending(target.hold)}"
    why = f"{row.id}: is of {row.owner}, not of {me or 'a known user'}{way}; to insist, use --override --why TEXT"
    raise Stop(Exit.DENIED, why)
