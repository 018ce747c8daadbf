"""A watch tells everything, once, whatever the server and the network do."""

import asyncio
import random
from collections.abc import Callable

import pytest

from lockstep.kube.client import KubeClient
from lockstep.kube.wire import Hold, Node, Pod
from tests.fakes.kube import FakeKube
from tests.fakes.kube_store import status_object
from tests.unit.kube.conftest import MakeClient
from tests.unit.kube.following import following


async def eventually(true: Callable[[], bool], within_s: float = 5.0) -> None:
    """Wait until it is so."""
    async with asyncio.timeout(within_s):
        while not true():
            await asyncio.sleep(0.005)


async def test_a_watch_tells_what_there_is_and_then_what_changes(api: FakeKube, kube: KubeClient) -> None:
    """List, synced, changes with before and after, and the last state of what went."""
    api.put("pods", "a", "slurm")
    async with following(kube.watch(Pod, namespace="slurm")) as told:
        await told.until(lambda t: t.alive)
        api.put("pods", "b", "slurm", status={"phase": "Pending"})
        api.put("pods", "b", "slurm", status={"phase": "Running"})
        api.put("pods", "elsewhere", "other")
        api.remove("pods", "a", "slurm")
        await told.until(lambda t: t.names == {"b"})
    assert told.kinds() == ["changed", "synced", "changed", "changed", "gone"]
    running = told.deltas[3]
    assert running.before is not None
    assert running.after is not None
    assert (running.before.status.phase, running.after.status.phase) == ("Pending", "Running")


async def test_only_what_is_selected_is_told(api: FakeKube, kube: KubeClient) -> None:
    """The server filters, in the list and in the watch."""
    api.put("pods", "a", "slurm", metadata={"labels": {"app": "slurmd"}})
    api.put("pods", "b", "slurm")
    async with following(kube.watch(Pod, label_selector="app=slurmd")) as told:
        await told.until(lambda t: t.alive)
        api.put("pods", "c", "slurm")
        api.put("pods", "d", "slurm", metadata={"labels": {"app": "slurmd"}})
        await told.until(lambda t: t.names == {"a", "d"})


async def test_a_bad_hold_is_told_with_its_fault(api: FakeKube, kube: KubeClient) -> None:
    """It neither ends the watch nor hides others."""
    api.put("holds", "bad", "slurm", spec={"workers": 7})
    api.put("holds", "good", "slurm", spec={"workers": {"names": ["w"]}, "reason": "x"})
    async with following(kube.watch(Hold)) as told:
        await told.until(lambda t: t.names == {"bad", "good"})
    faults = {d.after.metadata.name: d.after.fault for d in told.deltas if d.after}
    assert faults["good"] == ""
    assert "spec.workers" in faults["bad"]


async def test_a_half_open_connection_is_noticed_and_nothing_is_lost(api: FakeKube, make_client: MakeClient) -> None:
    """BR-096: the server says nothing more and does not close; what happened meanwhile is told after the deadline."""
    kube = await make_client(progress_deadline_s=0.3)
    for name in "abc":
        api.put("pods", name, "slurm")
    async with following(kube.watch(Pod)) as told:
        await eventually(lambda: api.watches == 1)
        api.freeze()
        api.remove("pods", "a", "slurm")
        api.put("pods", "d", "slurm")
        await told.until(lambda t: t.names == {"b", "c", "d"}, within_s=2)
        assert told.alive
    assert "lost" not in told.kinds(), "the first try to read again worked"


async def test_a_silent_watch_on_a_silent_server_is_lost(api: FakeKube, make_client: MakeClient) -> None:
    """BR-096: nobody may believe the cache while nothing answers."""
    kube = await make_client(progress_deadline_s=0.2, timeout_s=0.2)
    api.put("pods", "a", "slurm")
    async with following(kube.watch(Pod)) as told:
        await told.until(lambda t: t.alive)
        port = int(api.url.rsplit(":", 1)[1])
        await api.stop()
        await told.until(lambda t: not t.alive)
        assert told.deltas[-1].error
        await api.start(port)
        await told.until(lambda t: t.alive, within_s=10)


async def test_bookmarks_are_a_sign_of_life_and_move_the_version(api: FakeKube, make_client: MakeClient) -> None:
    """A quiet kind is not read again, and goes on from the bookmark even when the list's version is compacted."""
    kube = await make_client(progress_deadline_s=0.5)
    async with following(kube.watch(Node)) as told:
        await told.until(lambda t: t.alive)
        await eventually(lambda: api.watches == 1)
        for _ in range(5):
            api.put("pods", "elsewhere", "slurm")
            api.bookmark()
            await asyncio.sleep(0.2)
        await told.until(lambda t: t.kinds().count("synced") == 6)
        api.compact()
        api.end_watches()
        await eventually(lambda: api.opened == 2 and api.watches == 1)
    assert kube.counters.lists == 1


