"""Requests are carried out once, whatever dies in the middle: every step fails in turn, and all is tried again anew."""

from collections.abc import Awaitable, Callable, Mapping
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from lockstep.base import clock
from lockstep.base.errors import Reject, Retry
from lockstep.bus.dead import REPLAYED
from lockstep.bus.queue import Delivered
from lockstep.contracts.events import Event, HoldOverridden, RequestAccepted, RequestDone, RequestRefused
from lockstep.contracts.hold import HoldSpec, WorkerSelector
from lockstep.contracts.requests import CancelDrainRequest, HoldRequest, ReleaseRequest, Request
from lockstep.contracts.subjects import request_subject
from lockstep.drain.requests import Requests
from lockstep.kube import keys
from lockstep.kube.errors import AlreadyExists, Conflict, Invalid
from lockstep.kube.wire import Hold, ManagedMeta
from lockstep.runtime.ports import Ports
from lockstep.runtime.settings import ClusterSettings, RequestRight, RequestSettings, Settings
from tests.builders import a_node, a_pod, a_slurm_node, a_table

SPEC = HoldSpec(workers=WorkerSelector(names=["gpu-7"]), reason="DIMM")
HOLD = HoldRequest(id="r-1", cluster="main", name="dimm", spec=SPEC)
RELEASE = ReleaseRequest(id="r-2", cluster="main", hold="dimm", override=True, why="now")
CANCEL = CancelDrainRequest(id="r-3", cluster="main", worker="gpu-7")
OPS = RequestRight(user="ops", verbs=["hold", "release", "cancel-drain"], clusters=["main"], override=True)


class World:
    """Kubernetes and the stream of events; the process that writes to them dies at a step of the test's choice."""

    def __init__(self, *holds: Hold) -> None:
        self.holds = {hold.metadata.name: hold for hold in holds}
        self.events: list[Event] = []
        self.deleted: list[str] = []
        self.steps = 0
        self.dies_before = 0
        self.dies_after = 0
        self.refuses = ""
        self.leads = True

    async def step(self, work: Callable[[], Any]) -> Any:
        """One write; the process may die before it, or after it and before it knows."""
        self.steps += 1
        if self.steps == self.dies_before:
            raise Retry("died before")
        done = work()
        if self.steps == self.dies_after:
            raise Retry("died after")
        return done

    async def get_hold(self, _namespace: str, name: str) -> Hold | None:
        """As it is now."""
        return self.holds.get(name)

    async def list_holds(self, *, namespace: str | None = None) -> list[Hold]:
        """All."""
        return list(self.holds.values())

    async def create_hold(
        self, namespace: str, name: str, spec: HoldSpec, *, annotations: Mapping[str, str] | None = None
    ) -> Hold:
        """A new one."""
        if self.refuses:
            raise Invalid(self.refuses)

        def create() -> Hold:
            if name in self.holds:
                raise AlreadyExists(name)
            meta = ManagedMeta(name=name, namespace=namespace, uid=f"u-{name}", annotations=dict(annotations or {}))
            self.holds[name] = Hold(metadata=meta, spec=spec)
            return self.holds[name]

        return cast("Hold", await self.step(create))

    async def delete_hold(self, _namespace: str, name: str, *, uid: str = "") -> bool:
        """Gone."""

        def delete() -> bool:
            if name not in self.holds:
                return False
            if self.holds[name].metadata.uid != uid:
                raise Conflict(name)
            self.deleted.append(name)
            del self.holds[name]
            return True

        return bool(await self.step(delete))

    async def publish(self, events: Any) -> None:
        """The stream keeps each id once."""
        known = {event.id for event in self.events}
        await self.step(lambda: self.events.extend(e for e in events if e.id not in known))

    def told(self) -> list[str]:
        """The kinds of all events."""
        return [type(event).__name__ for event in self.events]


def a_process(world: World, *allow: RequestRight) -> Requests:
    """The service as it starts: it knows what the stream of events has."""
    table = a_table(a_slurm_node(name="gpu-7"), a_slurm_node(name="gpu-8"), a_pod(), a_node())
    cluster = ClusterSettings(name="main", namespace="slurm", url="http://a", key_file="/k")
    settings = Settings(clusters=[cluster], requests=RequestSettings(allow=list(allow or (OPS,))))
    log = SimpleNamespace(info=lambda *_, **__: None, debug=lambda *_, **__: None)
    ports = SimpleNamespace(
        settings=settings,
        kube=world,
        bus=SimpleNamespace(events=world.publish),
        mirror=SimpleNamespace(table=table),
        log=log,
        clock=cast("ModuleType", clock),
        may_act=lambda: world.leads,
    )
    process = Requests(cast("Ports", ports))
    for event in world.events:
        process._ledger.note(event)
    return process


def delivered(request: Request, attempt: int = 1, **headers: str) -> Delivered:
    """The request as it comes out of the queue."""
    body = msgspec.json.encode(request)
    return Delivered(request_subject(request, "ops"), body, headers, 1, None, attempt, attempt == 5)


async def until_done(world: World, request: Request) -> None:
    """Delivered until a process gets to the end; each is a new one."""
    for attempt in range(1, 5):
        try:
            await a_process(world)._take(delivered(request, attempt))
        except Retry:
            continue
        return
    raise AssertionError(world.told())


