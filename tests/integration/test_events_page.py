"""What `docs/events.md` tells a stranger to type is true on a real nats-server: filters, rights, going back."""

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.js.api import ConsumerConfig, DeliverPolicy

from lockstep.bus.connection import connect
from lockstep.bus.events import EventSeen, subscribe_events
from lockstep.bus.ordered import CaughtUp
from tests.fakes.nats import NatsWithUsers, connected, handled, nats_with_users

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/events.md").read_text("utf-8")
EXAMPLES = {p.stem: json.loads(p.read_text("utf-8")) for p in sorted((ROOT / "proto/examples").glob("*.json"))}
ROWS = PAGE.split("| You want |")[1]
FILTERS = dict(re.findall(r"^\| ([^|]+) \| `(lockstep\.(?:event|fact)\.[^`]+)`", ROWS, re.MULTILINE))
EVENTS = {name: example for name, example in EXAMPLES.items() if name.startswith("event.")}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NatsWithUsers]:
    """A server with the users of `deploy/nats/users.conf`, the streams, and all examples in them."""
    async with nats_with_users(tmp_path / "nats") as running, connected(running.of("lockstep")) as lockstep:
        for example in EXAMPLES.values():
            body = json.dumps(example["body"]).encode()
            await lockstep.client.jetstream().publish(example["subject"], body, headers=example["headers"])
        yield running


@asynccontextmanager
async def client(server: NatsWithUsers, user: str, refused: list[str] | None = None) -> AsyncIterator[Client]:
    """A connection as one of the users; what the server refuses is noted."""

    async def note(error: Exception) -> None:
        (refused if refused is not None else []).append(str(error))

    one = await nats.connect(server.of(user).url, user=user, password=f"{user}-secret", error_cb=note)
    try:
        yield one
    finally:
        await one.close()


async def read(one: Client, subject: str, **config: Any) -> list[Any]:
    """What an ordered consumer finds in the stream of events now."""
    consumer = ConsumerConfig(**({"deliver_policy": DeliverPolicy.ALL} | config))
    reading = await one.jetstream().subscribe(subject, stream="LOCKSTEP_EVENTS", ordered_consumer=True, config=consumer)
    found, left = [], 1
    while left:
        message = await reading.next_msg(timeout=30)
        found.append(message)
        left = message.metadata.num_pending
    return found


def subjects(names: Iterable[str]) -> set[str]:
    """Those of examples."""
    return {EXAMPLES[name]["subject"] for name in names}


def cluster_of(event: dict[str, Any]) -> str:
    """The cluster that an event is about, as its body says."""
    body = event["body"]
    return str(body.get("cluster") or body.get("of") or body.get("worker", {}).get("cluster") or "_site")


EXPECTED = {
    "all about worker": [name for name, event in EVENTS.items() if "worker" in event["body"]],
    "only *drained*": ["event.drain.drained.v1"],
    "everything of cluster": [name for name, event in EVENTS.items() if cluster_of(event) == "main"],
    "all that happens to holds": [name for name in EVENTS if name.startswith("event.hold.")],
    "all that happens to Kubernetes": [name for name in EVENTS if name.startswith("event.node.")],
    "the answers to the request": [
        name for name, event in EVENTS.items() if event["body"].get("request") == "fw-2026-12-01-7"
    ],
    "what a worker is now": ["fact.slurm.node", "fact.drain.desired", "fact.reconciler.wrote"],
}


async def test_each_filter_of_the_page_gives_what_it_says(server: NatsWithUsers) -> None:
    """All examples are in the streams; each filter finds its own and nothing else."""
    assert len(FILTERS) == len(EXPECTED)
    async with client(server, "lockstep") as one:
        for words, subject in FILTERS.items():
            (names,) = [names for begins, names in EXPECTED.items() if words.startswith(begins)]
            stream = "LOCKSTEP_FACTS" if ".fact." in subject else "LOCKSTEP_EVENTS"
            assert await seen(one, stream, subject) == subjects(names), words


