"""How a client reaches slurmrestd: how many connections, over what, and what is told of each call."""

import asyncio
import socket
from contextlib import nullcontext
from pathlib import Path
from typing import ClassVar

import pytest
from aiohttp import web

from lockstep.base.calls import Untold
from lockstep.slurm.client import SlurmRest
from lockstep.slurm.errors import Unreachable
from lockstep.slurm.transport import Transport
from tests.fakes.slurm_faults import Fault
from tests.fakes.slurmrestd import FakeSlurmrestd, fake_slurm


class Told(Untold):
    """A call that is part of a trace."""

    headers: ClassVar = {"traceparent": "00-1-2-01"}


async def test_no_more_connections_than_allowed_are_open() -> None:
    """Forty at once through four connections, all answered, and slowness is no outage."""
    async with fake_slurm("gpu-1") as fake:
        client = SlurmRest(Transport(fake.url, fake.tokens(), connections=4), cluster="main")
        await client.ping()
        fake.fail(Fault(on="GET node/{name}", times=40, hang_s=0.02))
        await asyncio.gather(*(client.node("gpu-1") for _ in range(40)))
        assert fake.most_at_once == 4
        await client.close()


async def test_nobody_listening_is_unreachable(fake: FakeSlurmrestd) -> None:
    """Refused, unresolvable, or silent: the same class, in bounded time."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    for url in (f"http://127.0.0.1:{port}", "http://no.such.host.invalid:1", "unix:///nowhere/slurmrestd.socket"):
        client = SlurmRest(Transport(url, fake.tokens(), total_s=2), cluster="main")
        with pytest.raises(Unreachable):
            await client.nodes()
        await client.close()


async def test_a_unix_socket_is_as_good(fake: FakeSlurmrestd, tmp_path: Path) -> None:
    """A daemon beside us, without a port."""
    path = tmp_path / "slurmrestd.socket"
    runner = fake.runner
    await web.UnixSite(runner, str(path)).start()
    client = SlurmRest(Transport(f"unix://{path}", fake.tokens()), cluster="main")
    assert (await client.ping()).cluster == "main"
    await client.close()


async def test_each_call_is_told_and_carries_its_trace(fake: FakeSlurmrestd) -> None:
    """For the metrics: method, route without names, seconds, whether it was answered; and our headers go along."""
    told: list[tuple[str, str, bool]] = []
    transport = Transport(
        fake.url,
        fake.tokens(),
        total_s=0.3,
        on_call=lambda method, route, seconds, answered: told.append((method, route, answered and seconds >= 0)),
        calling=lambda _: nullcontext(Told()),
    )
    client = SlurmRest(transport, cluster="main")
    await client.node("gpu-1")
    fake.fail(Fault(on="GET node/{name}", hang_s=0.5))
    with pytest.raises(Unreachable):
        await client.node("gpu-1")
    assert told == [("GET", "ping/", True), ("GET", "node/{name}", True), ("GET", "node/{name}", False)]
    assert fake.headers[1]["traceparent"] == "00-1-2-01"
    await client.close()
