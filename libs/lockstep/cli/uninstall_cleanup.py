"""`lockstep uninstall-cleanup`: takes away what Lockstep wrote to Kubernetes, when it is no longer to be used."""

import asyncio
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

from lockstep.base.errors import BadInput, LockstepError
from lockstep.cli.cleanup import Leftovers, Step
from lockstep.cli.connect import Reach
from lockstep.cli.exits import Exit, Stop, lines_of
from lockstep.cli.output import Out
from lockstep.contracts.facts import SlurmNode
from lockstep.kube.errors import Conflict, NotFound
from lockstep.kube.wire import Lease
from lockstep.slurm import reasons, states

SHOWN = 20
"""Workers that are named; of more only how many there are."""


async def run(args: Namespace) -> int:
    """Looks, asks, takes away, and says what stays."""
    out = Out(form=args.output)
    async with Reach.of(args) as reach:
        clusters = [c for c in reach.settings.clusters if args.cluster in (None, c.name)]
        if not clusters:
            raise BadInput(
                ["settings: name the services' settings file with --config; it says what they wrote, and where"]
            )
        left = Leftovers(reach.settings, await reach.kube(), await reach.raw(), holds=args.holds)
        if not args.force and not args.dry_run:
            await _refuse_while_led(left, reach.settings.lease.duration_s)
        steps = [step async for step in left.steps()]
        if args.dry_run:
            for step in steps:
                out.tell(f"would remove {step.kind} {step.name}", {"would": step.kind, "name": step.name})
        elif steps and not args.yes:
            _ask(steps)
        done = Counter(step.kind for step in steps) if args.dry_run else await _carry_out(steps, out)
        words = ", ".join(f"{count} {kind}" for kind, count in sorted(done.items())) or "nothing"
        out.tell(f"{'Would remove' if args.dry_run else 'Removed'}: {words}.", {"removed": dict(done)})
        for cluster in clusters:
            await _drains(reach, cluster.name, out, undrain=args.undrain and not args.dry_run)
        if not args.holds:
            out.note("Holds and the resource itself stay; --holds removes the Holds.")
    return Exit.OK


async def _refuse_while_led(left: Leftovers, duration_s: int) -> None:
    """A service that leads would write again what is removed. It renews its Lease several times in `duration_s`.

    Raises:
        Stop: one of them was renewed while we watched.
    """
    before = {lease.metadata.name: lease for lease in await left.leases() if lease.spec.holder_identity}
    if not before:
        return
    await asyncio.sleep(duration_s / 2)
    after = await left.leases()
    alive = sorted(lease.metadata.name for lease in after if _renewed(before.get(lease.metadata.name), lease))
    if alive:
        hint = "end the services first, or insist with --force: what is removed would be written again"
        raise Stop(Exit.NO, f"these still lead: {', '.join(alive)}; {hint}")


def _renewed(before: Lease | None, after: Lease) -> bool:
    version = before.metadata.resource_version if before else ""
    return bool(after.spec.holder_identity) and after.metadata.resource_version != version


def _ask(steps: Sequence[Step]) -> None:
    """Asks on the terminal.

    Raises:
        BadInput: there is nobody to ask.
        Stop: the answer is no.
    """
    counts = ", ".join(f"{n} {kind}" for kind, n in sorted(Counter(step.kind for step in steps).items()))
    if not sys.stdin.isatty():
        raise BadInput([f"--yes: is wanted where nobody can be asked; there is to remove: {counts}"])
    if input(f"Remove {counts}? [y/N] ").strip().lower() not in {"y", "yes"}:
        raise Stop(Exit.NO, "nothing was removed")


async def _carry_out(steps: Sequence[Step], out: Out) -> Counter[str]:
    """One after the other; what has gone or changed meanwhile is not ours any more."""
    done: Counter[str] = Counter()
    for step in steps:
        with suppress(NotFound, Conflict):
            await step.do()
            done[step.kind] += 1
            out.tell(f"removed {step.kind} {step.name}", {"removed": step.kind, "name": step.name})
    return done


async def _drains(reach: Reach, cluster: str, out: Out, *, undrain: bool) -> None:
    """Says which workers Slurm keeps drained because of us, or lifts that."""
    try:
        slurm = await reach.slurm(cluster)
        answer = await slurm.nodes()
        names = sorted(node.name for node in answer.nodes if _is_ours(node)) if answer else []
        if names and undrain:
            await slurm.undrain(names)
    except LockstepError as e:
        out.note(f"Slurm {cluster} cannot be asked which workers stay drained: {lines_of(e)[0]}")
        return
    if names:
        shown = ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
        words = "no longer drained" if undrain else "stay drained in Slurm (--undrain lifts that)"
        out.tell(f"{cluster}: {words}: {shown}", {"cluster": cluster, "drained": not undrain, "workers": names})


def _is_ours(node: SlurmNode) -> bool:
    return states.is_drain(node.base, node.flags) and reasons.is_ours(node.reason)
