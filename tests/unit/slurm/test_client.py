import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import nullcontext
from pathlib import Path
from typing import ClassVar

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from lockstep.base.calls import Untold
from lockstep.slurm import states
from lockstep.slurm.client import SlurmRest
from lockstep.slurm.errors import Busy, Denied, NoSuchNode, Refused, Unreachable, Unsupported
from lockstep.slurm.tokens import FileTokens, mint
from lockstep.slurm.transport import Transport
from tests.fakes.slurmrestd import NEW, OLD, FakeNode, FakeSlurmrestd, Fault, Release, fake_slurm

WORDS = "lockstep: ops: swap"
PLUGIN = json.dumps({"errors": [{"error_number": 8002, "error": "Plugin not supported"}]})


@pytest.fixture(name="fake")
async def _fake() -> AsyncIterator[FakeSlurmrestd]:
    """A new Slurm with four nodes."""
    async with fake_slurm("gpu-1", "gpu-2", "gpu-3", "gpu-4") as fake:
        yield fake


@pytest.fixture(name="slurm")
async def _slurm(fake: FakeSlurmrestd) -> AsyncIterator[SlurmRest]:
    """Its client."""
    client = client_of(fake)
    yield client
    await client.close()


def client_of(fake: FakeSlurmrestd, *, total_s: float = 0.5) -> SlurmRest:
    """A client that does not wait long."""
    return SlurmRest(Transport(fake.url, fake.tokens(), total_s=total_s), cluster="main")


def parsers(*names: str) -> Release:
    """A new Slurm that speaks these."""
    return Release(name="26.11.0", parsers=names, refused=422, undrain_clears_reason=True, stamp_works=True)


# ---- writing


async def test_a_thousand_nodes_with_the_same_words_are_one_post() -> None:
    """And the body is a short host list."""
    names = [f"gpu-{number}" for number in range(1, 1001)]
    async with fake_slurm(*names) as fake:
        client = client_of(fake, total_s=5)
        assert (await client.drain(names, WORDS)).done == names
        assert fake.posted == [{"name": ["gpu-[1-1000]"], "state": ["DRAIN"], "reason": WORDS}]
        await client.undrain(names)
        assert fake.posted[1] == {"name": ["gpu-[1-1000]"], "state": ["UNDRAIN"]}
        await client.close()


@pytest.mark.parametrize("release", [NEW, OLD], ids=lambda release: release.name)
async def test_a_bulk_that_is_refused_for_one_is_sorted(release: Release) -> None:
    """The others are done; one that will not is told apart from one that is not there; nobody is asked twice."""
    async with fake_slurm("gpu-1", "gpu-2", "gpu-3", release=release) as fake:
        client = client_of(fake)
        await client.drain(list(fake.nodes), WORDS)
        fake.nodes["gpu-2"].flags.add("INVALID_REG")
        fake.posted.clear()
        outcome = await client.undrain(["gpu-1", "gpu-2", "gpu-3", "gone"])
        assert outcome.done == ["gpu-1", "gpu-3"]
        assert {name: type(error) for name, error in outcome.failed.items()} == {"gpu-2": Refused, "gone": NoSuchNode}
        assert [body["name"] for body in fake.posted] == [["gone,gpu-[1-3]"], ["gpu-2"]]
        await client.close()


async def test_one_that_failed_in_the_bulk_may_succeed_alone(fake: FakeSlurmrestd, slurm: SlurmRest) -> None:
    """A refusal of the whole, before anything was changed, is no refusal of each."""
    refusal = json.dumps({"errors": [{"error_number": 2028, "error": "Invalid node state specified"}]})
    fake.fail(Fault(on="POST nodes/", status=422, body=refusal))
    outcome = await slurm.drain(["gpu-1", "gpu-2"], WORDS)
    assert sorted(outcome.done) == ["gpu-1", "gpu-2"]
    assert outcome.failed == {}


async def test_a_vanished_node_is_asked_for_once(fake: FakeSlurmrestd, slurm: SlurmRest) -> None:
    """Deleted between our look and our write: one POST, and the answer that it is gone."""
    await slurm.node("gpu-1")
    del fake.nodes["gpu-1"]
    outcome = await slurm.drain(["gpu-1"], WORDS)
    assert isinstance(outcome.failed["gpu-1"], NoSuchNode)
    assert fake.count("POST nodes/") == 1


