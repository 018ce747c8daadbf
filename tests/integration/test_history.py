"""`story`, `events` and `diff` as a person runs them, on a real nats-server that has the events of a life."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lockstep.base.clock import now
from lockstep.bus.connection import Connection
from lockstep.bus.publisher import Publisher
from lockstep.cli.exits import Exit
from lockstep.contracts import events as e
from lockstep.contracts.common import WorkerRef
from lockstep.contracts.facts import SITE, Fact, SourceHealth
from tests.builders import a_node, a_pod, a_slurm_node
from tests.fakes.nats import connected, nats_server
from tests.integration.whole import started
from tests.unit.cli.life import CORDON, DIMM, HOST, REF, a_life


@dataclass
class History:
    """A NATS with facts and events, and the command beside it."""

    connection: Connection
    env: dict[str, str]
    publisher: Publisher = field(init=False)

    def __post_init__(self) -> None:
        self.publisher = Publisher(self.connection, source="test")

    async def told(self, *events: e.Event) -> None:
        """Publishes events, each when the one before is in the stream."""
        for event in events:
            await self.publisher.event(event)

    async def start(self, *words: str) -> asyncio.subprocess.Process:
        """The command as a process."""
        return await started(*words, env=self.env)

    async def run(self, *words: str, code: int = 0) -> tuple[str, str]:
        """What the command prints, and what beside it; it must end with this code."""
        process = await self.start(*words)
        async with asyncio.timeout(60):
            out, err = await process.communicate()
        assert "Traceback" not in err.decode()
        assert process.returncode == code, f"{words} ended with {process.returncode}: {out.decode()} {err.decode()}"
        return out.decode(), err.decode()

    async def lines(self, *words: str) -> list[dict[str, Any]]:
        """What the command prints as lines of JSON."""
        return [json.loads(line) for line in (await self.run(*words, "-o", "json"))[0].splitlines()]


def facts() -> Sequence[Fact]:
    """Two workers, of which the first has a topology, and sources that are read."""
    at = now()
    beats = [("slurm.node", "main"), ("slurm.job", "main"), ("kube", SITE)]
    return [
        a_slurm_node(topology="nvl:rack01"),
        a_slurm_node(name="gpu-8", topology="nvl:rack02"),
        a_pod(),
        a_node(),
        *(SourceHealth(source=source, of=of, complete_as_of=at) for source, of in beats),
    ]


@asynccontextmanager
async def a_history(folder: Path) -> AsyncIterator[History]:
    """NATS and the command's settings."""
    async with nats_server(folder / "nats") as server, connected(server.address) as connection:
        nats = {"url": server.address.url, "user": server.address.user, "password_file": server.address.password_file}
        (folder / "key").write_bytes(b"k" * 32)
        cluster = {"name": "main", "namespace": "slurm", "url": "http://127.0.0.1:9", "key_file": str(folder / "key")}
        settings = {"clusters": [cluster], "nats": {k: str(v) for k, v in nats.items() if v}}
        (folder / "lockstep.yaml").write_text(json.dumps(settings))
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("LOCKSTEP_", "KUBE"))}
        yield History(connection, kept | {"LOCKSTEP_CONFIG": str(folder / "lockstep.yaml"), "PYTHONUNBUFFERED": "1"})


@pytest.fixture
async def history(tmp_path: Path) -> AsyncIterator[History]:
    """A history with facts, and no events yet."""
    async with a_history(tmp_path) as one:
        await one.publisher.facts(facts())
        yield one


OTHER = WorkerRef(cluster="main", name="gpu-8", kube_node="host-8")
OTHERS = [
    e.NodeCordoned(id="x1", at=a_life()[0].at, node="host-8", workers=[OTHER]),
    e.HoldPlaced(id="x2", at=a_life()[0].at, worker=OTHER, hold=DIMM, cause_id="x1"),
]


