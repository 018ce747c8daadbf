"""What a `lockstep hold` command line asks for, checked against the fleet before anything is changed. Pure."""

import re
from argparse import Namespace
from collections.abc import Collection
from datetime import datetime, timedelta

import msgspec

from lockstep.base.errors import BadInput
from lockstep.base.text import one_line
from lockstep.cli import choose
from lockstep.cli.exits import Exit, Stop
from lockstep.cli.view import Fleet
from lockstep.contracts.hold import (
    MAX_NAMES,
    MAX_REASON,
    AtDeadline,
    Drain,
    DrainPolicy,
    HoldClass,
    HoldSpec,
    LabelSelector,
    WorkerSelector,
    seconds_of,
)
from lockstep.fleet.holds import selects
from lockstep.fleet.worker import Worker
from lockstep.slurm import hostlist

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_PAIR = re.compile(r"\s*([A-Za-z0-9][-A-Za-z0-9_./]*)\s*==?\s*([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)\s*")
MAX_NAME = 63
_WAYS = ("workers", "hostlist", "nodes", "selector", "partitions")


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """A Hold to be created."""

    namespace: str
    name: str
    named: bool
    """The name was asked for, so no other will do."""
    spec: HoldSpec
    selected: list[str]
    """The workers that it takes out of service now."""


def order_of(args: Namespace, fleet: Fleet, clusters: Collection[str]) -> Order:
    """The Hold that the arguments ask for; they have no `faults`.

    Raises:
        BadInput: it is not clear which workers are meant.
        Stop: it would be for no worker at all.
    """
    cluster, wanted = _selector(args, fleet, clusters)
    workers = fleet.workers([cluster])
    selected = [w for w in workers if selects(wanted, w)]
    _check(args, wanted, workers, selected)
    spec = HoldSpec(
        cluster=cluster,
        workers=wanted,
        reason=args.reason.strip(),
        hold_class=HoldClass(args.hold_class),
        expires_at=moment(args.expires, fleet.now) if args.expires else None,
        drain=Drain(
            policy=DrainPolicy(args.policy.capitalize()),
            deadline=args.deadline,
            at_deadline=AtDeadline(args.at_deadline.capitalize()) if args.at_deadline else AtDeadline.KEEP,
        ),
    )
    namespace = next((c.namespace for c in fleet.clusters if c.name == cluster), "")
    if not namespace:
        raise BadInput([f"cluster {cluster!r}: its namespace is not known; give the settings with --config"])
    proposed = name_for(selected[0].name if len(selected) == 1 else "", args.reason)
    names = [w.name for w in selected]
    return Order(namespace=namespace, name=args.name or proposed, named=bool(args.name), spec=spec, selected=names)


def moment(text: str, now: datetime) -> datetime:
    """A time to come: `2h` from now, or RFC 3339 with a zone.

    Raises:
        BadInput: it cannot be read, or is past.
    """
    try:
        at = now + timedelta(seconds=seconds_of(text))
    except (ValueError, OverflowError):
        try:
            at = datetime.fromisoformat(text)
        except ValueError:
            at = datetime.min  # noqa: DTZ901  has no zone, so it is refused below
    if at.tzinfo is None or at <= now:
        raise BadInput([f"--expires {choose.quoted(text)}: want a time to come, as 2h or 2026-12-01T06:00:00Z"])
    return at.replace(microsecond=0)


def faults_of_text(field: str, text: str) -> list[str]:
    """What is wrong with a reason."""
    if len(text) > MAX_REASON:
        return [f"{field}: has {len(text)} characters; at most {MAX_REASON} are allowed"]
    if not text.strip():
        return [f"{field}: is empty; say why, in at most {MAX_REASON} characters"]
    if not text.isprintable():
        return [f"{field} {choose.quoted(text)}: has control or invisible characters; want one line of plain text"]
    return []


def name_for(worker: str, reason: str) -> str:
    """A name for people, from the worker and the first words of the reason: `gpu-7-dimm-b2-swap`."""
    words = re.sub(r"[^a-z0-9]+", "-", f"{worker} {' '.join(reason.split()[:4])}".lower()).strip("-")
    return words[: MAX_NAME - 3].strip("-") or "hold"


