"""A site that takes requests over a real NATS with users; who asks it, for what, and what is answered."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

from lockstep.base.errors import Retry
from lockstep.bus.ask import answers
from lockstep.bus.connection import Connection, connect
from lockstep.contracts.events import RequestDone, RequestEvent, RequestRefused
from lockstep.contracts.hold import HoldSpec, WorkerSelector
from lockstep.contracts.requests import HoldRequest, Request
from lockstep.contracts.subjects import REQUESTS
from tests.fakes.nats import NatsWithUsers


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
