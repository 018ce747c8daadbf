"""Events posted to a real HTTP server that fails, hangs and dies, from a real nats-server."""

import asyncio
import base64
import hashlib
import hmac
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from cloudevents.core.bindings.http import HTTPMessage, from_http
from cloudevents.core.formats.json import JSONFormat

from lockstep.base.clock import monotonic
from lockstep.bus.connection import Connection
from lockstep.bus.dead import DeadLetters
from lockstep.bus.publisher import Publisher
from lockstep.contracts.common import WorkerRef
from lockstep.contracts.events import DrainSet
from lockstep.forward.main import SERVICE
from lockstep.forward.poster import SIDE_BY_SIDE
from lockstep.runtime import health as health_module
from lockstep.runtime.health import Health
from lockstep.runtime.process import Process
from lockstep.runtime.settings import (
    ClusterSettings,
    ForwardSettings,
    HealthSettings,
    KubeSettings,
    LeaseSettings,
    NatsSettings,
    Settings,
)
from tests.builders import NOW
from tests.fakes.nats import NatsServer, connected, nats_server

KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: a, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {token: x}}]
contexts: [{name: c, context: {cluster: a, user: u}}]
current-context: c
"""
SECRET = b"0123456789abcdef"


class Receiver:
    """An HTTP server that answers as the test says; without a word it takes everything."""

    def __init__(self) -> None:
        self.got: list[web.Request] = []
        self.bodies: list[bytes] = []
        self.answers: list[Callable[[web.Request], Any]] = []
        self.port = 0
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listens; on the same port as before, if there was one."""
        app = web.Application()
        app.router.add_post("/", self._take)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Is gone; the port is closed."""
        assert self._runner is not None
        await self._runner.cleanup()

    async def _take(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        if self.answers:
            answer = self.answers.pop(0)(request)
            if asyncio.iscoroutine(answer):
                answer = await answer
            if answer.status != 200:
                return answer  # type: ignore[no-any-return]
        self.got.append(request)
        self.bodies.append(body)
        return web.Response()

    def words(self, worker: str = "") -> list[str]:
        """What was taken, in its order; about one worker or all."""
        events = [msgspec.json.decode(body) for body in self.bodies]
        return [event["words"] for event in events if not worker or event["worker"]["name"] == worker]


def status(code: int, **headers: str) -> Callable[[web.Request], web.Response]:
    """An answer without a body."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda _: web.Response(status=code, headers=named)


def broken(request: web.Request) -> web.Response:
    """The connection ends without an answer."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response(status=500)


async def hanging(_: web.Request) -> web.Response:
    """No answer for longer than anybody waits."""
    await asyncio.sleep(30)
    return web.Response(status=500)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    """A running nats-server."""
    async with nats_server(tmp_path / "nats") as running:
        yield running


@pytest.fixture
async def connection(server: NatsServer) -> AsyncIterator[Connection]:
    """For the test's own use; the streams are in place."""
    async with connected(server.address) as one:
        yield one


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    """A listening receiver."""
    one = Receiver()
    await one.start()
    yield one
    await one.stop()


@pytest.fixture
def settings(tmp_path: Path, server: NatsServer, receiver: Receiver) -> Callable[..., Settings]:
    """Settings with one endpoint, or with those that are given."""
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    address = server.address

    def make(*others: ForwardSettings, **fields: Any) -> Settings:
        one = {"name": "hook", "url": f"http://127.0.0.1:{receiver.port}/", "since": "oldest", "timeout_s": 1.0}
        return Settings(
            clusters=[ClusterSettings(name="main", namespace="slurm", url="http://127.0.0.1:1", key_file="/none")],
            kube=KubeSettings(kubeconfig=str(tmp_path / "kubeconfig")),
            lease=LeaseSettings(enabled=False),
            health=HealthSettings(port=0),
            nats=NatsSettings(url=address.url, user=address.user, password_file=str(address.password_file)),
            forward=[ForwardSettings(**(one | fields)), *others],
        )

    return make


@asynccontextmanager
async def forwarding(settings: Settings, health: Health | None = None) -> AsyncIterator[None]:
    """The service runs inside the context."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(Process(settings, "forward", health or Health(), 0).run([SERVICE], embedded=False))
        try:
            yield
        finally:
            task.cancel()


async def eventually(true: Callable[[], object], within_s: float = 15.0) -> None:
    """Waits until something is so."""
    async with asyncio.timeout(within_s):
        while not true():
            await asyncio.sleep(0.02)


async def publish(connection: Connection, *each: tuple[str, str]) -> None:
    """Events about workers, each with its words."""
    ref = {worker: WorkerRef(cluster="main", name=worker) for worker, _ in each}
    events = [DrainSet(id=f"{worker}:{words}", at=NOW, worker=ref[worker], words=words) for worker, words in each]
    await Publisher(connection, source="reconciler").events(events)


async def test_events_arrive_as_cloudevents_signed_and_with_the_sites_headers(
    connection: Connection, receiver: Receiver, settings: Callable[..., Settings], tmp_path: Path
) -> None:
    """Anything that takes CloudEvents and Standard Webhooks can check and read them."""
    (tmp_path / "secret").write_text(f"whsec_{base64.b64encode(SECRET).decode()}\n")
    (tmp_path / "headers").write_text("Authorization: Bearer abc\n")
    files = {"secret_file": str(tmp_path / "secret"), "headers_file": str(tmp_path / "headers")}
    await publish(connection, ("gpu-1", "über"))
    async with forwarding(settings(**files)):
        await eventually(lambda: receiver.got)

    (request,), (body,) = receiver.got, receiver.bodies
    event = from_http(HTTPMessage(headers=dict(request.headers), body=body), JSONFormat())
    assert event.get_type() == "worker.drain-set.v1"
    assert event.get_id() == "gpu-1:über"
    data = event.get_data()
    assert isinstance(data, dict)
    assert data["words"] == "über"
    assert request.headers["Authorization"] == "Bearer abc"
    signed = f"{request.headers['webhook-id']}.{request.headers['webhook-timestamp']}.".encode() + body
    mark = base64.b64encode(hmac.new(SECRET, signed, hashlib.sha256).digest()).decode()
    assert request.headers["webhook-signature"] == f"v1,{mark}"


async def test_what_fails_comes_again_in_order_and_holds_up_only_its_worker(
    connection: Connection, receiver: Receiver, settings: Callable[..., Settings]
) -> None:
    """An error, a lost connection, a hang and a plea for patience; the other worker's events go through meanwhile."""
    receiver.answers = [status(503), status(200), broken, hanging, status(429, Retry_After="1")]
    await publish(connection, ("gpu-1", "1"), ("gpu-2", "1"), ("gpu-1", "2"), ("gpu-1", "3"))
    async with forwarding(settings()):
        await eventually(lambda: len(receiver.bodies) == 4)

    assert receiver.words("gpu-1") == ["1", "2", "3"]
    assert receiver.words("gpu-2") == ["1"]
    assert not receiver.answers


