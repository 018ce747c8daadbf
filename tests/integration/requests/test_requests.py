"""Requests over a real NATS with users: asked, refused, carried out, answered; also across crashes and repeats."""

import asyncio
from contextlib import aclosing, suppress

import msgspec
import pytest

from lockstep.bus.acks import Acks
from lockstep.bus.ask import NotPermitted, answers, ask, pack_request
from lockstep.bus.connection import Connection
from lockstep.bus.envelope import MSG_ID
from lockstep.contracts.events import RequestAccepted, RequestDone, RequestEvent, RequestProgressed, RequestRefused
from lockstep.contracts.requests import CancelDrainRequest, ReleaseRequest, Request
from tests.fakes.nats import NatsWithUsers
from tests.integration.requests.requesting import a_hold, empty, said, told, user
from tests.integration.whole import Site

pytestmark = pytest.mark.asyncio(loop_scope="module")


def holds(site: Site) -> dict[str, str]:
    """The Holds that Kubernetes has, and who asked for each."""
    found = {name: obj for (resource, _, name), obj in site.kube._objects.items() if resource == "holds"}
    return {name: o["metadata"].get("annotations", {}).get("lockstep.sh/requested-by", "") for name, o in found.items()}


async def test_a_hold_is_asked_for_drained_shown_and_released(site: Site, server: NatsWithUsers) -> None:
    """Each answer says whose request it is and what came of it; the owner is shown everywhere."""
    async with user(server, "ops") as ops:
        hold = a_hold("life-1", "gpu-1", name="dimm")
        await ask(ops, hold, "ops")
        events = await told(ops, hold)
        accepted, *between, done = events
        assert isinstance(accepted, RequestAccepted)
        assert (accepted.workers, accepted.hold, accepted.by, accepted.cause_id) == (1, "slurm/dimm", "ops", "life-1")
        assert {type(event) for event in between} == {RequestProgressed}
        assert isinstance(done, RequestDone)
        assert (done.outcome, done.selected, done.drained) == ("drained", 1, 1)
        seen = await site.until("gpu-1", progress="drained")
        assert (seen["words"], seen["holds"][0]["owner"]) == ("lockstep: nats:ops: DIMM B2", "nats:ops")
        assert holds(site)["dimm"] == "ops"

        release = ReleaseRequest(id="life-2", cluster="main", hold="dimm")
        await ask(ops, release, "ops")
        assert said(await told(ops, release)) == ["accepted", "released"]
    await site.until("gpu-1", in_service=True)
    assert "dimm" not in holds(site)