@pytest.mark.parametrize(
    "fault",
    [
        Fault(on="POST nodes/", after_acting=True, cut=True),
        Fault(on="POST nodes/", cut=True),
        Fault(on="POST nodes/", hang_s=1.0),
        Fault(on="POST nodes/", after_acting=True, status=502, body="<html>", content_type="text/html"),
        Fault(on="POST nodes/", after_acting=True, status=500, body="{}"),
    ],
    ids=["half an answer", "cut", "time-out", "a proxy's page", "no word"],
)
async def test_a_lost_answer_is_never_said_again(fake: FakeSlurmrestd, slurm: SlurmRest, fault: Fault) -> None:
    """The write may have been carried out (here it was), so the caller reads before it writes again."""
    fault.times = 1
    fake.fail(fault)
    with pytest.raises(Unreachable):
        await slurm.drain(["gpu-1"], WORDS)
    assert fake.count("POST nodes/") == 1
    await asyncio.sleep(0.6 if fault.hang_s else 0)
    assert states.is_drain("IDLE", (await slurm.node("gpu-1")).flags)


async def test_lost_while_looking_after_a_refused_bulk_is_unreachable(fake: FakeSlurmrestd, slurm: SlurmRest) -> None:
    """Nothing is reported as done or failed that was not seen."""
    fake.fail(Fault(on="GET nodes/", cut=True))
    with pytest.raises(Unreachable):
        await slurm.drain(["gpu-1", "gone"], WORDS)


async def test_lost_for_one_is_that_ones_failure(fake: FakeSlurmrestd, slurm: SlurmRest) -> None:
    """The others of the bulk are told as they are."""
    fake.nodes["gpu-2"].flags.add("INVALID_REG")
    await slurm.drain(["gpu-1", "gpu-2"], WORDS)
    fake.calls.clear()
    refusal = json.dumps({"errors": [{"error_number": 2028, "error": "Invalid node state specified"}]})
    fake.fail(Fault(on="POST nodes/", after_acting=True, status=422, body=refusal), Fault(on="POST nodes/", cut=True))
    outcome = await slurm.undrain(["gpu-1", "gpu-2"])
    assert outcome.done == ["gpu-1"]
    assert isinstance(outcome.failed["gpu-2"], Unreachable)


@pytest.mark.parametrize("reason", ["", "two\nlines", "x" * 257, " padded", "\x1b[31mred"])
async def test_a_reason_that_is_not_clean_is_not_sent(fake: FakeSlurmrestd, slurm: SlurmRest, reason: str) -> None:
    """Whoever calls has made it with `reasons`; anything else is a mistake of ours."""
    with pytest.raises(ValueError, match="clean reason"):
        await slurm.drain(["gpu-1"], reason)
    assert fake.posted == []


@pytest.mark.parametrize("name", ["all", "ALL", "gpu-[1-4]", "gpu-1,gpu-2", "", "gpu 1"])
async def test_a_name_that_stands_for_several_is_not_sent(fake: FakeSlurmrestd, slurm: SlurmRest, name: str) -> None:
    """Slurm reads "all" as every node and signs as lists."""
    with pytest.raises(ValueError, match="name"):
        await slurm.drain(["gpu-1", name], WORDS)
    assert fake.posted == []


async def test_nobody_to_drain_is_nothing_to_do(fake: FakeSlurmrestd, slurm: SlurmRest) -> None:
    """Slurm would call an empty list an error."""
    assert (await slurm.drain([], WORDS)).done == []
    assert fake.calls == []


async def test_busy_is_raised_with_its_time(fake: FakeSlurmrestd, slurm: SlurmRest) -> None:
    """429 and 503 say when to come back."""
    fake.fail(Fault(on="POST nodes/", status=429, headers={"Retry-After": "3"}), Fault(on="POST nodes/", status=503))
    with pytest.raises(Busy) as caught:
        await slurm.drain(["gpu-1"], WORDS)
    assert caught.value.after_s == 3.0
    with pytest.raises(Busy):
        await slurm.drain(["gpu-1"], WORDS)


# ---- reading