async def test_an_endpoint_that_dies_gets_everything_when_it_is_back(
    connection: Connection, receiver: Receiver, settings: Callable[..., Settings]
) -> None:
    """Nothing is lost, and nothing is dead."""
    async with forwarding(settings()):
        await publish(connection, ("gpu-1", "before"))
        await eventually(lambda: receiver.bodies)
        await receiver.stop()
        await publish(connection, *((f"gpu-{i}", "during") for i in range(1, 30)))
        await asyncio.sleep(0.5)
        await receiver.start()
        await eventually(lambda: len(receiver.bodies) >= 30)

    assert sorted(receiver.words()) == ["before", *["during"] * 29]
    assert await DeadLetters(connection).all() == []


async def test_a_restart_goes_on_where_it_ended(
    connection: Connection, receiver: Receiver, settings: Callable[..., Settings]
) -> None:
    """What was done with is not posted again; what was not, is."""
    await publish(connection, ("gpu-1", "1"))
    async with forwarding(settings()):
        await eventually(lambda: receiver.bodies)
        await asyncio.sleep(1.5)
    await publish(connection, ("gpu-1", "2"))
    async with forwarding(settings(since="now")):
        await eventually(lambda: len(receiver.bodies) >= 2)

    assert receiver.words() == ["1", "2"]


async def test_what_is_refused_is_a_dead_letter_that_a_person_can_send_again(
    connection: Connection, receiver: Receiver, settings: Callable[..., Settings]
) -> None:
    """It is kept whole, says why, and goes when the endpoint has taken it."""
    receiver.answers = [status(400), status(404)]
    dead = DeadLetters(connection)
    await publish(connection, ("gpu-1", "1"), ("gpu-1", "2"))
    async with forwarding(settings()):
        await eventually(lambda: receiver.bodies or len(receiver.answers) == 0)
        async with asyncio.timeout(30):
            while len(letters := await dead.all()) < 2:
                await asyncio.sleep(0.05)
        assert [(letter.reader, letter.why) for letter in letters] == [
            ("forward-hook", "HTTP 400"),
            ("forward-hook", "HTTP 404"),
        ]
        await dead.replay(letters[0])

    assert receiver.words() == ["1"]
    assert [letter.why for letter in await dead.all()] == ["HTTP 404"]


async def test_an_endpoint_that_is_left_in_peace_is_not_missed_as_a_sign_of_life(
    connection: Connection, receiver: Receiver, settings: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the process would be restarted for it, and post there again."""
    health = Health()
    receiver.answers = [status(200), status(410)]
    async with forwarding(settings(), health):
        await publish(connection, ("gpu-1", "1"))
        await eventually(lambda: receiver.bodies)
        await asyncio.sleep(1.5)
        later = monotonic() + 70
        with monkeypatch.context() as patched:
            patched.setattr(health_module, "monotonic", lambda: later)
            assert "forward-hook" in health.dead(), "it beats while it is posted to"
        await publish(connection, ("gpu-1", "2"))
        await eventually(lambda: not receiver.answers)
        await asyncio.sleep(1.5)
        with monkeypatch.context() as patched:
            patched.setattr(health_module, "monotonic", lambda: later + 10)
            assert "forward-hook" not in health.dead()


async def test_one_endpoint_does_not_wait_for_another(
    connection: Connection, receiver: Receiver, settings: Callable[..., Settings]
) -> None:
    """One that never answers, and one that wants nothing any more, hold up nobody else."""
    others = []
    for name, answer in (("hangs", hanging), ("gone", status(410))):
        other = Receiver()
        await other.start()
        other.answers = [answer] * 1_000
        others.append((name, other))
    endpoints = [ForwardSettings(name=n, url=f"http://127.0.0.1:{o.port}/", since="oldest") for n, o in others]
    try:
        await publish(connection, *((f"gpu-{i}", "x") for i in range(100)))
        async with forwarding(settings(*endpoints)):
            await eventually(lambda: len(receiver.bodies) == 100)
            await publish(connection, ("gpu-1", "y"))
            await eventually(lambda: len(receiver.bodies) == 101)
    finally:
        for _, other in others:
            await other.stop()

    gone = dict(others)["gone"]
    assert 1 <= 1_000 - len(gone.answers) <= 2 * SIDE_BY_SIDE
