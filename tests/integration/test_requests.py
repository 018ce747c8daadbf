"""Requests over a real NATS with users: asked, refused, carried out, answered; also across crashes and repeats."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from lockstep.base.errors import Retry
from lockstep.bus.acks import Acks
from lockstep.bus.ask import NotPermitted, answers, ask, pack_request
from lockstep.bus.connection import Connection, connect
from lockstep.bus.dead import DeadLetters
from lockstep.bus.envelope import MSG_ID, Message
from lockstep.cli.exits import Exit
from lockstep.contracts.events import (
    RequestAccepted,
    RequestDone,
    RequestEvent,
    RequestProgressed,
    RequestRefused,
)
from lockstep.contracts.hold import HoldSpec, WorkerSelector
from lockstep.contracts.requests import CancelDrainRequest, HoldRequest, ReleaseRequest, Request
from lockstep.contracts.subjects import REQUESTS, request_subject
from tests.fakes.nats import NatsWithUsers, nats_with_users
from tests.integration.whole import Site, whole

pytestmark = pytest.mark.asyncio(loop_scope="module")

ALLOW = [
    {"user": "ops", "verbs": ["hold", "release", "cancel-drain"], "clusters": ["main"]},
    {"user": "lockstep", "verbs": ["hold", "release"], "clusters": ["*"], "override": True},
]


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="server")
async def _server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[NatsWithUsers]:
    async with nats_with_users(tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="site")
async def _site(server: NatsWithUsers, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    ours = server.of("lockstep")
    nats = {"url": ours.url, "user": ours.user, "password_file": ours.password_file}
    async with whole(tmp_path_factory.mktemp("site"), nats=nats, requests={"allow": ALLOW}) as site:
        yield site


@asynccontextmanager
async def user(server: NatsWithUsers, name: str) -> AsyncIterator[Connection]:
    """A connection of this user; it may not make streams, so nobody tries."""
    address = server.of(name)
    connection = await connect(address.url, name=name, user=address.user, password_file=address.password_file)
    try:
        yield connection
    finally:
        await connection.close()


async def told(
    connection: Connection, request: Request, by: str = "ops", *, until: type[RequestEvent] = RequestDone
) -> list[RequestEvent]:
    """All answers up to the first of this kind, or to a refusal."""
    found: list[RequestEvent] = []
    async with asyncio.timeout(30), aclosing(answers(connection, request, by)) as items:  # type: ignore[type-var]
        async for event in items:
            found.append(event)
            if isinstance(event, until | RequestRefused):
                return found
    raise AssertionError


def a_hold(ident: str, worker: str, **more: Any) -> HoldRequest:
    """A request for a hold on one worker."""
    spec = HoldSpec(workers=WorkerSelector(names=[worker]), reason="DIMM B2", **more.pop("spec", {}))
    return HoldRequest(id=ident, cluster="main", spec=spec, **more)


def said(events: list[RequestEvent]) -> list[str]:
    """The answers in short."""
    return [
        event.outcome if isinstance(event, RequestDone) else type(event).__name__.removeprefix("Request").lower()
        for event in events
    ]


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


async def test_what_nobody_can_read_is_kept_and_stops_nobody(site: Site, server: NatsWithUsers) -> None:
    """A body that is no JSON is refused and kept; a subject that is none of ours is kept."""
    good = a_hold("after-1", "gpu-99")
    broken = a_hold("broken-1", "gpu-1")
    async with user(server, "ops") as ops:
        subject = request_subject(broken, "ops")
        bad = Message(subject, {MSG_ID: "b"}, b"{no json")
        odd = Message("lockstep.request.reboot.v1.ops.main.x", {MSG_ID: "o"}, b"{}")
        assert all(isinstance(answer, int) for answer in await Acks(ops.client).send([bad, odd], 5.0))
        await ask(ops, good, "ops")
        assert said(await told(ops, good)) == ["refused"]
        [refused] = await told(ops, broken)
    assert isinstance(refused, RequestRefused)
    assert refused.fault.startswith("body: is no JSON")
    await empty(server)
    async with user(server, "lockstep") as service:
        letters = {letter.subject: letter for letter in await DeadLetters(service).all()}
    assert set(letters) >= {subject, odd.subject}
    assert letters[subject].why == refused.fault
    assert letters[odd.subject].why.startswith("subject: want lockstep.request.<verb>")


async def test_the_command_asks_over_nats_where_there_is_no_kubeconfig(site: Site, server: NatsWithUsers) -> None:
    """Held, waited for, and released by the name that NATS vouches for; the id is printed, and may be given again."""
    env = await nobody_on_kubernetes(site, server, "ops")
    words = ("hold", "gpu-2", "--reason", "fan", "--name", "fan", "--request-id", "cli-1", "--wait")
    held = await site.run(*words, **env)
    assert held.out.splitlines()[:2] == ["request cli-1 of ops", "accepted: slurm/fan, 1 worker"]
    assert held.out.splitlines()[-1] == "done: drained"
    assert (await site.run(*words, **env)).out.splitlines()[-1] == "done: drained"
    assert (await site.until("gpu-2", progress="drained"))["holds"][0]["owner"] == "nats:ops"

    released = await site.run("release", "gpu-2", "-o", "json", **env)
    first, *answers_ = [json.loads(line) for line in released.out.splitlines()]
    assert (first["by"], first["verb"]) == ("ops", "release")
    assert [event["type"] for event in answers_] == ["request.accepted.v1", "request.done.v1"]
    await site.until("gpu-2", in_service=True)

    await site.run("hold", "gpu-2", "--reason", "fan", **env)
    await site.until("gpu-2", in_service=False)
    cancelled = await site.run("cancel-drain", "gpu-2", **env)
    assert cancelled.out.splitlines()[-1] == "done: cancelled"
    await site.until("gpu-2", in_service=True)


async def test_the_command_ends_with_the_code_of_the_refusal(site: Site, server: NatsWithUsers) -> None:
    """Denied by NATS, by our rights, or by what was asked for; nothing is changed."""
    ops = await nobody_on_kubernetes(site, server, "ops")
    guest = await nobody_on_kubernetes(site, server, "guest")
    hold = ("hold", "gpu-4", "--reason", "x")
    by_nats = await site.run(*hold, code=Exit.DENIED, **guest)
    assert "NATS does not let you ask as 'guest'" in by_nats.err
    other = await site.run(*hold, "--nats-user", "lockstep", code=Exit.DENIED, **ops)
    assert "NATS does not let you ask as 'lockstep'" in other.err
    site.kube.put("holds", "theirs", "slurm", spec={"workers": {"names": ["gpu-4"]}, "reason": "mine"})
    await site.until("gpu-4", in_service=False)
    denied = await site.run("release", "theirs", "--override", "--why", "now", code=Exit.DENIED, **ops)
    assert "refused: override: user 'ops' has no such right on cluster 'main'" in denied.err
    lost = await site.run("cancel-drain", "gpu-4", code=Exit.DENIED, **ops)
    assert "is kept out by hold/slurm/theirs" in lost.err
    site.kube.remove("holds", "theirs", "slurm")
    await site.until("gpu-4", in_service=True)


async def test_dead_letters_are_listed_shown_and_sent_again(site: Site, server: NatsWithUsers) -> None:
    """By the command, by who looks after them; what is sent again is handled anew."""
    env = await nobody_on_kubernetes(site, server, "admin")
    hold = a_hold("dead-1", "gpu-98")
    subject = request_subject(hold, "ops")
    async with user(server, "lockstep") as service:
        body = msgspec.json.encode(hold)
        await DeadLetters(service).bury("drain", subject, {MSG_ID: "d"}, body, why="a bug", attempts=5, origin=99)
        listed = json.loads((await site.run("dead", "list", "-o", "json", **env)).out)["items"]
        mine = next(item for item in listed if item["subject"] == subject)
        assert (mine["reader"], mine["why"], mine["attempts"]) == ("drain", "a bug", 5)
        number = str(mine["sequence"])
        assert "why: a bug" in (await site.run("dead", "show", number, **env)).out
        assert f"{number}: sent again: {subject}" in (await site.run("dead", "replay", number, **env)).out
        [refused] = await told(service, hold)
        assert isinstance(refused, RequestRefused)
    await site.run("dead", "show", number, code=Exit.NOT_FOUND, **env)
    assert "SUBJECT" in (await site.run("dead", "list", **env)).out


async def test_doctor_asks_for_the_rights_that_requests_need(site: Site) -> None:
    """Where the settings let somebody ask; the verb that only the policy knows is one. Dead letters are told."""
    found = json.loads((await site.run("doctor", "-o", "json", code=Exit.NO)).out)["items"]
    lacks = [check["found"] for check in found if check["area"] == "rights" and "for requests" in check["found"]]
    assert len(lacks) == 1
    assert "delegate holds.lockstep.sh in slurm" in lacks[0]
    assert any("there are dead letters" in check["found"] for check in found)


async def nobody_on_kubernetes(site: Site, server: NatsWithUsers, name: str) -> dict[str, str]:
    """The environment of somebody who is known to NATS only."""
    settings = json.loads((site.folder / "lockstep.yaml").read_text())
    ours = server.of(name)
    settings["nats"] = {"url": ours.url, "user": ours.user, "password_file": ours.password_file}
    del settings["kube"]
    (site.folder / f"{name}.yaml").write_text(json.dumps(settings))
    return {"LOCKSTEP_CONFIG": str(site.folder / f"{name}.yaml"), "HOME": str(site.folder)}


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


async def empty(server: NatsWithUsers) -> None:
    """Waits until the queue has nothing more."""
    async with user(server, "lockstep") as service, asyncio.timeout(30):
        while True:
            try:
                if (await service.call(f"STREAM.INFO.{REQUESTS.name}"))["state"]["messages"] == 0:
                    return
            except Retry:
                pass
            await asyncio.sleep(0.05)
