"""The work queue and the dead letters against a real nats-server that is killed, emptied, and fed with what is bad."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import pytest

from lockstep.base.errors import Fatal, Reject, Retry
from lockstep.bus.acks import Acks
from lockstep.bus.connection import Connection
from lockstep.bus.dead import REPLAYED, DeadLetters, Letter
from lockstep.bus.envelope import MSG_ID, Message
from lockstep.bus.keeper import StreamKeeper
from lockstep.bus.publisher import Publisher
from lockstep.bus.queue import Delivered, Queue
from lockstep.contracts.subjects import DEAD, REPLAY_OF, REQUESTS, replay_subject
from tests.fakes.nats import NatsServer, connected

ASKED = "lockstep.request.hold.v1.ops.main"
QUICK = (0.1, 0.2)
"""Three tries within half a second."""


@pytest.fixture
async def connection(server: NatsServer) -> AsyncIterator[Connection]:
    """A watched connection to it, whose streams are kept."""
    async with connected(server.address) as one, asyncio.TaskGroup() as group:
        keeper = group.create_task(StreamKeeper(one, lambda _: None, Publisher(one, source="test").events).run())
        yield one
        keeper.cancel()


class Reader:
    """Handles messages as the test says, and remembers them."""

    def __init__(self, connection: Connection, *, again_s: Sequence[float] = QUICK, within_s: float = 5.0) -> None:
        self.queue = Queue(
            connection, REQUESTS.name, "drain", REQUESTS.subjects, again_s=again_s, handle_within_s=within_s
        )
        self.seen: list[Delivered] = []
        self.fails: dict[str, Callable[[Delivered], Awaitable[None]]] = {}

    @property
    def names(self) -> list[str]:
        """The last word of each message's subject, in the order of the tries."""
        return [one.subject.rpartition(".")[2] for one in self.seen]

    async def handle(self, message: Delivered) -> None:
        """One try."""
        self.seen.append(message)
        if fails := self.fails.get(message.subject.rpartition(".")[2]):
            await fails(message)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Reader"]:
        """Reads inside the context."""
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self.queue.run(self.handle))
            try:
                yield self
            finally:
                task.cancel()

    async def until(self, true: Callable[[], object], within_s: float = 15.0) -> None:
        """Waits until something is so."""
        async with asyncio.timeout(within_s):
            while not true():
                await asyncio.sleep(0.02)


async def ask(connection: Connection, *names: str, body: bytes = b"{}", **headers: str) -> None:
    """Puts messages in the queue, however long it takes."""
    acks = Acks(connection.client)
    for name in names:
        message = Message(f"{ASKED}.{name}", {MSG_ID: name} | headers, body)
        async with asyncio.timeout(20):
            while not isinstance((await acks.send([message], 2.0))[0], int):
                await asyncio.sleep(0.1)


async def the_letter(connection: Connection) -> Letter:
    """The one dead letter, whole."""
    dead = DeadLetters(connection)
    [listed] = await dead.all()
    letter = await dead.get(listed.sequence)
    assert letter is not None
    assert letter._replace(body=b"") == listed
    return letter


async def waiting(connection: Connection, stream: str = REQUESTS.name) -> int:
    """How many messages the stream has."""
    return int((await connection.call(f"STREAM.INFO.{stream}"))["state"]["messages"])


async def empty(connection: Connection, within_s: float = 10.0) -> None:
    """Waits until everything in the queue is acknowledged."""
    async with asyncio.timeout(within_s):
        while await waiting(connection):
            await asyncio.sleep(0.02)


async def fails(_: Delivered) -> None:
    """Not now."""
    raise Retry("the API server is away")


async def breaks(_: Delivered) -> None:
    """A bug."""
    raise KeyError("a bug")


async def never(_: Delivered) -> None:
    """Of no use."""
    raise Reject("body: is no JSON")


async def hangs(_: Delivered) -> None:
    """Comes to no end."""
    await asyncio.Event().wait()


async def test_each_message_is_handled_and_goes(connection: Connection) -> None:
    """In order; also those that were there before the reader. Nothing stays in the stream."""
    await ask(connection, "a", "b")
    async with Reader(connection).running() as reader:
        await reader.until(lambda: len(reader.seen) == 2)
        await ask(connection, "c")
        await reader.until(lambda: len(reader.seen) == 3)
        await empty(connection)
    assert reader.names == ["a", "b", "c"]
    assert [one.attempt for one in reader.seen] == [1, 1, 1]


