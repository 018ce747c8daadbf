"""The subscriber that the stream's benchmark measures, in a process of its own; its last line is what it saw, as JSON.

``python -m tests.bench.reader URL USER PASSWORD_FILE START COUNT``: handles so many events, from a sequence on or (0)
new ones only, and holds all facts beside that, as a service does. It says ``ready`` when what it is to see comes next.
"""

import asyncio
import json
import sys
import time
from array import array
from contextlib import aclosing

from lockstep.bus.connection import Connection, connect
from lockstep.bus.events import EventSeen, subscribe_events
from lockstep.bus.facts import FactFeed
from lockstep.bus.lanes import Lanes
from lockstep.bus.ordered import CaughtUp, Start
from lockstep.contracts.events import WorkerEvent
from lockstep.fleet.mirror import Mirror
from tests.bench.legs import Numbers, spread

WIDTH = 64


def ident(number: int) -> str:
    """An event's id that says when it was made, on the clock that all processes of the machine share."""
    return f"{number}@{time.monotonic_ns()}"


async def main(url: str, user: str, password_file: str, start: str, count: str) -> None:
    """Reads, and prints the numbers."""
    connection = await connect(url, name="bench-reader", user=user, password_file=password_file)
    mirror = Mirror(FactFeed(connection))
    where = Start(sequence=int(start)) if int(start) else Start(new=True)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(connection.run()), group.create_task(mirror.run())]
        found = await _follow(connection, where, int(count))
        for task in tasks:
            task.cancel()
    await connection.close()
    sys.stdout.write(json.dumps(found) + "\n")


async def _follow(connection: Connection, start: Start, count: int) -> Numbers:
    ages = array("d", bytes(8 * count))  # whole from the beginning: its growth would be taken for a leak
    number = looks = 0
    began = cpu = 0.0

    async def look() -> None:
        nonlocal looks
        looks += 1

    async with Lanes[str](WIDTH) as lanes, aclosing(subscribe_events(connection, start=start)) as items:  # type: ignore[type-var]
        async for item in items:
            match item:
                case CaughtUp():
                    sys.stdout.write("ready\n")
                    sys.stdout.flush()
                case EventSeen(event=WorkerEvent() as event):
                    if not number:
                        began, cpu = time.monotonic(), time.process_time()
                    ages[number] = (time.monotonic_ns() - int(event.id.partition("@")[2])) * 1e-9
                    number += 1
                    lanes.put(event.worker.name, look)
            if number == count:
                break
        await lanes.idle()
    took = time.monotonic() - began
    return spread(ages) | {"seconds": took, "cpu_s": time.process_time() - cpu, "looks": looks}


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