@pytest.mark.parametrize("in_stream", [False, True], ids=["as HTTP status", "as ERROR object"])
async def test_a_compacted_version_leads_to_one_list_and_its_difference(
    api: FakeKube, make_client: MakeClient, in_stream: bool
) -> None:
    """BR-097: three deletions and two additions while away are derived from one list."""
    kube = await make_client()
    api.gone_in_stream = in_stream
    for i in range(5):
        api.put("pods", f"w-{i}", "slurm")
    async with following(kube.watch(Pod)) as told:
        await told.until(lambda t: t.alive)
        await eventually(lambda: api.watches == 1)
        api.freeze()
        for i in range(3):
            api.remove("pods", f"w-{i}", "slurm")
        for i in range(5, 7):
            api.put("pods", f"w-{i}", "slurm")
        api.compact()
        before = len(told.deltas)
        api.end_watches()
        await told.until(lambda t: t.names == {"w-3", "w-4", "w-5", "w-6"})
    kinds = [d.kind for d in told.deltas[before:] if d.kind in {"changed", "gone"}]
    assert sorted(kinds) == ["changed"] * 2 + ["gone"] * 3
    assert kube.counters.lists == 2


async def test_a_server_that_rejects_every_version_is_not_hammered(api: FakeKube, make_client: MakeClient) -> None:
    """BR-097, BR-098: 410 after each list; never two requests with the same version, and fewer and fewer tries."""
    kube = await make_client()
    api.put("pods", "a", "slurm")
    api.oldest = 10**9
    async with following(kube.watch(Pod)) as told:
        await asyncio.sleep(3.0)
        assert len(api.requests) <= 12
        assert not told.alive
        api.oldest = 0
        await told.until(lambda t: t.alive, within_s=15)
    assert api.opened <= kube.counters.lists


async def test_what_is_no_pod_never_reaches_the_consumer(api: FakeKube, kube: KubeClient) -> None:
    """BR-099: an unknown type, an object that is none and no JSON are counted; a 500 object is a failure."""
    api.put("pods", "a", "slurm")
    async with following(kube.watch(Pod)) as told:
        await eventually(lambda: api.watches == 1)
        api.say({"type": "GREETING", "object": {"metadata": {"name": "x"}}})
        api.say({"type": "ADDED", "object": {"metadata": {"name": 7}}})
        api.say(b"not json\n")
        api.say(b"\n")
        api.put("pods", "b", "slurm")
        await told.until(lambda t: t.names == {"a", "b"})
        assert kube.counters.ignored == 3
        api.say({"type": "ERROR", "object": status_object(500, "InternalError", "etcd: no leader")})
        await told.until(lambda t: "lost" in t.kinds())
        assert "no leader" in told.deltas[-1].error
        await told.until(lambda t: t.alive)
        assert told.names == {"a", "b"}
    assert all(isinstance(d.after, Pod) for d in told.deltas if d.kind == "changed")


async def test_a_clean_end_is_no_event(api: FakeKube, kube: KubeClient) -> None:
    """BR-101: the server ends watches after minutes; one goes on from the last version, without a list or a word."""
    api.put("pods", "a", "slurm")
    async with following(kube.watch(Pod)) as told:
        for i in range(3):
            await eventually(lambda: api.watches == 1)
            await asyncio.sleep(1.0)
            api.end_watches()
            api.put("pods", f"b-{i}", "slurm")
        await told.until(lambda t: t.names == {"a", "b-0", "b-1", "b-2"})
        await eventually(lambda: api.watches == 1)
    assert told.kinds() == ["changed", "synced", "changed", "changed", "changed"]
    assert (kube.counters.lists, api.opened) == (1, 4)


async def test_a_server_that_ends_watches_at_once_is_asked_once_a_second(api: FakeKube, kube: KubeClient) -> None:
    """BR-098: a clean end is no licence to spin."""

    async def end_all() -> None:
        while True:
            api.end_watches()
            await asyncio.sleep(0.01)

    async with following(kube.watch(Pod)) as told, asyncio.TaskGroup() as group:
        ending = group.create_task(end_all())
        await asyncio.sleep(2.5)
        assert 2 <= api.opened <= 4
        assert told.alive
        ending.cancel()