async def test_a_message_that_fails_comes_again_and_stops_nobody(connection: Connection) -> None:
    """Its second try is after a while; the others are handled meanwhile."""
    reader = Reader(connection, again_s=(1.0, 1.0))

    async def once(message: Delivered) -> None:
        if message.attempt == 1:
            raise Retry("not now")

    reader.fails["bad"] = once
    async with reader.running():
        await ask(connection, "bad", "good", "better")
        await reader.until(lambda: reader.names.count("bad") == 2)
        await empty(connection)
    assert reader.names == ["bad", "good", "better", "bad"]
    assert await waiting(connection, DEAD.name) == 0


@pytest.mark.parametrize(
    ("handle", "tries", "why"),
    [
        pytest.param(fails, 3, "the API server is away", id="not now"),
        pytest.param(breaks, 3, "KeyError: 'a bug'", id="a bug"),
        pytest.param(never, 1, "body: is no JSON", id="never"),
        pytest.param(hangs, 3, "TimeoutError", id="no end"),
    ],
)
async def test_what_cannot_be_handled_becomes_a_dead_letter(
    connection: Connection, handle: Callable[[Delivered], Awaitable[None]], tries: int, why: str
) -> None:
    """Whole, with the reason, the number of tries and where it came from; the others are handled."""
    reader = Reader(connection, within_s=0.3)
    reader.fails["bad"] = handle
    async with reader.running():
        await ask(connection, "bad", body=b"\xff\x00body", note="x")
        await ask(connection, "good")
        await reader.until(lambda: reader.queue.buried)
        await empty(connection)
    letter = await the_letter(connection)
    assert (letter.reader, letter.subject, letter.body) == ("drain", f"{ASKED}.bad", b"\xff\x00body")
    assert letter.headers == {MSG_ID: "bad", "note": "x"}
    assert (letter.attempts, letter.origin) == (tries, 1)
    assert letter.why.startswith(why)
    assert [one.is_last for one in reader.seen if one.subject.endswith("bad")] == [False, False, True][:tries]
    assert "good" in reader.names


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server takes a reader for dead soon."""
    monkeypatch.setattr("lockstep.bus.queue.ACK_MARGIN_S", 0.5)


@pytest.mark.usefixtures("impatient")
async def test_a_message_that_ends_its_reader_each_time_is_set_aside(connection: Connection) -> None:
    """The server counts the tries, so a crash of the process is one too."""
    await ask(connection, "bad")

    async def crash(_: Delivered) -> None:
        raise Fatal("a bug that ends the process")

    for _ in range(3):
        reader = Reader(connection, within_s=0.5)
        reader.fails["bad"] = crash
        with pytest.raises(ExceptionGroup):
            async with asyncio.timeout(15), reader.running():
                await asyncio.Event().wait()
    async with Reader(connection, within_s=0.5).running() as reader:
        await reader.until(lambda: reader.queue.buried)
        await empty(connection)
    assert reader.seen == []
    letter = await the_letter(connection)
    assert "none of the tries came to an end" in letter.why


async def test_what_a_reader_was_at_when_it_was_stopped_comes_to_the_next_one_at_once(connection: Connection) -> None:
    """A change of leader costs no wait for the acknowledgement's deadline, which is most of a minute here."""
    reader = Reader(connection, within_s=30)
    reader.fails["slow"] = hangs
    async with reader.running():
        await ask(connection, "slow")
        await reader.until(lambda: reader.seen)
    async with Reader(connection).running() as other:
        await other.until(lambda: other.seen)
        await empty(connection)
    assert [one.attempt for one in other.seen] == [2]


async def test_no_more_than_the_width_is_handled_at_once(connection: Connection) -> None:
    """Whatever waits in the stream."""
    at_once: list[int] = []
    running = 0

    async def slow(_: Delivered) -> None:
        nonlocal running
        running += 1
        at_once.append(running)
        await asyncio.sleep(0.02)
        running -= 1

    await ask(connection, *(f"m-{n}" for n in range(40)))
    reader = Reader(connection)
    reader.fails = {f"m-{n}": slow for n in range(40)}
    async with reader.running():
        await reader.until(lambda: reader.queue.handled == 40)
    assert max(at_once) == 8


async def test_a_killed_server_and_a_deleted_consumer_or_stream_are_survived(
    connection: Connection, server: NatsServer
) -> None:
    """What is asked for afterwards is handled, each message once."""
    async with Reader(connection).running() as reader:
        await ask(connection, "before")
        await reader.until(lambda: "before" in reader.names)
        await server.kill()
        await server.again()
        await ask(connection, "after-kill")
        await reader.until(lambda: "after-kill" in reader.names)
        await empty(connection)
        await connection.call(f"CONSUMER.DELETE.{REQUESTS.name}.drain")
        await ask(connection, "no-consumer")
        await reader.until(lambda: "no-consumer" in reader.names)
        await empty(connection)
        await connection.call(f"STREAM.DELETE.{REQUESTS.name}")
        await ask(connection, "new-stream")
        await reader.until(lambda: "new-stream" in reader.names)
        await empty(connection)
    assert reader.names == ["before", "after-kill", "no-consumer", "new-stream"]


