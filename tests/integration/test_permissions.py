"""Each service as its own user of a real nats-server: everything works, and nothing is asked that is not given."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import nats
import pytest

from lockstep.bus.ask import ask
from lockstep.bus.connection import Connection, NotAllowed, connect
from lockstep.bus.dead import DeadLetters
from lockstep.bus.events import subscribe_events
from lockstep.bus.streams import ensure
from lockstep.contracts.events import DrainSet, GapFound, RequestRefused
from lockstep.contracts.hold import HoldSpec, WorkerSelector
from lockstep.contracts.permissions import STREAM_MAKER, WRITES, permissions
from lockstep.contracts.requests import HoldRequest
from lockstep.contracts.subjects import EVENTS, FACTS, STREAMS
from lockstep.drain.main import SERVICE as DRAIN
from lockstep.forward.main import SERVICE as FORWARD
from lockstep.pod_watcher.main import SERVICE as POD_WATCHER
from lockstep.reconciler.main import SERVICE as RECONCILER
from lockstep.runtime.health import Health
from lockstep.runtime.process import Process
from lockstep.runtime.settings import ForwardSettings, RequestRight, RequestSettings
from lockstep.slurm_poller.main import SERVICE as SLURM_POLLER
from tests.fakes.nats import NatsWithUsers, handled, nats_with_users
from tests.integration.test_forward import Receiver
from tests.integration.test_gaps import Fleet, a_fleet, eventually, much_happens

SERVICES = (FORWARD, RECONCILER, DRAIN, SLURM_POLLER, POD_WATCHER)


class Site(Fleet):
    """A process for each service, each as its own user; whoever makes the streams starts last."""

    nats: NatsWithUsers

    @asynccontextmanager
    async def as_themselves(self, receiver: Receiver) -> AsyncIterator[None]:
        """They run inside the context."""
        hook = ForwardSettings(name="hook", url=f"http://127.0.0.1:{receiver.port}/", since="oldest", retry_for_s=0)
        allow = RequestSettings(allow=[RequestRight(user="ops", verbs=["hold"], clusters=["main"])])
        settings = msgspec.structs.replace(self.settings, requests=allow, forward=[hook])
        async with asyncio.TaskGroup() as group:
            tasks = []
            for service in SERVICES:
                ours = self.nats.of(service.name)
                nats = msgspec.structs.replace(settings.nats, user=ours.user, password_file=ours.password_file)
                process = Process(msgspec.structs.replace(settings, nats=nats), service.name, Health(), 0)
                tasks.append(group.create_task(process.run([service], embedded=False)))
                await asyncio.sleep(0.2)
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()

    def refused(self) -> list[str]:
        """What NATS did not let a service do, as its log has it."""
        return [
            line
            for line in self.nats.log.splitlines()
            if " Violation" in line and any(f"user:{service}" in line for service in WRITES)
        ]


@pytest.fixture(name="receiver")
async def _receiver() -> AsyncIterator[Receiver]:
    one = Receiver()
    await one.start()
    yield one
    await one.stop()


async def test_all_services_do_all_they_must_and_nats_refuses_nothing(tmp_path: Path, receiver: Receiver) -> None:
    """Started in the wrong order: they work; a drain, a request, a dead letter and its replay; both streams lost."""
    async with (
        nats_with_users(tmp_path / "nats") as server,
        a_fleet(tmp_path, server, kind=Site, streams=()) as site,
        site.as_themselves(receiver),
    ):
        await site.in_step()
        await eventually(lambda: site.events(DrainSet))
        await eventually(lambda: asyncio.sleep(0, receiver.got))

        request = HoldRequest(
            id="r-1", cluster="main", spec=HoldSpec(workers=WorkerSelector(names=["gpu-99"]), reason="no such worker")
        )
        async with a_user(server, "ops") as ops:
            await ask(ops, request, "ops")
        await eventually(lambda: site.events(RequestRefused))

        await letter_and_replay(site, server, receiver)

        for stream in (FACTS, EVENTS):
            await site.connection.call(f"STREAM.DELETE.{stream.name}")
            await eventually(lambda stream=stream: told_gap(site, stream.name))
        much_happens(site)
        await site.in_step(40)
        assert site.refused() == []


async def told_gap(site: Site, stream: str) -> bool:
    """Whether that loss is told."""
    return stream in [gap.where for gap in await site.events(GapFound)]


async def letter_and_replay(site: Site, server: NatsWithUsers, receiver: Receiver) -> None:
    """An endpoint refuses an event; an administrator sends it again."""
    from aiohttp import web

    receiver.answers.append(lambda _: web.Response(status=400))
    site.kube.remove("pods", "slurmd-0", "slurm")
    async with a_user(server, "admin") as admin:
        letters = DeadLetters(admin)

        async def there() -> bool:
            return bool(await letters.all())

        await eventually(there)
        [letter] = await letters.all()
        assert letter.reader == "forward-hook"
        await letters.replay(letter)
        assert await letters.all() == []


@asynccontextmanager
async def a_user(server: NatsWithUsers, name: str) -> AsyncIterator[Connection]:
    """A connection of this user."""
    address = server.of(name)
    connection = await connect(address.url, name=name, user=name, password_file=address.password_file)
    try:
        yield connection
    finally:
        await connection.close()


def an_example(pattern: str) -> str:
    """A subject that the pattern covers."""
    return pattern.replace("*", "main").replace(">", "one")


async def refused(server: NatsWithUsers, user: str, subjects: list[str], subscriptions: list[str]) -> set[str]:
    """Which of them NATS refuses to this user. The client writes subjects small in its errors."""
    errors: list[str] = []

    async def note(error: Exception) -> None:
        errors.append(str(error))

    secret = Path(server.of(user).password_file).read_text().strip()
    client = await nats.connect(server.address.url, user=user, password=secret, error_cb=note)
    for subject in subjects:
        await client.publish(subject, b"")
    for subject in subscriptions:
        await client.subscribe(subject)
    await handled(client)
    await client.close()
    told = {found for error in errors for found in re.findall(r'violation for \w+ to "([^"]+)"', error.lower())}
    return {subject for subject in (*subjects, *subscriptions) if subject.lower() in told}


async def test_no_service_may_say_what_another_says_nor_take_a_stream_away(tmp_path: Path) -> None:
    """Facts and events of others, streams' ends and contents, other people's requests, and what others are told."""
    table = permissions()
    async with nats_with_users(tmp_path / "nats") as server:
        for service in WRITES:
            foreign = {an_example(s) for other in WRITES if other != service for s in table[other].publish}
            foreign -= {an_example(s) for s in table[service].publish}
            told = {s for s in foreign if s.startswith(("lockstep.fact.", "lockstep.event.", "lockstep.dead."))}
            verbs = ["STREAM.DELETE", "STREAM.PURGE", "STREAM.MSG.DELETE", "STREAM.RESTORE", "STREAM.SNAPSHOT"]
            verbs += [] if service == STREAM_MAKER else ["STREAM.CREATE", "STREAM.UPDATE"]
            api = {f"$JS.API.{verb}.{stream.name}" for verb in verbs for stream in STREAMS}
            more = {
                "lockstep.request.hold.v1.ops.main.x",
                f"lockstep.replay.forward-x-{service}",
                "$SYS.REQ.SERVER.PING",
            }
            assert len(told) > 30
            wanted = told | api | more
            listening = ["lockstep.request.>", "lockstep.event.>", "$SYS.>", "lockstep.dead.>"]
            found = await refused(server, service, sorted(wanted), listening)
            assert wanted - found == set(), service
            assert set(listening) - found == set(), service


async def test_a_service_may_say_its_own(tmp_path: Path) -> None:
    """The same way of asking refuses nothing there: the test before could else be passed by a server that is off."""
    async with nats_with_users(tmp_path / "nats") as server:
        for service in WRITES:
            own = [an_example(s) for s in permissions()[service].publish if s.startswith("lockstep.")]
            assert await refused(server, service, own, ["_INBOX.x"]) == set(), service


@pytest.mark.parametrize("insists", [True, False])
async def test_who_may_not_read_waits_as_a_service_and_is_told_so_as_a_person(tmp_path: Path, insists: bool) -> None:
    """A service must not end because a permission is missing for a while; a command must not stand there for ever."""
    async with nats_with_users(tmp_path / "nats") as server:
        async with a_user(server, STREAM_MAKER) as maker:
            await ensure(maker)
        async with a_user(server, "reconciler") as stranger:
            stranger.insists = insists
            waits = anext(subscribe_events(stranger))
            with pytest.raises(TimeoutError if insists else NotAllowed, match=None if insists else "may not ask"):
                await asyncio.wait_for(waits, 7)


async def test_who_may_not_ask_hears_so_without_waiting_for_an_answer(tmp_path: Path) -> None:
    """The server says it some time after the question; the question is over then."""
    async with nats_with_users(tmp_path / "nats") as server, a_user(server, "guest") as guest:
        for _ in range(2):
            with pytest.raises(NotAllowed, match=r"may not ask \$JS.API.STREAM.DELETE.LOCKSTEP_FACTS"):
                await guest.call("STREAM.DELETE.LOCKSTEP_FACTS", timeout_s=600)