async def test_each_watch_asks_to_be_ended_after_another_time(api: FakeKube, kube: KubeClient) -> None:
    """So that a thousand watches do not come back in the same second; and bookmarks are asked for."""
    async with following(kube.watch(Pod)), following(kube.watch(Node)):
        await eventually(lambda: api.watches == 2)
    queries = [q for _, _, q in api.requests if "watch" in q]
    times = [int(q["timeoutSeconds"]) for q in queries]
    assert times[0] != times[1]
    assert all(240 <= t <= 480 for t in times)
    assert all(q["allowWatchBookmarks"] == "true" for q in queries)


async def test_a_restarted_server_is_met_again_without_a_restart_of_ours(api: FakeKube, kube: KubeClient) -> None:
    """BR-103: connections are reset, the port is closed, then it answers 500 for a while; one `lost`, one `synced`.

    A 503 asks for half a minute (the real server's does, until custom resources are served); a watch tries sooner.
    """
    api.put("pods", "a", "slurm")
    async with following(kube.watch(Pod)) as told:
        await eventually(lambda: api.watches == 1)
        port = int(api.url.rsplit(":", 1)[1])
        await api.stop()
        await told.until(lambda t: "lost" in t.kinds())
        api.put("pods", "b", "slurm")
        api.remove("pods", "a", "slurm")
        api.compact()
        api.failing.extend([(500, "InternalError"), (503, "ServiceUnavailable")])
        await api.start(port)
        await told.until(lambda t: t.names == {"b"} and t.alive, within_s=10)
    assert told.kinds() == ["changed", "synced", "lost", "gone", "changed", "synced"]


async def test_a_server_that_asks_for_patience_gets_it(api: FakeKube, kube: KubeClient) -> None:
    """429 with retryAfterSeconds: 2."""
    api.failing.extend([(429, "TooManyRequests")])
    async with following(kube.watch(Pod)) as told:
        await asyncio.sleep(1.5)
        assert len(api.requests) == 1
        await told.until(lambda t: t.alive)


async def test_a_page_that_expires_in_mid_list_starts_the_list_again(api: FakeKube, make_client: MakeClient) -> None:
    """The second time without pages, as the API asks for."""
    kube = await make_client(page=2)
    for i in range(5):
        api.put("pods", f"w-{i}", "slurm")
    answer = api._list
    pages = 0

    def expire(resource: str, namespace: str, query: dict[str, str]) -> dict[str, object]:
        nonlocal pages
        pages += 1
        if pages == 2:
            api.version += 1
            api.compact()
        return answer(resource, namespace, query)

    api._list = expire  # type: ignore[method-assign]
    async with following(kube.watch(Pod)) as told:
        await told.until(lambda t: t.alive)
        assert len(told.names) == 5
    assert "lost" not in told.kinds()


async def test_a_pod_of_the_same_name_is_another_pod(api: FakeKube, make_client: MakeClient) -> None:
    """Replaced while we did not look: gone, then there, never one pod that changed its uid."""
    kube = await make_client(progress_deadline_s=0.2)
    old = api.put("pods", "w", "slurm")["metadata"]["uid"]
    async with following(kube.watch(Pod)) as told:
        await eventually(lambda: api.watches == 1)
        api.freeze()
        api.remove("pods", "w", "slurm")
        new = api.put("pods", "w", "slurm")["metadata"]["uid"]
        await told.until(lambda t: "gone" in t.kinds() and t.names == {"w"})
    assert old != new
    assert [(d.kind, d.before is None) for d in told.deltas if d.kind != "synced"] == [
        ("changed", True),
        ("gone", False),
        ("changed", True),
    ]


async def test_whatever_is_dropped_the_end_is_the_truth(api: FakeKube, make_client: MakeClient) -> None:
    """BR-106: a thousand flips under cut, ended, frozen and compacted watches; the model ends equal to the server."""
    kube = await make_client(progress_deadline_s=0.3)
    chance = random.Random(11)
    async with following(kube.watch(Pod)) as told:
        await told.until(lambda t: t.alive)
        for i in range(1000):
            name = f"w-{chance.randrange(8)}"
            if chance.random() < 0.2 and ("pods", "slurm", name) in api._objects:
                api.remove("pods", name, "slurm")
            else:
                api.put("pods", name, "slurm", status={"phase": chance.choice(["Pending", "Running"])})
            match chance.randrange(150):
                case 0:
                    api.cut()
                case 1:
                    api.end_watches()
                case 2:
                    api.freeze()
                case 3:
                    api.compact()
                    api.cut()
            if i % 10 == 0:
                await asyncio.sleep(0.01)
        truth = {n: o["metadata"]["resourceVersion"] for (_, _, n), o in api._objects.items()}
        await told.until(lambda t: {n: p.metadata.resource_version for n, p in t.there.items()} == truth, within_s=20)