@pytest.mark.usefixtures("impatient")
async def test_a_letter_is_kept_before_its_message_goes(connection: Connection) -> None:
    """While the stream of dead letters is not there, the message stays in the queue and is not lost."""
    await connection.call(f"STREAM.UPDATE.{DEAD.name}", await sealed(connection))
    reader = Reader(connection, within_s=1.0)
    reader.fails["bad"] = never
    async with reader.running():
        await ask(connection, "bad")
        await reader.until(lambda: reader.seen)
        await asyncio.sleep(0.3)
        assert await waiting(connection) == 1
        await connection.call(f"STREAM.DELETE.{DEAD.name}")
        await reader.until(lambda: reader.queue.buried, within_s=30)
        await empty(connection)
    assert [letter.subject for letter in await DeadLetters(connection).all()] == [f"{ASKED}.bad"]


async def sealed(connection: Connection) -> dict[str, object]:
    """The configuration of the dead letters' stream with which it takes nothing more."""
    info = await connection.call(f"STREAM.INFO.{DEAD.name}")
    config: dict[str, object] = info["config"] | {"sealed": True}
    return config


async def test_headers_that_a_server_obeys_do_not_reach_the_dead_letters(connection: Connection) -> None:
    """Somebody who may ask could otherwise let a letter expire at once, or have it refused for ever."""
    reader = Reader(connection)
    reader.fails["bad"] = never
    async with reader.running():
        raw = {"Nats-TTL": "1s", "lockstep-dead-why": "forged", "big": "x" * 5000, "small": "y"}
        await connection.client.publish(f"{ASKED}.bad", b"x" * (connection.client.max_payload - 6000), headers=raw)
        await reader.until(lambda: reader.queue.buried)
    letter = await the_letter(connection)
    assert letter.headers == {"small": "y"}
    assert letter.why == "body: is no JSON"
    assert letter.cut_from > len(letter.body) > 1_000_000
    with pytest.raises(Reject, match="too long to be kept whole"):
        await DeadLetters(connection).replay(letter)


async def test_a_replayed_message_is_handled_anew_and_its_letter_is_gone(connection: Connection) -> None:
    """Under a fresh id, so that the stream does not take it for the first one; and it says where it comes from."""
    reader = Reader(connection)
    reader.fails["bad"] = never
    dead = DeadLetters(connection)
    async with reader.running():
        await ask(connection, "bad", body=b"body")
        await reader.until(lambda: reader.queue.buried)
        letter = await dead.get(1)
        assert letter is not None
        assert letter.at is not None
        del reader.fails["bad"]
        await dead.replay(letter)
        await reader.until(lambda: len(reader.seen) == 2)
        await empty(connection)
    again = reader.seen[1]
    assert (again.subject, again.body, again.attempt) == (letter.subject, b"body", 1)
    assert again.headers[REPLAYED] == "1"
    assert again.headers[MSG_ID].startswith("bad/replay-")
    assert await dead.get(1) is None
    assert await dead.all() == []


async def test_a_reader_without_a_stream_is_asked_to_do_it_again(connection: Connection) -> None:
    """It answers when it has; while it is not there, or fails, the letter stays."""
    dead = DeadLetters(connection)
    subject = "lockstep.event.drain.drained.v1.main.gpu-7"
    await dead.bury("forward-slack", subject, {MSG_ID: "e"}, b"event", why="500", attempts=9, origin=5)
    letter = await the_letter(connection)
    with pytest.raises(Retry, match="nobody answers for forward-slack"):
        await dead.replay(letter)

    answers = [b"503 Service Unavailable", b"ok"]
    asked: list[tuple[str, bytes]] = []

    async def post(message) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001  the client's own type
        asked.append((message.headers[REPLAY_OF], message.data))
        await message.respond(answers.pop(0))

    await connection.client.subscribe(replay_subject("forward-slack"), cb=post)
    with pytest.raises(Reject, match="503 Service Unavailable"):
        await dead.replay(letter)
    assert len(await dead.all()) == 1
    await dead.replay(letter)
    assert await dead.all() == []
    assert asked == [(subject, b"event")] * 2
