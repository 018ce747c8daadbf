"""Events about one thing stay in order, whichever messages a stream does not take at first."""

import asyncio
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lockstep.base.errors import Retry
from lockstep.bus import publisher as publishers
from lockstep.bus.acks import Answer
from lockstep.bus.connection import Connection
from lockstep.bus.envelope import MSG_ID, Message
from lockstep.bus.publisher import Publisher
from lockstep.contracts.common import WorkerRef
from lockstep.contracts.events import DrainSet, Event
from tests.builders import NOW


class Stream:
    """Takes messages at random, knows each id once, and may store one without saying so."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self.ids: list[str] = []
        self.most = 0

    async def send(self, messages: list[Message], _within_s: float) -> list[Answer]:
        """As `Acks.send`."""
        self.most = max(self.most, len(messages))
        return [self._take(message.headers[MSG_ID]) for message in messages]

    def _take(self, ident: str) -> Answer:
        luck = self._random.random()
        if luck < 0.4:
            return Retry("not stored")
        if ident not in self.ids:
            self.ids.append(ident)
        return Retry("the acknowledgement is lost") if luck < 0.6 else self.ids.index(ident) + 1


def an_event(worker: str, number: int) -> Event:
    """The worker's event of that number."""
    return DrainSet(id=f"{worker}/{number}", at=NOW, worker=WorkerRef(cluster="main", name=worker), words="")


@pytest.mark.parametrize("seed", range(30))
async def test_a_workers_events_are_stored_in_their_order(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two calls at the same time, six workers: each worker's events as they were given, each once."""
    monkeypatch.setattr(publishers, "AGAIN_AFTER_S", 0)
    up = asyncio.Event()
    up.set()

    async def wait_up(_: float) -> None:
        """Connected."""

    connection = SimpleNamespace(client=SimpleNamespace(new_inbox=str, max_payload=1 << 20), up=up, wait_up=wait_up)
    publisher = Publisher(cast("Connection", connection), source="test")
    stream = publisher._acks = cast("Any", Stream(seed))
    workers = [f"gpu-{n}" for n in range(6)]
    async with asyncio.TaskGroup() as group:
        group.create_task(publisher.events([an_event(w, n) for n in range(5) for w in workers]))
        group.create_task(publisher.events([an_event(w, n) for w in workers for n in range(5, 10)]))

    for worker in workers:
        assert [i for i in stream.ids if i.startswith(f"{worker}/")] == [f"{worker}/{n}" for n in range(10)]
    assert stream.most == len(workers), "different workers are sent together"