@pytest.mark.parametrize(
    "fault",
    [
        Fault(on="GET node/{name}", status=500, body='{"errors": [{"error_number": -1}]}'),
        Fault(on="GET node/{name}", status=200, body="{}"),
        Fault(on="GET node/{name}", status=200, body="<html>", content_type="text/html"),
        Fault(on="GET node/{name}", cut=True),
    ],
    ids=["error", "no nodes in it", "a page", "cut"],
)
async def test_a_failed_look_is_not_an_absent_node(fake: FakeSlurmrestd, slurm: SlurmRest, fault: Fault) -> None:
    """Only Slurm's own word makes a node unknown."""
    fault.times = 1
    fake.fail(fault)
    with pytest.raises(Unreachable):
        await slurm.node("gpu-1")


async def test_slurmctld_away_is_unreachable_for_all(fake: FakeSlurmrestd, slurm: SlurmRest) -> None:
    """Its absence reads neither as "no nodes" nor as "no jobs"."""
    fake.slurmctld_up = False
    for ask in (slurm.nodes, slurm.jobs, slurm.reservations, slurm.partitions):
        with pytest.raises(Unreachable):
            await ask()
    assert (await slurm.ping()).controllers_up == 0


@pytest.mark.parametrize("what", ["nodes", "jobs", "reservations", "partitions"])
async def test_an_answer_without_its_part_is_no_empty_list(fake: FakeSlurmrestd, slurm: SlurmRest, what: str) -> None:
    """A body that lacks the list says nothing."""
    fake.fail(Fault(on=f"GET {what}/", status=200, body='{"errors": [], "warnings": []}'))
    with pytest.raises(Unreachable):
        await getattr(slurm, what)()


async def test_a_node_name_cannot_leave_its_place_in_the_address(fake: FakeSlurmrestd, slurm: SlurmRest) -> None:
    """Signs of addresses in a name are part of the name."""
    with pytest.raises(NoSuchNode):
        await slurm.node("../jobs/?x=1#y")
    assert fake.calls[-1] == "GET node/{name}"


async def test_nodes_are_asked_for_without_flags(fake: FakeSlurmrestd, slurm: SlurmRest) -> None:
    """Naming one drops MIXED, and a busy node would read idle; jobs are asked for without what is on each core."""
    await slurm.nodes()
    await slurm.jobs()
    assert fake.queries["GET nodes/"] == {}
    assert fake.queries["GET jobs/"] == {"flags": "ALL"}


async def test_unchanged_is_asked_for_by_slurms_own_stamp(fake: FakeSlurmrestd, slurm: SlurmRest) -> None:
    """The query is what real daemons accept: whole Unix seconds."""
    fake.age("nodes", 10)
    listed = await slurm.nodes()
    assert listed is not None
    assert await slurm.nodes(since=listed.last_update) is None
    assert fake.queries["GET nodes/"] == {"update_time": str(listed.last_update)}


async def test_an_older_slurm_that_fails_on_the_stamp_gets_the_full_question() -> None:
    """Each answer is whole from the first time on; after two failures in a row it is not asked any more."""
    async with fake_slurm("gpu-1", release=OLD) as fake:
        client = client_of(fake)
        listed = await client.nodes()
        assert listed is not None
        with capture_logs() as logs:
            for _ in range(4):
                found = await client.nodes(since=listed.last_update - 100)
                assert found is not None
                assert [node.name for node in found.nodes] == ["gpu-1"]
        assert fake.count("GET nodes/") == 1 + 2 * 2 + 2
        assert len(logs) == 1
        await client.close()


async def test_one_failure_on_the_stamp_is_forgotten(fake: FakeSlurmrestd, slurm: SlurmRest) -> None:
    """A Slurm that was unwell for a moment goes on being asked whether anything changed."""
    fake.age("nodes", 10)
    listed = await slurm.nodes()
    assert listed is not None
    for _ in range(3):
        fake.fail(Fault(on="GET nodes/", status=500, body='{"errors": [{"error_number": -1}]}'))
        assert await slurm.nodes(since=listed.last_update) is not None
        assert await slurm.nodes(since=listed.last_update) is None


