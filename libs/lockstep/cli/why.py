"""`lockstep why WORKER`: what keeps it out of service, how far its drain is, and what brings it back."""

from argparse import Namespace
from collections.abc import Iterator
from shlex import quote

import msgspec

from lockstep.cli import choose
from lockstep.cli.connect import Reach
from lockstep.cli.exits import Exit
from lockstep.cli.output import Out, ago, document, styled
from lockstep.cli.sources import read_fleet
from lockstep.cli.view import Fleet, WorkerView, worker_view
from lockstep.contracts.common import Aware
from lockstep.contracts.facts import HoldView
from lockstep.contracts.hold import DrainPolicy
from lockstep.contracts.requests import user_of
from lockstep.fleet.pairing import pair
from lockstep.fleet.worker import Worker
from lockstep.kube import keys
from lockstep.runtime.telemetry import trace_link


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How one hold is ended by those whose it is."""

    id: str
    by: str


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that `why` knows."""

    worker: WorkerView
    endings: list[Ending]
    sources: dict[str, Aware | None]
    """When each source was last known to be complete."""
    trace: str = ""
    """Where the newest trace about it can be looked at; empty where none is known, or `tracing.ui` is not set."""


async def run(args: Namespace) -> int:
    """Reads the fleet and explains one worker."""
    out = Out()
    async with Reach.of(args) as reach:
        fleet = await read_fleet(reach, out)
    key = choose.worker(fleet, args.worker, choose.clusters(fleet, args.cluster))
    worker = pair(fleet.table, key, fleet.site)
    trace = trace_link(reach.settings, fleet.table.flows.newest(worker))
    answer = msgspec.structs.replace(explain(worker, fleet), trace=trace)
    if args.output == "text":
        for line in story(answer, fleet):
            out.line(line) if not line.startswith("#") else out.line(styled(line.removeprefix("#")))
    else:
        out.raw(document(answer, args.output))
    return Exit.OK


def explain(worker: Worker, fleet: Fleet) -> Answer:
    """What is known about a worker."""
    view = worker_view(worker, fleet)
    return Answer(
        worker=view,
        endings=[Ending(id=hold.id, by=ending(hold)) for hold in view.holds],
        sources={"kube": worker.kube_as_of, "slurm.node": worker.slurm_as_of, "slurm.job": worker.jobs_as_of},
    )


def ending(hold: HoldView) -> str:
    """The command that ends a hold, or what it waits for."""
    kind, _, rest = hold.id.partition("/")
    name, _, last = rest.partition("/")
    match kind:
        case "hold":
            user = user_of(hold.owner)
            return f"lockstep release {quote(last)}" + (f" --through nats --nats-user {quote(user)}" if user else "")
        case "cordon":
            return f"kubectl uncordon {quote(name)}"
        case "pod-cordon":
            return f"kubectl annotate pod -n {quote(name)} {quote(last)} {keys.POD_CORDON}-"
        case "pod":
            return "its pod being replaced"
        case "node":
            return "its Kubernetes node being made anew"
        case "condition":
            return f"the condition {last} clearing, or lockstep release {quote(hold.id)} --override"
        case "taint":
            return f"kubectl taint node {quote(name)} {quote(last)}-"
        case "label":
            return f"kubectl label node {quote(name)} {quote(last)}-"
        case "slurm":
            return f"scontrol update nodename={quote(name)} state=resume"
        case _:
            return f"the reservation's end, or scontrol delete reservationname={quote(name)}"


def story(answer: Answer, fleet: Fleet) -> Iterator[str]:
    """The answer in sentences. A line that begins with # is a heading."""
    view = answer.worker
    yield f"#{view.phase} {view.cluster}/{view.name}: {_headline(answer)}"
    yield f"  Slurm:      {view.state or 'does not know it'}" + (f", {view.words}" if view.words else "")
    yield f"  Kubernetes: {_kube(view)}"
    if view.holds:
        yield "Holds:"
        for hold, end in zip(view.holds, answer.endings, strict=True):
            yield from _hold(hold, end, fleet)
        yield "Drain:"
        yield from _drain(view, fleet)
    yield "Way back:"
    yield f"  {_way_back(view)}"
    if answer.trace:
        yield f"Trace: {answer.trace}"
    ages = (f"{name} {ago(at, fleet.now) + ' ago' if at else 'never'}" for name, at in answer.sources.items())
    yield f"Read: {', '.join(ages)}" + (
        " (Slurm only as the pod's conditions show it)" if fleet.source == "kubernetes" else ""
    )


def _headline(answer: Answer) -> str:
    view = answer.worker
    if view.holds:
        return f"out of service, {view.progress}, {len(view.holds)} hold{'s' if len(view.holds) > 1 else ''}"
    return "no hold stands, its drain is being lifted" if view.ours else "in service"


def _kube(view: WorkerView) -> str:
    if not view.pod:
        return f"no pod, node {view.node}" if view.node else "no pod"
    ready = "ready" if view.pod_ready else "not ready"
    guard = "protected from eviction" if view.protected else "may be evicted"
    return f"pod {view.namespace}/{view.pod} {ready}, node {view.node or 'none'}, {guard}"


def _hold(hold: HoldView, end: Ending, fleet: Fleet) -> Iterator[str]:
    since = f", for {ago(hold.since, fleet.now)}" if hold.since else ""
    until = f", until {hold.until.isoformat()} ({ago(hold.until, fleet.now)})" if hold.until else ""
    yield f"  {hold.id}: {hold.hold_class} by {hold.owner}{since}{until}"
    yield f"    {hold.reason}"
    if hold.policy is not DrainPolicy.WAIT or hold.deadline:
        then = f", then {hold.at_deadline}" if hold.policy is DrainPolicy.WAIT and hold.deadline else ""
        yield f"    jobs: {hold.policy}" + (
            f", deadline {ago(hold.deadline, fleet.now)}{then}" if hold.deadline else ""
        )
    yield f"    ends by: {end.by}"


def _drain(view: WorkerView, fleet: Fleet) -> Iterator[str]:
    yield f"  {view.progress}" + (f": {view.why_not}" if view.why_not else "")
    if view.deadline:
        yield f"  deadline: {view.deadline.isoformat()} ({ago(view.deadline, fleet.now)})"
    for job in view.waiting_for:
        ends = f", ends {ago(job.ends, fleet.now)}" if job.ends else ""
        yield f"  waits for job {job.id}: {job.state} of {job.user or 'unknown'} in {job.partition or 'unknown'}{ends}"


def _way_back(view: WorkerView) -> str:
    if view.holds:
        return f"when no hold stands; and {view.not_ready}" if view.not_ready else "when no hold stands"
    if view.ours:
        return f"waits: {view.not_ready}" if view.not_ready else "now: nothing else is waited for"
    return "it is in service"
