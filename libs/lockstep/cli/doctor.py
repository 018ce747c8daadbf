"""`lockstep doctor`: checks settings, connections, rights and versions; each line says what to do."""

import asyncio
from argparse import Namespace
from collections.abc import Awaitable, Sequence

from rich.text import Text

from lockstep.base.errors import BadInput, LockstepError
from lockstep.cli import examine_bus, examine_kube, examine_slurm
from lockstep.cli.checks import Check, Level, fail, ok, warn
from lockstep.cli.connect import Reach, settings_of
from lockstep.cli.exits import Exit, Stop, code_of, lines_of
from lockstep.cli.output import STYLES, Out, document
from lockstep.runtime.settings import ClusterSettings, Settings

MEASURES = {
    Exit.UNREACHABLE: "is it running, and is there a way to it from here?",
    Exit.DENIED: "give the rights, or use other credentials",
    Exit.BAD_INPUT: "correct the setting",
}


async def run(args: Namespace) -> int:
    """Runs every check; 1 when one of them failed."""
    out = Out()
    try:
        settings = settings_of(args)
    except BadInput as e:
        return report(out, args.output, [fail("settings", fault, "correct it") for fault in e.faults])
    if args.cluster and settings.clusters and args.cluster not in {c.name for c in settings.clusters}:
        known = ", ".join(c.name for c in settings.clusters)
        raise Stop(Exit.NOT_FOUND, f"cluster {args.cluster!r}: there is none of that name; the settings have {known}")
    async with Reach(settings) as reach:
        clusters = [c for c in settings.clusters if args.cluster in (None, c.name)]
        kube, *others = await asyncio.gather(
            _kube(reach, clusters),
            *(guarded(f"slurm {c.name}", examine_slurm.cluster(reach, c)) for c in clusters),
            guarded("nats", examine_bus.bus(reach)),
        )
        found = [*kube, *(check for checks in others for check in checks)]
    return report(out, args.output, [*about_settings(settings), *found])


async def _kube(reach: Reach, clusters: Sequence[ClusterSettings]) -> list[Check]:
    """All about Kubernetes; nothing more once it cannot be reached."""
    server = await guarded("kubernetes", examine_kube.server(reach))
    if any(check.level is Level.FAIL for check in server):
        return server
    others = await asyncio.gather(
        guarded("holds", examine_kube.installed(reach)),
        guarded("rights", examine_kube.rights(reach, clusters)),
        guarded("budgets", examine_kube.budgets_over_workers(reach, clusters)),
        guarded("neighbour", examine_kube.neighbour(reach)),
    )
    return [*server, *(check for checks in others for check in checks)]


async def guarded(area: str, work: Awaitable[list[Check]]) -> list[Check]:
    """The checks; what cannot be asked is one that failed."""
    try:
        return await work
    except LockstepError as error:
        do = MEASURES.get(code_of(error), "see what it says")
        return [fail(area, line, do) for line in lines_of(error)]


def about_settings(settings: Settings) -> list[Check]:
    """What the settings say, as far as it can be checked by looking at them."""
    if not settings.clusters:
        hint = "name a settings file with --config, to check what the services will do"
        return [warn("settings", "none given; only what a kubeconfig and NATS show is checked", hint)]
    names = ", ".join(c.name for c in settings.clusters)
    found = [ok("settings", f"clusters {names}; protect {settings.policy.protect}, mirror {settings.policy.mirror}")]
    if not settings.lease.enabled:
        found.append(warn("settings", "lease.enabled is false", "only right while one copy of each service runs"))
    return found


def report(out: Out, form: str, checks: Sequence[Check]) -> int:
    """Prints the checks; the exit code."""
    if form == "json":
        out.raw(document({"kind": "CheckList", "items": checks}, "json"))
    else:
        width = max((len(check.area) for check in checks), default=0)
        for check in checks:
            out.line(
                Text.assemble((f"{check.level:<5}", STYLES[check.level]), f" {check.area:<{width}}  {check.found}")
            )
            if check.do:
                out.line(f"{'':<{width + 6}}  → {check.do}")
    return Exit.NO if any(c.level is Level.FAIL for c in checks) else Exit.OK