async def test_unchanged_jobs_are_none_and_no_jobs_are_none_left(fake: FakeSlurmrestd, slurm: SlurmRest) -> None:
    """An empty list with "no job changes" is None; one with "zero jobs" is the end of all jobs."""
    job_id = fake.start_job(["gpu-1"])
    fake.age("jobs", 10)
    listed = await slurm.jobs()
    assert listed is not None
    assert await slurm.jobs(since=listed.last_update) is None
    del fake.jobs[job_id]
    fake.touch("jobs")
    gone = await slurm.jobs(since=listed.last_update)
    assert gone is not None
    assert gone.jobs == []


async def test_only_jobs_that_hold_nodes_are_listed(fake: FakeSlurmrestd, slurm: SlurmRest) -> None:
    """Waiting and ended ones are history; completing ones still hold."""
    held = fake.start_job(["gpu-1", "gpu-2"])
    fake.jobs[fake.start_job(["gpu-3"])].states = ["CANCELLED"]
    completing = fake.start_job(["gpu-4"])
    fake.jobs[completing].states = ["TIMEOUT", "COMPLETING"]
    listed = await slurm.jobs()
    assert listed is not None
    assert [(job.job_id, job.nodes) for job in listed.jobs] == [(held, ["gpu-1", "gpu-2"]), (completing, ["gpu-4"])]


async def test_a_node_with_equals_signs_stops_nobody(fake: FakeSlurmrestd, slurm: SlurmRest) -> None:
    """Its reason is kept, and the next node is read and written in the same breath."""
    fake.nodes["gpu-1"] = FakeNode(name="gpu-1", flags={"DRAIN"}, reason='a=b=c [x] "y"')
    listed = await slurm.nodes()
    assert listed is not None
    assert listed.nodes[0].reason == 'a=b=c [x] "y"'
    assert (await slurm.drain(["gpu-2"], WORDS)).done == ["gpu-2"]
    assert fake.nodes["gpu-1"].reason == 'a=b=c [x] "y"'


# ---- versions


@pytest.mark.parametrize(
    ("offered", "spoken"),
    [
        (("v0.0.42", "v0.0.43", "v0.0.44", "v0.0.45"), "v0.0.45"),
        (("v0.0.41", "v0.0.42", "v0.0.43", "v0.0.44"), "v0.0.44"),
        (("v0.0.40", "v0.0.41", "v0.0.42"), "v0.0.42"),
    ],
)
async def test_the_newest_parser_in_common_is_spoken(offered: tuple[str, ...], spoken: str) -> None:
    """Found by asking at its own address, once."""
    async with fake_slurm("gpu-1", release=parsers(*offered)) as fake:
        client = client_of(fake)
        assert (await client.ping()).parser == spoken
        await client.nodes()
        await client.nodes()
        assert fake.count("GET ping/") <= 5
        await client.close()


async def test_an_upgrade_of_slurm_while_we_run_goes_unnoticed() -> None:
    """The address is gone, another is found, the request is answered, and the change is told once."""
    async with fake_slurm("gpu-1", release=parsers("v0.0.41", "v0.0.42", "v0.0.43")) as fake:
        client = client_of(fake)
        assert (await client.ping()).parser == "v0.0.43"
        fake.release = parsers("v0.0.44", "v0.0.45")
        with capture_logs() as logs:
            assert (await client.drain(["gpu-1"], WORDS)).done == ["gpu-1"]
            assert await client.nodes() is not None
        assert [(entry["parser"], entry["was"]) for entry in logs] == [("v0.0.45", "v0.0.43")]
        await client.close()


async def test_no_parser_in_common_is_said_and_heals() -> None:
    """Unsupported until Slurm is one of ours, with no restart of anything."""
    async with fake_slurm("gpu-1", release=parsers("v0.0.46", "v0.0.47")) as fake:
        client = client_of(fake)
        with pytest.raises(Unsupported, match=r"v0\.0\.45"):
            await client.nodes()
        fake.release = NEW
        assert await client.nodes() is not None
        await client.close()


@pytest.mark.parametrize("where", ["GET nodes/", "GET ping/"])
async def test_an_odd_plugin_error_is_asked_again(fake: FakeSlurmrestd, slurm: SlurmRest, where: str) -> None:
    """A daemon that has just started may deny what it has: twice wrong, then right, is right."""
    fake.fail(Fault(on=where, times=2, status=500, body=PLUGIN))
    assert await slurm.nodes() is not None