async def test_a_story_has_what_concerns_the_worker_and_nothing_else(history: History) -> None:
    """Its node, its sources, the request and the job are in it; another worker's events are not."""
    await history.told(*OTHERS, *a_life())

    text, _ = await history.run("story", "gpu-7")
    lines = await history.lines("story", "main/gpu-7")

    assert [line["event"]["id"] for line in lines if line["event"]["id"] in {"x1", "x2"}] == []
    assert {line["event"]["id"] for line in lines} == {event.id for event in a_life()}
    assert [(line["type"], line["depth"]) for line in lines[:3]] == [
        ("node.cordoned.v1", 0),
        ("hold.placed.v1", 1),
        ("drain.started.v1", 2),
    ]
    assert "14:13:00    drained after 2 h 13 min, waited for job 4242\n" in text
    assert "\x1b" not in text
    assert text.endswith("\n\n1 drain, drained after 2 h 13 min, out of service for 4 h\n")


async def test_a_story_is_written_as_a_page(history: History, tmp_path: Path) -> None:
    """Instead of being printed."""
    await history.told(*a_life())

    out, err = await history.run("story", "gpu-7", "--html", str(tmp_path / "story.html"))

    page = (tmp_path / "story.html").read_text(encoding="utf-8")
    assert (out, f"{len(a_life())} events of main/gpu-7" in err) == ("", True)
    assert page.startswith("<!doctype html>")
    assert page.count("slurm-node.phase-changed.v1") == 3


async def test_a_worker_that_is_gone_still_has_a_story(history: History) -> None:
    """Its events are known longer than itself; a name that nobody ever had is not found."""
    gone = WorkerRef(cluster="main", name="gpu-77", kube_node=HOST)
    await history.told(e.SlurmNodeVanished(id="1", at=now(), worker=gone, before="IDLE"))

    text, err = await history.run("story", "gpu-77")
    _, unknown = await history.run("story", "gpu-9", code=Exit.NOT_FOUND)

    assert "Slurm no longer knows it (was IDLE)" in text
    assert "main/gpu-77 is not known any more" in err
    assert "'gpu-9': there is none of that name; nearest: gpu-" in unknown


async def test_a_story_is_followed_and_meets_whoever_is_new(history: History) -> None:
    """A request and a node that nobody knew of are read of from their first event on."""
    first, *_ = a_life()
    moved = msgspec.structs.replace(REF, kube_node="host-9")
    asked = next(event for event in a_life() if event.id == "accepted")
    held = next(event for event in a_life() if event.id == "held2")
    await history.told(first)
    process = await history.start("story", "gpu-7", "--follow", "-o", "json")
    assert process.stdout is not None

    async def line() -> tuple[str, int]:
        async with asyncio.timeout(30):
            told = json.loads(await process.stdout.readline())  # type: ignore[union-attr]
        return told["event"]["id"], told["depth"]

    try:
        assert await line() == ("cordoned", 0)
        await history.told(asked, held)
        assert [await line(), await line()] == [("accepted", 0), ("held2", 1)]
        ready = e.PodReady(id="moved", at=held.at, worker=moved, before="bound", after="ready", uid="u")
        await history.told(ready)
        assert await line() == ("moved", 0)
        await history.told(e.NodeRebooted(id="new", at=held.at, node="host-9", before="a", after="b"))
        assert await line() == ("new", 0)
    finally:
        process.send_signal(signal.SIGINT)
        ending = asyncio.get_running_loop().call_later(30, process.kill)
        _, err = await process.communicate()
        ending.cancel()
    assert (process.returncode, err) == (Exit.INTERRUPTED, b"")


async def test_since_and_until_cut_a_story(history: History) -> None:
    """By when NATS took the events."""
    life = a_life()
    await history.told(*life[:3])
    await asyncio.sleep(0.2)
    middle = now().isoformat()
    await history.told(*life[3:5])

    assert len(await history.lines("story", "gpu-7", "--until", middle)) == 3
    assert [line["event"]["id"] for line in await history.lines("story", "gpu-7", "--since", middle)] == [
        "set",
        "state",
    ]
    _, err = await history.run("story", "gpu-7", "--since", "3d")
    assert "nothing before is known" in err


