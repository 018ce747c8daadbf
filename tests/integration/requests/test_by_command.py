"""Requests by the command, from who is known to NATS only; and those that nobody can read: kept, shown, sent again."""

import json

import msgspec
import pytest

from lockstep.bus.acks import Acks
from lockstep.bus.ask import ask
from lockstep.bus.dead import DeadLetters
from lockstep.bus.envelope import MSG_ID, Message
from lockstep.cli.exits import Exit
from lockstep.contracts.events import RequestRefused
from lockstep.contracts.subjects import request_subject
from tests.fakes.nats import NatsWithUsers
from tests.integration.requests.requesting import a_hold, empty, said, told, user
from tests.integration.whole import Site

pytestmark = pytest.mark.asyncio(loop_scope="module")


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


async def test_doctor_asks_for_the_rights_that_requests_need(site: Site, server: NatsWithUsers) -> None:
    """Where the settings let somebody ask; the verb that only the policy knows is one. Dead letters are told."""
    hold = a_hold("dead-2", "gpu-98")
    async with user(server, "lockstep") as service:
        body = msgspec.json.encode(hold)
        subject = request_subject(hold, "ops")
        await DeadLetters(service).bury("drain", subject, {MSG_ID: "d2"}, body, why="a bug", attempts=5, origin=99)
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