def faults(args: Namespace, now: datetime) -> list[str]:
    """What is wrong with the arguments whatever the fleet is: each the option, the value, what is allowed."""
    found = faults_of_text("--reason", args.reason)
    given = [way for way in _WAYS if getattr(args, way) not in (None, [])]
    if len(given) != 1:
        names = ", ".join(way if way == "workers" else f"--{way}" for way in given) or "nothing"
        found.append(
            f"which workers: {names} given; want exactly one of WORKER, --hostlist, --nodes, --selector, --partitions"
        )
    if args.name is not None and (len(args.name) > MAX_NAME or not _NAME.fullmatch(args.name)):
        found.append(f"--name {choose.quoted(args.name)}: want at most {MAX_NAME} small letters, digits and dashes")
    if args.at_deadline and not args.deadline:
        found.append(f"--at-deadline {args.at_deadline}: needs a --deadline")
    if args.deadline and args.policy != "wait":
        found.append(f"--deadline {choose.quoted(args.deadline)}: only --policy wait waits; {args.policy} acts at once")
    if args.deadline is not None:
        found += _faults_of_deadline(args.deadline)
    if args.expires is not None:
        try:
            moment(args.expires, now)
        except BadInput as e:
            found.extend(e.faults)
    return found


def _faults_of_deadline(text: str) -> list[str]:
    try:
        fits = seconds_of(text) > 0 and len(text) <= 16
    except ValueError as e:
        return [f"--deadline: {one_line(str(e), limit=200)}"]
    return [] if fits else [f"--deadline {choose.quoted(text)}: want more than 0 seconds, in at most 16 characters"]


def _selector(args: Namespace, fleet: Fleet, clusters: Collection[str]) -> tuple[str, WorkerSelector]:
    """The cluster and the selector of the Hold."""
    if args.workers:
        keys = choose.workers(fleet, args.workers, clusters)
        homes = sorted({cluster for cluster, _ in keys})
        if len(homes) > 1:
            raise BadInput(
                [f"workers: they are of clusters {', '.join(homes)}; a Hold is for one, so hold them one by one"]
            )
        names = [name for _, name in keys]
        short = len(names) <= MAX_NAMES
        return homes[0], WorkerSelector(names=names) if short else WorkerSelector(hostlist=hostlist.compress(names))
    if len(clusters) != 1:
        raise BadInput([f"--cluster: is needed, there are {', '.join(clusters) or 'none'}"])
    cluster = next(iter(clusters))
    if args.hostlist is not None:
        choose.workers(fleet, [f"{cluster}/{name}" for name in choose.expanded("--hostlist", args.hostlist)], clusters)
        return cluster, WorkerSelector(hostlist=args.hostlist)
    if args.nodes:
        return cluster, WorkerSelector(nodes=list(dict.fromkeys(args.nodes)))
    if args.partitions:
        return cluster, WorkerSelector(partitions=list(dict.fromkeys(args.partitions)))
    pairs = [_PAIR.fullmatch(part) for part in args.selector.split(",")]
    labels = {m[1]: m[2] for m in pairs if m}
    if len(labels) != len(pairs):
        raise BadInput(
            [f"--selector {choose.quoted(args.selector)}: want key=value, with commas between, each key once"]
        )
    return cluster, WorkerSelector(selector=LabelSelector(match_labels=labels))


def _check(args: Namespace, wanted: WorkerSelector, workers: Collection[Worker], selected: Collection[Worker]) -> None:
    """Refuses what selects nobody, or by a slip everybody."""
    known = {
        "--nodes": {w.node_name for w in workers},
        "--partitions": {p for w in workers if w.slurm for p in w.slurm.partitions},
    }
    for option, names in (("--nodes", wanted.nodes), ("--partitions", wanted.partitions)):
        for name in names or ():
            if name not in known[option]:
                near = choose.among(name, sorted(known[option] - {""}))
                raise Stop(Exit.NOT_FOUND, f"{option} {choose.quoted(name)}: no worker is there; {near}")
    if not selected:
        raise Stop(Exit.NOT_FOUND, f"--selector {choose.quoted(args.selector)}: no worker's pod has these labels")
    if wanted.selector and len(selected) == len(workers) > 1:
        raise BadInput([f"--selector {choose.quoted(args.selector)}: takes every worker; name them if that is meant"])