async def test_events_are_filtered(history: History) -> None:
    """Each filter alone, and several together."""
    await history.told(*OTHERS, *a_life())

    async def ids(*words: str) -> list[str]:
        return [event["id"] for event in await history.lines("events", *words)]

    assert await ids("--worker", "gpu-[7-8]", "--kind", "hold.placed") == ["x2", "held", "held2"]
    assert await ids("--node", "host-8") == ["x1", "x2"]
    assert await ids("--hold", CORDON.id) == ["held", "freed"]
    assert await ids("--block", "rack02", "--kind", "hold") == ["x2"]
    assert await ids("--block", "rack02") == ["x2"]
    assert await ids("--kind", "node", "--worker", "gpu-8") == ["x1"]
    assert len(await ids()) == len(a_life()) + len(OTHERS)


BAD = [
    (["events", "--block", "rack9"], Exit.NOT_FOUND, "--block 'rack9'"),
    (["events", "--until", "soon"], Exit.BAD_INPUT, "--until 'soon'"),
    (["events", "--follow", "--until", "now"], Exit.BAD_INPUT, "--until 'now'"),
    (["story", "gpu-7", "--since", "x"], Exit.BAD_INPUT, "--since 'x'"),
    (["story", "gpu-7", "--html", "/nowhere/x.html"], Exit.BAD_INPUT, "--html '/nowhere/x.html'"),
    (["story", "gpu-7", "--html", "x.html", "--follow"], Exit.BAD_INPUT, "--html 'x.html'"),
    (["diff", "soon"], Exit.BAD_INPUT, "T1 'soon'"),
    (["diff", "1h", "2h"], Exit.BAD_INPUT, "T1 '1h': want a time before T2 '2h'"),
    (["diff", "2h", "2999-01-01T00:00:00Z"], Exit.BAD_INPUT, "T2 '2999-01-01T00:00:00Z': is to come"),
    (["diff", "2h", "-c", "spare"], Exit.NOT_FOUND, "cluster 'spare'"),
]


async def test_bad_input_names_the_field(history: History) -> None:
    """One line on standard error, and the code that scripts know."""
    await history.told(a_life()[0])

    for words, code, says in BAD:
        out, err = await history.run(*words, code=code)
        assert (out, len(err.splitlines())) == ("", 1)
        assert says in err


async def test_the_difference_between_two_moments(history: History) -> None:
    """What was and what is, of those that changed; and that the events do not reach further back."""
    life = a_life()
    cut = [event.id for event in life].index("leaving")
    await history.told(*life[:cut])
    await asyncio.sleep(0.2)
    middle = now().isoformat()
    await history.told(*OTHERS, *life[cut:])

    text, err = await history.run("diff", "2h")
    answer = json.loads((await history.run("diff", middle, "-o", "json"))[0])

    assert "The events reach back to " in err
    assert ": 2 workers changed: " in text
    seven, eight = answer["items"]
    assert answer["reaches_back"] is True
    assert (seven["name"], seven["phase"]) == ("gpu-7", {"then": "drained", "now": "idle"})
    assert [hold["id"] for hold in seven["ended"]] == [CORDON.id, DIMM.id]
    assert (seven["pod"], seven["reboots"]) == ("replaced", 1)
    assert (eight["name"], [hold["owner"] for hold in eight["placed"]]) == ("gpu-8", ["ops@example.com"])


async def test_nothing_changed_is_an_answer_too(history: History) -> None:
    """In one line."""
    await history.told(a_life()[0])
    await asyncio.sleep(0.1)
    text, _ = await history.run("diff", now().isoformat())

    assert text.endswith(": no worker changed\n")