async def seen(one: Client, stream: str, subject: str) -> set[str]:
    """The subjects in a stream that match, by the server's own count."""
    answer = await one.request(
        f"$JS.API.STREAM.INFO.{stream}", json.dumps({"subjects_filter": subject}).encode(), timeout=30
    )
    return set(json.loads(answer.data)["state"].get("subjects") or {})


async def test_a_reader_reads_goes_back_and_changes_nothing(server: NatsWithUsers) -> None:
    """All of the past in order, again from a sequence, what comes live; every publish is refused."""
    refused: list[str] = []
    async with client(server, "guest", refused) as guest, client(server, "lockstep") as lockstep:
        everything = await read(guest, "lockstep.event.>")
        sequences = [message.metadata.sequence.stream for message in everything]
        assert {m.subject for m in everything} == subjects(EVENTS)
        assert sequences == sorted(sequences)

        start = sequences[20]
        rest = await read(
            guest, "lockstep.event.>", deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=start
        )
        assert [m.metadata.sequence.stream for m in rest] == sequences[20:]

        live = await guest.subscribe("lockstep.event.>")
        await handled(guest)
        await lockstep.publish("lockstep.event.drain.drained.v1.main.gpu-9", b"{}")
        assert (await live.next_msg(timeout=30)).subject == "lockstep.event.drain.drained.v1.main.gpu-9"

        for subject in (
            "lockstep.event.x",
            "lockstep.request.hold.v1.ops.main.r",
            "$JS.API.STREAM.PURGE.LOCKSTEP_EVENTS",
        ):
            await guest.publish(subject, b"{}")
        await guest.subscribe("lockstep.request.>")
        await handled(guest)
    assert len(refused) == 4, refused


async def test_our_own_subscription_needs_no_more_rights_than_a_readers(server: NatsWithUsers) -> None:
    """`lockstep events` works for `guest`: all that is there, then the word that the rest is live."""
    found = []
    guest = server.of("guest")
    connection = await connect(guest.url, name="test", user=guest.user, password_file=guest.password_file)
    async with asyncio.timeout(20), aclosing(subscribe_events(connection)) as items:  # type: ignore[type-var]
        async for item in items:
            if isinstance(item, CaughtUp):
                break
            assert isinstance(item, EventSeen)
            found.append(item.subject)
    await connection.close()

    assert set(found) == subjects(EVENTS)


async def test_the_program_of_the_page_tells_who_is_drained(server: NatsWithUsers) -> None:
    """As it stands there, with a reader's rights: first what was, then what comes."""
    (program,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    there = {**os.environ, "NATS_URL": server.of("guest").url.replace("//", "//guest:guest-secret@")}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, env=there, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(20), client(server, "lockstep") as lockstep:
            sequence, *who = (await process.stdout.readline()).decode().split()
            assert (int(sequence) > 0, who) == (True, ["main", "gpu-7"])
            body = {"worker": {"cluster": "main", "name": "gpu-9"}}
            await lockstep.publish("lockstep.event.drain.drained.v1.main.gpu-9", json.dumps(body).encode())
            assert (await process.stdout.readline()).decode().split()[1:] == ["main", "gpu-9"]
    finally:
        process.kill()
        await process.wait()


async def test_a_requester_asks_under_its_own_name_and_no_other(server: NatsWithUsers) -> None:
    """The stream acknowledges its own; the server refuses somebody else's."""
    refused: list[str] = []
    own, others = "lockstep.request.hold.v1.ops.main.r-1", "lockstep.request.hold.v1.root.main.r-1"
    async with client(server, "ops", refused) as ops:
        stored = await ops.jetstream().publish(own, b"{}", headers={"Nats-Msg-Id": "r-1"})
        again = await ops.jetstream().publish(own, b"{}", headers={"Nats-Msg-Id": "r-1"})
        await ops.publish(others, b"{}")
        await handled(ops)

    assert (stored.stream, again.duplicate) == ("LOCKSTEP_REQUESTS", True)
    assert len(refused) == 1
    assert others in refused[0]