async def test_nats_itself_refuses_who_may_not_publish(
    site: Site, server: NatsWithUsers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader asks for nothing, a requester only under its own name; the server writes that in its log.

    Nobody waits for an answer that will not come.
    """
    monkeypatch.setattr("lockstep.bus.ask.ASK_WITHIN_S", 600)
    async with user(server, "guest") as guest:
        with pytest.raises(NotPermitted, match=r"(?i)permissions violation"):
            await ask(guest, a_hold("g-1", "gpu-2"), "guest")
    async with user(server, "ops") as ops:
        with pytest.raises(NotPermitted, match=r"(?i)permissions violation"):
            await ask(ops, a_hold("g-2", "gpu-2"), "lockstep")
    for name, subject in (("guest", "guest.main.g-1"), ("ops", "lockstep.main.g-2")):
        assert f'"$G/user:{name}" - Publish Violation - Subject "lockstep.request.hold.v1.{subject}"' in server.log
    assert (await site.workers())["gpu-2"]["in_service"]


async def test_who_may_publish_and_has_no_right_is_refused_by_us(site: Site, server: NatsWithUsers) -> None:
    """The refusal is an event; nothing is made. So is every other fault, and the reader sees all of it."""
    cancel = CancelDrainRequest(id="no-1", cluster="main", worker="gpu-2")
    wrong = a_hold("no-2", "gpu-99")
    theirs = ReleaseRequest(id="no-3", cluster="main", hold="anas")
    site.kube.put("holds", "anas", "slurm", spec={"workers": {"names": ["gpu-3"]}, "reason": "mine"})
    async with user(server, "lockstep") as service, user(server, "ops") as ops:
        await ask(service, cancel, "lockstep")
        await ask(ops, wrong, "ops")
        await ask(ops, theirs, "ops")
    async with user(server, "guest") as guest:
        for request, by, code, fault in (
            (cancel, "lockstep", "denied", "user 'lockstep' may not ask for cancel-drain on cluster 'main'"),
            (wrong, "ops", "not-found", "spec.workers.names: gpu-99: no worker"),
            (theirs, "ops", "denied", "hold: 'anas' is of somebody, not of 'ops'; to insist, set override"),
        ):
            [refused] = await told(guest, request, by)
            assert isinstance(refused, RequestRefused)
            assert (refused.code, fault in refused.fault) == (code, True), refused.fault
    assert (await site.workers())["gpu-2"]["in_service"]
    assert "anas" in holds(site)
    site.kube.remove("holds", "anas", "slurm")
    await site.until("gpu-3", in_service=True)


async def test_an_override_is_recorded_and_ends_anothers_hold(site: Site, server: NatsWithUsers) -> None:
    """With the right, the wish and the reason."""
    site.kube.put("holds", "eves", "slurm", spec={"workers": {"names": ["gpu-4"]}, "reason": "mine"})
    await site.until("gpu-4", in_service=False)
    release = ReleaseRequest(id="over-1", cluster="main", hold="eves", override=True, why="needed now")
    async with user(server, "lockstep") as boss:
        await ask(boss, release, "lockstep")
        assert said(await told(boss, release, "lockstep")) == ["accepted", "released"]
    recorded = (await site.run("events", "--kind", "hold.overridden", "--since", "5m")).out
    assert "main/gpu-4 overridden by nats:lockstep: hold/slurm/eves of" in recorded
    assert ": mine: needed now" in recorded
    await site.until("gpu-4", in_service=True)


async def test_the_same_id_twice_is_one_request_also_much_later_and_after_a_crash(
    site: Site, server: NatsWithUsers
) -> None:
    """The stream forgets ids after two minutes; the answers are remembered."""
    hold = a_hold("twice-1", "gpu-5")
    async with user(server, "ops") as ops:
        await ask(ops, hold, "ops")
        await ask(ops, hold, "ops")
        first = await told(ops, hold)
        await again(ops, hold, "later")
        await site.kill()
        await again(ops, hold, "while nobody was there")
        await site.start()
        await empty(server)
        assert [name for name, by in holds(site).items() if name.startswith("req-")] == [first[0].hold.split("/")[1]]  # type: ignore[attr-defined]
        repeated = await every(ops, hold)
        assert {event.id for event in repeated} == {event.id for event in first}
        assert {msgspec.json.encode(e) for e in repeated} == {msgspec.json.encode(e) for e in first}

        release = ReleaseRequest(id="twice-2", cluster="main", hold=first[0].hold.split("/")[1])  # type: ignore[attr-defined]
        await ask(ops, release, "ops")
        assert said(await told(ops, release)) == ["accepted", "released"]
        await again(ops, release, "later")
        await empty(server)
        assert {e.id for e in await every(ops, release)} == {e.id for e in await told(ops, release)}
    await site.until("gpu-5", in_service=True)


async def test_a_crash_in_the_middle_is_made_good(site: Site, server: NatsWithUsers) -> None:
    """Killed while a job keeps the worker busy: the request goes on where it was, until the worker is drained."""
    job = site.slurm.start_job(["gpu-6"])
    await site.until("gpu-6", phase="busy")
    hold = a_hold("crash-1", "gpu-6")
    async with user(server, "ops") as ops:
        await ask(ops, hold, "ops")
        assert said(await told(ops, hold, until=RequestAccepted)) == ["accepted"]
        await site.kill()
        site.slurm.nodes["gpu-6"].base = "IDLE"
        del site.slurm.jobs[job]
        site.slurm.touch("nodes")
        site.slurm.touch("jobs")
        await site.start()
        events = await told(ops, hold)
        assert (said(events)[0], said(events)[-1]) == ("accepted", "drained")
        cancel = CancelDrainRequest(id="crash-2", cluster="main", worker="gpu-6")
        await ask(ops, cancel, "ops")
        assert said(await told(ops, cancel)) == ["accepted", "cancelled"]
    await site.until("gpu-6", in_service=True)


async def test_a_hold_that_somebody_ends_first_is_a_request_that_was_cancelled(
    site: Site, server: NatsWithUsers
) -> None:
    """Whoever waits for `request.done` does not wait for ever."""
    job = site.slurm.start_job(["gpu-3"])
    await site.until("gpu-3", phase="busy")
    hold = a_hold("ended-1", "gpu-3", name="ended")
    async with user(server, "ops") as ops:
        await ask(ops, hold, "ops")
        await told(ops, hold, until=RequestProgressed)
        site.kube.remove("holds", "ended", "slurm")
        assert said(await told(ops, hold))[-1] == "cancelled"
    site.slurm.nodes["gpu-3"].base = "IDLE"
    del site.slurm.jobs[job]
    site.slurm.touch("nodes")
    site.slurm.touch("jobs")


async def test_a_name_that_is_taken_is_refused_and_names_it(site: Site, server: NatsWithUsers) -> None:
    """Another request's Hold is not taken for this one's."""
    site.kube.put("holds", "taken", "slurm", spec={"workers": {"names": ["gpu-2"]}, "reason": "mine"})
    hold = a_hold("name-1", "gpu-2", name="taken")
    async with user(server, "ops") as ops:
        await ask(ops, hold, "ops")
        [refused] = await told(ops, hold)
    assert isinstance(refused, RequestRefused)
    assert refused.fault == "name: 'taken': there is a Hold of that name in namespace slurm, not of this request"
    site.kube.remove("holds", "taken", "slurm")


async def again(connection: Connection, request: Request, mark: str) -> None:
    """The same request again, so much later that the stream takes it for another message."""
    message = pack_request(request, "ops")
    [answer] = await Acks(connection.client).send([message._replace(headers={MSG_ID: mark + request.identity})], 5.0)
    assert isinstance(answer, int)


async def every(connection: Connection, request: Request) -> list[RequestEvent]:
    """All answers that there are, when there are no more."""
    found: list[RequestEvent] = []
    with suppress(TimeoutError):
        async with asyncio.timeout(1.5), aclosing(answers(connection, request, "ops")) as items:  # type: ignore[type-var]
            async for event in items:
                found.append(event)  # noqa: PERF401  kept also when the time is over
    return found