async def test_a_lasting_plugin_error_is_said_and_heals(fake: FakeSlurmrestd, slurm: SlurmRest) -> None:
    """Bounded tries, then Unsupported; later it works again by itself."""
    fake.fail(Fault(on="GET nodes/", times=3, status=500, body=PLUGIN))
    with pytest.raises(Unsupported):
        await slurm.nodes()
    assert fake.count("GET nodes/") == 3
    assert await slurm.nodes() is not None


async def test_a_write_to_an_address_that_is_gone_is_said_again(fake: FakeSlurmrestd, slurm: SlurmRest) -> None:
    """It was not carried out, so it is no lost answer."""
    fake.fail(Fault(on="POST nodes/", status=404, body="Unable to find requested URL", content_type="text/plain"))
    assert (await slurm.drain(["gpu-1"], WORDS)).done == ["gpu-1"]


async def test_requeue_is_refused_by_a_parser_without_it() -> None:
    """Nothing is sent that Slurm would take for something else."""
    async with fake_slurm("gpu-1", release=OLD) as fake:
        client = client_of(fake)
        with pytest.raises(Refused, match="cannot requeue"):
            await client.requeue(fake.start_job(["gpu-1"]))
        assert not any(call.startswith("POST") for call in fake.calls)
        await client.close()


async def test_a_job_that_may_not_be_requeued_is_refused(fake: FakeSlurmrestd, slurm: SlurmRest) -> None:
    """Slurm's own refusal, in its words."""
    with pytest.raises(Refused, match="disabled"):
        await slurm.requeue(fake.start_job(["gpu-1"], can_requeue=False))


# ---- who asks


async def test_an_exchanged_key_interrupts_nothing(fake: FakeSlurmrestd, slurm: SlurmRest) -> None:
    """The next token is made with what is in the file then."""
    await slurm.nodes()
    fake.key = b"another key that is as long as it has to be"
    fake.tokens()
    assert await slurm.nodes() is not None


async def test_a_token_exchanged_during_the_request_is_read_once_more(fake: FakeSlurmrestd, tmp_path: Path) -> None:
    """One denial, the new token, and the caller sees nothing; with the old token still there it is denied at once."""
    path = tmp_path / "token"
    good = fake.tokens().headers()["X-SLURM-USER-TOKEN"]

    class Exchanged(FileTokens):
        """The file is exchanged after the first look at it."""

        def headers(self) -> dict[str, str]:
            seen = super().headers()
            path.write_text(good)
            return seen

    path.write_text(mint(b"the old key of that cluster, long gone", {"sun": "slurm", "exp": 9_999_999_999}))
    client = SlurmRest(Transport(fake.url, Exchanged(path)), cluster="main")
    await client.ping()
    path.write_text(mint(b"the old key of that cluster, long gone", {"sun": "slurm", "exp": 9_999_999_999}))
    fake.calls.clear()
    assert await client.nodes() is not None
    assert fake.calls == ["GET nodes/", "GET nodes/"]
    await client.close()


async def test_a_token_that_stays_wrong_is_denied_at_once(fake: FakeSlurmrestd, tmp_path: Path) -> None:
    """It is not tried again and again, and it is in no text."""
    path = tmp_path / "token"
    path.write_text(token := mint(b"wrong", {"sun": "slurm", "exp": 9_999_999_999}))
    client = SlurmRest(Transport(fake.url, FileTokens(path)), cluster="main")
    with pytest.raises(Denied) as caught:
        await client.nodes()
    assert fake.count("GET nodes/") == 1
    assert token not in repr(caught.value)
    path.write_text(fake.tokens().headers()["X-SLURM-USER-TOKEN"])
    assert await client.nodes() is not None
    await client.close()


# ---- connections


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


class Told(Untold):
    """A call that is part of a trace."""

    headers: ClassVar = {"traceparent": "00-1-2-01"}


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


async def test_after_an_outage_the_parser_is_looked_for_again(fake: FakeSlurmrestd, slurm: SlurmRest) -> None:
    """A restart may have been an upgrade, to a better one too."""
    fake.release = parsers("v0.0.43")
    assert (await slurm.ping()).parser == "v0.0.43"
    fake.release = NEW
    fake.fail(Fault(on="GET nodes/", cut=True))
    with pytest.raises(Unreachable):
        await slurm.nodes()
    assert (await slurm.ping()).parser == "v0.0.45"
