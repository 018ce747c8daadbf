"""What a subscriber may rely on: order per worker, nothing lost, duplicates that it can tell; and it slows nobody."""

import asyncio
import os
import signal
import statistics
import sys
import time
from contextlib import aclosing, suppress
from datetime import UTC, datetime

from lockstep.base.errors import Retry
from lockstep.bus.connection import Connection
from lockstep.bus.events import EventSeen, subscribe_events
from lockstep.bus.ordered import CaughtUp, Missed, OrderedReader, Received, Reset, Start
from lockstep.bus.publisher import Publisher
from lockstep.bus.streams import stream_state
from lockstep.contracts.common import WorkerRef
from lockstep.contracts.events import DrainSet, Event, SlurmStateChanged
from lockstep.contracts.subjects import EVENTS
from tests.fakes.nats import NatsServer, TcpProxy, connected

AT = datetime(2026, 1, 1, tzinfo=UTC)


def an_event(worker: int, number: int, after: str = "DOWN") -> Event:
    """The worker's event of that number; even ones are of another kind, and so have another subject."""
    ref = WorkerRef(cluster="main", name=f"gpu-{worker}")
    ident = f"{worker}/{number}"
    if number % 2:
        return DrainSet(id=ident, at=AT, worker=ref, words="x")
    return SlurmStateChanged(id=ident, at=AT, worker=ref, before="IDLE", after=after)


async def stored(connection: Connection) -> list[str]:
    """The ids of all events in the stream, in order, also of those that are in it twice."""
    found: list[str] = []
    async with aclosing(subscribe_events(connection)) as items:  # type: ignore[type-var]
        async for item in items:
            if isinstance(item, CaughtUp):
                return found
            if isinstance(item, EventSeen) and isinstance(item.event, Event):
                found.append(item.event.id)
    raise AssertionError


async def test_events_of_one_worker_never_overtake_each_other(server: NatsServer) -> None:
    """Acknowledgements are lost, connections cut and the server killed in the middle of batches for eight workers."""
    told = 0
    over = False
    async with TcpProxy(server.address).running() as proxy, connected(proxy.address) as connection:
        publisher = Publisher(connection, source="test", patience_s=5)

        async def publish() -> None:
            nonlocal told
            while not over:
                batch = [an_event(worker, told + n) for n in range(6) for worker in range(8)]
                while True:
                    with suppress(Retry):
                        await publisher.events(batch)
                        break
                told += 6

        async with asyncio.TaskGroup() as group:
            publishing = group.create_task(publish())
            for turn in range(6):
                await asyncio.sleep(0.05 + turn % 3 * 0.02)
                proxy.set("lose-answers")
                await asyncio.sleep(0.1 + turn % 4 * 0.1)
                if turn % 3 == 0:
                    await server.kill()
                    await server.again()
                proxy.set("pass")
                before = told
                async with asyncio.timeout(20):
                    while told == before:
                        await asyncio.sleep(0.01)
            over = True
            await publishing
        ids = await stored(connection)

    for worker in range(8):
        seen = [ident for ident in ids if ident.startswith(f"{worker}/")]
        assert list(dict.fromkeys(seen)) == [f"{worker}/{n}" for n in range(told)]


async def test_what_is_sent_again_much_later_is_known_by_its_id(connection: Connection) -> None:
    """NATS drops what comes twice within its window; behind that, the id is the same and nothing else is new."""
    window = {"duplicate_window": 100_000_000}
    config = (await connection.call(f"STREAM.INFO.{EVENTS.name}"))["config"]
    await connection.call(f"STREAM.UPDATE.{EVENTS.name}", config | window)
    publisher = Publisher(connection, source="test")
    await publisher.events([an_event(1, 0), an_event(1, 1)])
    await publisher.events([an_event(1, 0), an_event(1, 1)])
    assert await stored(connection) == ["1/0", "1/1"]
    await asyncio.sleep(0.5)
    await publisher.events([an_event(1, 0), an_event(1, 1), an_event(1, 2)])
    ids = await stored(connection)
    assert ids == ["1/0", "1/1", "1/0", "1/1", "1/2"]
    assert list(dict.fromkeys(ids)) == ["1/0", "1/1", "1/2"]