def theirs() -> Hold:
    """A Hold that somebody else asked for."""
    notes = {keys.REQUESTED_BY: "eve", keys.REQUEST: "e-1"}
    meta = ManagedMeta(name="dimm", namespace="slurm", uid="u-eve", annotations=notes)
    return Hold(metadata=meta, spec=SPEC)


def ours(name: str) -> Hold:
    """A Hold that ops asked for."""
    notes = {keys.REQUESTED_BY: "ops", keys.REQUEST: name}
    return Hold(metadata=ManagedMeta(name=name, namespace="slurm", uid=f"u-{name}", annotations=notes), spec=SPEC)


Deaths = tuple[int, int]
DEATHS: list[Deaths] = [(0, 0), *((n, 0) for n in range(1, 6)), *((0, n) for n in range(1, 6))]


@pytest.mark.parametrize("deaths", DEATHS)
async def test_a_hold_is_made_and_accepted_once(deaths: Deaths) -> None:
    """Whichever step the process dies before or after; and once more when all is done."""
    world = World()
    world.dies_before, world.dies_after = deaths
    await until_done(world, HOLD)
    await until_done(world, HOLD)
    assert list(world.holds) == ["dimm"]
    [accepted] = world.events
    assert isinstance(accepted, RequestAccepted)
    assert (accepted.workers, accepted.hold, accepted.cause_id) == (1, "slurm/dimm", "r-1")
    assert world.holds["dimm"].requested_by == "ops"


@pytest.mark.parametrize("deaths", DEATHS)
async def test_an_override_is_recorded_and_carried_out_once(deaths: Deaths) -> None:
    """The record is there before the Hold goes; a crash never leaves one without the other for good."""
    world = World(theirs())
    world.dies_before, world.dies_after = deaths
    await until_done(world, RELEASE)
    await until_done(world, RELEASE)
    assert world.deleted == ["dimm"]
    assert world.told() == ["RequestAccepted", "HoldOverridden", "RequestDone"]
    recorded = next(event for event in world.events if isinstance(event, HoldOverridden))
    assert (recorded.by, recorded.hold.owner, recorded.why, recorded.cause_id) == ("nats:ops", "nats:eve", "now", "r-2")


@pytest.mark.parametrize("deaths", DEATHS)
async def test_all_own_holds_on_a_worker_are_ended_however_often_it_takes(deaths: Deaths) -> None:
    """Half of them may be gone when the process comes back."""
    elsewhere = msgspec.structs.replace(SPEC, workers=WorkerSelector(names=["gpu-8"]))
    world = World(ours("a"), ours("b"), msgspec.structs.replace(ours("c"), spec=elsewhere))
    world.dies_before, world.dies_after = deaths
    await until_done(world, CANCEL)
    await until_done(world, CANCEL)
    assert list(world.holds) == ["c"]
    assert sorted(world.deleted) == ["a", "b"]
    assert world.told() == ["RequestAccepted", "RequestDone"]
    assert cast("RequestDone", world.events[-1]).outcome == "cancelled"


async def test_what_kubernetes_refuses_is_refused_with_its_words() -> None:
    """The schema of Holds knows more than we do."""
    world = World()
    world.refuses = "spec.reason: want one line"
    await until_done(world, HOLD)
    [refused] = world.events
    assert isinstance(refused, RequestRefused)
    assert (refused.code, refused.fault) == ("invalid", "Kubernetes refuses it: spec.reason: want one line")


async def test_the_last_try_that_fails_is_an_answer_too_and_a_replay_is_a_new_chance() -> None:
    """Nobody waits for ever; an administrator who sends the dead letter again is not told the same once more."""
    world = World()
    world.dies_before = 1
    with pytest.raises(Retry, match="died before"):
        await a_process(world)._take(delivered(HOLD, 5))
    [failed] = world.events
    assert isinstance(failed, RequestRefused)
    assert failed.code == "failed"
    assert "was tried 5 times and set aside among the dead letters: Retry: died before" in failed.fault
    await a_process(world)._take(delivered(HOLD))
    assert world.told() == ["RequestRefused"]
    await a_process(world)._take(delivered(HOLD, **{REPLAYED: "1"}))
    assert world.told() == ["RequestRefused", "RequestAccepted"]
    assert isinstance(world.events[-1], RequestAccepted)


async def test_who_no_longer_leads_does_nothing_and_buries_nothing() -> None:
    """The message is for the one who leads now."""
    world = World()
    world.leads = False
    with pytest.raises(Retry):
        await a_process(world)._take(delivered(HOLD))

    async def refused(_: Any) -> None:
        world.leads = False
        raise Reject("nothing is published: the lease may have run out")

    world.leads = True
    process = a_process(world)
    process._ports.bus.events = cast("Callable[..., Awaitable[None]]", refused)  # type: ignore[method-assign]
    with pytest.raises(Retry, match="the lease may have run out"):
        await process._take(delivered(HOLD))


async def test_nothing_is_decided_before_both_systems_were_read() -> None:
    """A worker that is not known yet is not one that does not exist."""
    world = World()
    process = a_process(world)
    process._table = a_table(beats=[])
    with pytest.raises(Retry, match="were not read yet"):
        await process._take(delivered(HOLD))
    assert (world.events, world.holds) == ([], {})