SUBSCRIBER = """
import asyncio, sys
from contextlib import aclosing
from lockstep.bus.connection import connect
from lockstep.bus.events import EventSeen, Start, subscribe_events

async def main(url, user, password_file, start):
    connection = await connect(url, name="slow", user=user, password_file=password_file)
    watching = asyncio.ensure_future(connection.run())
    async def take(message):
        pass
    await connection.client.subscribe("lockstep.event.>", cb=take)
    async with aclosing(subscribe_events(connection, start=Start(sequence=int(start)))) as items:
        async for item in items:
            told = f"{item.sequence} {item.event.id}" if isinstance(item, EventSeen) else type(item).__name__
            print(told, flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_a_subscriber_that_stands_still_slows_nobody_and_misses_nothing(
    server: NatsServer, connection: Connection
) -> None:
    """20,000 events pass while it is stopped, with an open subscription and an open consumer; then it goes on."""
    address = server.address
    publisher = Publisher(connection, source="test", patience_s=60)
    slow = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SUBSCRIBER, address.url, address.user, address.password_file, "1",
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert slow.stdout is not None
    assert await slow.stdout.readline() == b"CaughtUp\n"
    others = 0

    async def read() -> None:
        nonlocal others
        async with aclosing(subscribe_events(connection)) as items:  # type: ignore[type-var]
            async for item in items:
                others += isinstance(item, EventSeen)

    async def publish(first: int, last: int) -> float:
        """The median of what one call took."""
        took = []
        for number in range(first, last, 10):
            began = time.perf_counter()
            await publisher.events(an_event(worker, number // 10) for worker in range(10))
            took.append(time.perf_counter() - began)
        return statistics.median(took)

    try:
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(read())
            alone = await publish(0, 5_000)
            os.kill(slow.pid, signal.SIGSTOP)
            beside = await publish(5_000, 25_000)
            async with asyncio.timeout(30):
                while others < 25_000:
                    await asyncio.sleep(0.01)
            reading.cancel()
        os.kill(slow.pid, signal.SIGCONT)
        seen: list[str] = []
        async with asyncio.timeout(60):
            while len(seen) < 25_000:
                line = (await slow.stdout.readline()).decode().split()
                assert line[0] not in {"Missed", "Reset"}
                seen += line[1:] if line[0].isdigit() else []
    finally:
        slow.kill()
        await slow.wait()
    print(f"ten events at once: {alone * 1e3:.2f} ms, beside a subscriber that stands still {beside * 1e3:.2f} ms")
    assert beside < 5 * alone
    for worker in range(10):
        assert [i for i in seen if i.startswith(f"{worker}/")] == [f"{worker}/{n}" for n in range(2_500)]
    state = await stream_state(connection, EVENTS.name)
    assert state is not None
    assert (state.first, state.last, state.messages) == (1, 25_000, 25_000)


async def test_a_reader_goes_on_from_where_another_stopped(connection: Connection) -> None:
    """It names the sequence after the last that was done with; or a time."""
    publisher = Publisher(connection, source="test")
    await publisher.events(an_event(1, n) for n in range(3))
    await asyncio.sleep(0.01)
    pause = datetime.now(UTC)  # noqa: TID251
    await publisher.events(an_event(1, n) for n in range(3, 6))
    assert await first_of(connection, Start(sequence=3)) == 3
    assert await first_of(connection, Start(at=pause)) == 4


async def test_a_reader_whose_place_is_gone_is_told_so(connection: Connection) -> None:
    """Retention has passed it: which messages are missing. The stream ends before its place: it was lost."""
    publisher = Publisher(connection, source="test")
    await publisher.events(an_event(1, n) for n in range(10))
    await connection.call(f"STREAM.PURGE.{EVENTS.name}", {"seq": 8})
    assert await first_of(connection, Start(sequence=3)) == Missed(3, 7)
    reset = await first_of(connection, Start(sequence=12))
    assert isinstance(reset, Reset)


async def first_of(connection: Connection, start: Start) -> object:
    """The first item of a reading: an event's sequence, or what is said before."""
    async with aclosing(OrderedReader(connection, EVENTS.name, EVENTS.subjects, start=start).items()) as items:
        async for item in items:
            return item.sequence if isinstance(item, Received) else item
    raise AssertionError


async def test_a_purge_before_the_eyes_of_a_slow_reader_is_told(connection: Connection) -> None:
    """The server would pass over what is gone without a word."""
    publisher = Publisher(connection, source="test", patience_s=30)
    text, count = "x" * 200_000, 1_000
    for start in range(0, count, 100):
        await publisher.events(an_event(n, 0, text) for n in range(start, start + 100))
    got: list[object] = []
    async with aclosing(OrderedReader(connection, EVENTS.name, EVENTS.subjects).items()) as items:
        async for item in items:
            got.append(item.sequence if isinstance(item, Received) else item)
            if got == [1]:
                await connection.call(f"STREAM.PURGE.{EVENTS.name}", {"seq": count - 5})
            if got[-1] == count:
                break
    [missed] = [item for item in got if isinstance(item, Missed)]
    assert missed.last == count - 6
    assert [n for n in got if isinstance(n, int)] == [*range(1, missed.first), *range(count - 5, count + 1)]
