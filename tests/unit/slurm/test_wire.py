import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lockstep.contracts.facts import SlurmNode
from lockstep.slurm import convert, reasons, states, wire

GOLDEN = Path(__file__).parent / "golden"
SPOKEN = ["26.05-v0.0.45", "26.05-v0.0.44", "26.05-v0.0.43", "26.05-v0.0.42", "24.11-v0.0.42"]
NO_VAL, INFINITE = 0xFFFFFFFE, 0xFFFFFFFF


def golden(spoken: str, what: str) -> bytes:
    """An answer that was recorded from a real slurmrestd."""
    return (GOLDEN / f"{spoken}-{what}.json").read_bytes()


def read_nodes(*nodes: dict[str, Any] | str) -> list[SlurmNode]:
    """The facts of an answer with these nodes."""
    texts = [node if isinstance(node, str) else json.dumps(node) for node in nodes]
    reply = wire.decode(f'{{"nodes": [{",".join(texts)}]}}'.encode(), wire.Nodes)
    return [convert.node("main", node) for node in reply.nodes or []]


def read_node(**fields: Any) -> SlurmNode:
    """The fact of a node with these fields."""
    (node,) = read_nodes({"name": "gpu-1", "state": ["IDLE"], **fields})
    return node


@pytest.mark.parametrize("spoken", SPOKEN)
def test_nodes_recorded_from_every_parser_read_the_same(spoken: str) -> None:
    """What a node is does not depend on which data parser says it."""
    reply = wire.decode(golden(spoken, "nodes"), wire.Nodes)
    busy, held, idle = [convert.node("main", node) for node in reply.nodes or []]
    assert (busy.name, busy.base, busy.alloc_cpus, busy.alloc_memory_mib) == ("gpu-1", "MIXED", 2, 2000)
    assert (busy.gres, busy.gres_used) == ("gpu:h100:8", "gpu:h100:2(IDX:0-1)")
    assert busy.tres_used == "cpu=2,mem=2000M"
    assert states.is_drain(held.base, held.flags)
    assert (held.reason, held.reason_by) == ('ECC=3 gpu=1 [x] "y', "root")
    assert held.reason_at is not None
    assert (idle.base, idle.flags, idle.features, idle.partitions) == ("IDLE", ["DYNAMIC_NORM"], ["worker"], ["train"])
    assert idle.boot_time is not None
    assert idle.slurmd_start is not None
    assert idle.boot_time < idle.slurmd_start
    assert (wire.number(reply.last_update) or 0) > 1_700_000_000


@pytest.mark.parametrize("spoken", SPOKEN)
def test_jobs_recorded_from_every_parser_read_the_same(spoken: str) -> None:
    """A running job with its node and times."""
    (row,) = wire.decode(golden(spoken, "jobs"), wire.Jobs).jobs or []
    job = convert.job("main", row)
    assert (job.job_id, job.states, job.user, job.partition, job.nodes) == (42, ["RUNNING"], "root", "train", ["gpu-1"])
    assert job.can_requeue
    assert job.start is not None
    assert job.end is not None
    assert job.start < job.end


@pytest.mark.parametrize("spoken", SPOKEN)
def test_the_rest_recorded_from_every_parser_reads_the_same(spoken: str) -> None:
    """Reservations, partitions and who answers."""
    (row,) = wire.decode(golden(spoken, "reservations"), wire.Reservations).reservations or []
    found = convert.reservation("main", row)
    assert (found.name, found.nodes, found.maintenance) == ("maint", ["gpu-3", "gpu-4"], True)
    (partition,) = wire.decode(golden(spoken, "partitions"), wire.Partitions).partitions or []
    assert partition.nodes
    assert convert.names(partition.nodes.configured) == ["gpu-1", "gpu-2", "gpu-3", "gpu-4"]
    ping = wire.decode(golden(spoken, "ping"), wire.Pings)
    assert [one.responding for one in ping.pings or []] == [True]
    assert ping.meta
    assert ping.meta.slurm
    assert ping.meta.slurm.cluster == "main"
    assert (ping.meta.slurm.release or "").startswith(spoken[:5])


@pytest.mark.parametrize(
    "shape",
    [
        {"state": ["MIXED", "DRAIN"]},
        {"state": ["DRAIN", "MIXED"]},
        {"state": "MIXED", "state_flags": ["DRAIN"]},
        {"state": "mixed", "state_flags": "DRAIN"},
        {"state": ["MIXED"], "state_flags": ["DRAIN"]},
        {"state": "MIXED+DRAIN"},
        {"state": "MIXED+DRAIN", "state_flags": None},
    ],
    ids=str,
)
def test_drain_is_found_wherever_a_parser_puts_it(shape: dict[str, Any]) -> None:
    """A state as text with flags apart, as a list, or joined, is one and the same node."""
    assert read_node(**shape) == read_node(state=["MIXED", "DRAIN"])
    assert states.is_drain("MIXED", read_node(**shape).flags)


def test_a_node_without_a_state_is_unknown() -> None:
    """Missing or null is no idle."""
    assert read_nodes({"name": "a"}, {"name": "b", "state": None})[0].base == "UNKNOWN"
    assert read_node(state=None).base == "UNKNOWN"


@pytest.mark.parametrize(
    ("given", "known"),
    [
        (512, 512),
        ("512", 512),
        (512.0, 512),
        ({"set": True, "infinite": False, "number": 512}, 512),
        ({"set": True, "infinite": False, "number": 512.0}, 512),
        ({"set": False, "infinite": False, "number": 0}, None),
        ({"set": False, "infinite": True, "number": 0}, None),
        ({"set": True, "infinite": True, "number": 7}, None),
        (2**33 + 5, 2**33 + 5),
        (65_535, 65_535),
        (NO_VAL, None),
        (INFINITE, None),
        (0xFFFFFFFFFFFFFFFE, None),
        ("unknown", None),
        (None, None),
    ],
    ids=str,
)
def test_a_number_has_many_shapes_and_one_meaning(given: Any, known: int | None) -> None:
    """Plain, sentinel, struct, text, null, beyond 32 bits."""
    (node,) = (
        wire.decode(json.dumps({"nodes": [{"name": "a", "alloc_memory": given}]}).encode(), wire.Nodes).nodes or []
    )
    assert wire.number(node.alloc_memory) == known


@pytest.mark.parametrize("odd", ["Infinity", "-Infinity", "NaN", "1e400", "-1e999"])
def test_a_number_that_is_no_json_is_nothing(odd: str) -> None:
    """It does not stop the answer, is never passed on, and the same letters in a text stay."""
    text = r'"name": "NaN", "reason": "load is NaN, \"Infinity\" and 1e400"'
    body = f'{{{text}, "alloc_cpus": {odd}, "boot_time": {{"set": true, "number": {odd}}}}}'
    nodes = read_nodes(body, {"name": "b", "state": ["IDLE"]})
    assert [node.name for node in nodes] == ["NaN", "b"]
    assert nodes[0].reason == 'load is NaN, "Infinity" and 1e400'
    assert (nodes[0].alloc_cpus, nodes[0].boot_time) == (convert.NOT_SAID, None)
    assert json.loads(msgspec.json.encode(nodes), parse_constant=pytest.fail)


@pytest.mark.parametrize(
    ("given", "known"),
    [
        (0, None),
        (INFINITE, None),
        ({"set": True, "infinite": False, "number": 0}, None),
        ({"set": False, "infinite": True, "number": 0}, None),
        (1_700_000_000, datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)),
        ({"set": True, "infinite": False, "number": 1_700_000_000}, datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)),
        (10**15, None),
        (-5, None),
        (None, None),
    ],
    ids=str,
)
def test_a_time_that_is_none_is_none(given: Any, known: datetime | None) -> None:
    """Never, unset, without end, and beyond all calendars."""
    assert read_node(boot_time=given).boot_time == known


@pytest.mark.parametrize(
    "nodes",
    [
        "gpu-[1-2]",
        ["gpu-1", "gpu-2"],
        ["gpu-[1-2]"],
        {"0": {"nodename": "gpu-1"}, "1": {"nodename": "gpu-2"}},
        [{"nodename": "gpu-1"}, {"name": "gpu-2"}],
        {"10": "gpu-2", "9": "gpu-1"},
    ],
    ids=str,
)
def test_nodes_of_a_job_as_text_map_or_array_are_the_same(nodes: Any) -> None:
    """An object keyed by index reads as the array it stands for."""
    body = json.dumps({"jobs": [{"job_id": 7, "job_state": "RUNNING", "nodes": nodes}]}).encode()
    (row,) = wire.decode(body, wire.Jobs).jobs or []
    assert convert.job("main", row).nodes == ["gpu-1", "gpu-2"]


@pytest.mark.parametrize("nodes", [None, "", "(null)", [], {}], ids=str)
def test_a_job_without_nodes_has_none(nodes: Any) -> None:
    """Absent, empty, or Slurm's word for nothing."""
    assert convert.names(nodes) == []


@pytest.mark.parametrize("state", ["RUNNING", ["RUNNING"]], ids=str)
def test_a_jobs_state_is_text_or_list(state: Any) -> None:
    """It became a list in one release."""
    body = json.dumps({"jobs": [{"job_id": 7, "job_state": state}]}).encode()
    (row,) = wire.decode(body, wire.Jobs).jobs or []
    assert convert.job("main", row).states == ["RUNNING"]


def test_only_a_batch_job_can_be_requeued() -> None:
    """Slurm's own setting says yes for an interactive job too, and then refuses."""
    assert convert.job("main", wire.Job(job_id=1, requeue=True, batch_flag=True)).can_requeue
    assert convert.job("main", wire.Job(job_id=1, requeue=True, batch_flag=1)).can_requeue
    assert not convert.job("main", wire.Job(job_id=1, requeue=True, batch_flag=False)).can_requeue
    assert not convert.job("main", wire.Job(job_id=1, requeue=False, batch_flag=True)).can_requeue


def test_one_unreadable_record_does_not_stop_the_others() -> None:
    """It is there, and nobody knows its state: it neither vanishes nor reads as idle."""
    bad = {"name": "bad", "state": ["IDLE"], "alloc_cpus": [["?"]]}
    good, unreadable = read_nodes({"name": "gpu-2", "state": ["IDLE", "DRAIN"], "reason": 'a=b=c [x] "y"'}, bad)
    assert (good.name, good.reason) == ("gpu-2", 'a=b=c [x] "y"')
    assert unreadable.name == "bad"
    assert states.phase_of(unreadable.base, unreadable.flags) is states.NodePhase.UNKNOWN
    body = json.dumps({"jobs": [{"job_id": 7, "nodes": "gpu-1", "requeue": [1]}, {"job_id": 8}]}).encode()
    first, second = wire.decode(body, wire.Jobs).jobs or []
    assert states.job_holds_nodes(convert.job("main", first).states)
    assert convert.job("main", first).nodes == ["gpu-1"]
    assert second.job_id == 8


@pytest.mark.parametrize("author", [None, "", "root", "slurm", "4294967294"])
def test_the_author_of_a_reason_decides_nothing(author: str | None) -> None:
    """All who use one token look alike; only the mark in the text is looked at."""
    foreign = read_node(state=["IDLE", "DRAIN"], reason="swap", reason_set_by_user=author)
    ours = read_node(state=["IDLE", "DRAIN"], reason="lockstep: ops: swap", reason_set_by_user=author)
    assert not reasons.is_ours(foreign.reason)
    assert reasons.is_ours(ours.reason)


def test_free_text_is_kept_whole() -> None:
    """Spaces, equals signs, brackets and letters of all alphabets come through a list of 200 nodes unchanged."""
    texts = [f"Not responding [slurm@{number}] a=b  c=[{number}] ä ✓ 漢" for number in range(200)]
    nodes = read_nodes(*({"name": f"n{i}", "state": ["DOWN"], "reason": t, "comment": t} for i, t in enumerate(texts)))
    assert [node.reason for node in nodes] == texts
    assert [node.comment for node in nodes] == texts


def test_foreign_text_is_bounded_and_on_one_line() -> None:
    """Slurm accepts 3,000 characters and newlines; what we pass on has neither."""
    node = read_node(state=["IDLE", "DRAIN"], reason="x\ny" + "z" * 3000, comment="\x1b[31m")
    assert node.reason.startswith("x yzz")
    assert len(node.reason) <= convert.TEXT_MAX
    assert node.comment == "[31m"


def test_our_reason_without_a_state_is_gone() -> None:
    """Slurm 24.11 keeps the words after an UNDRAIN; they would look like ours under the next drain without words."""
    left = read_node(
        state=["IDLE"], reason="lockstep: ops: x", reason_set_by_user="slurm", reason_changed_at=1_700_000_000
    )
    assert (left.reason, left.reason_by, left.reason_at) == ("", "", None)
    assert read_node(state=["IDLE"], reason="note of a person").reason == "note of a person"
    assert read_node(state=["DOWN"], reason="lockstep: ops: x").reason == "lockstep: ops: x"


@pytest.mark.parametrize("given", [{}, {"alloc_cpus": None}, {"alloc_cpus": NO_VAL}, {"alloc_cpus": "?"}], ids=str)
def test_an_allocation_that_is_not_said_is_not_nothing(given: dict[str, Any]) -> None:
    """Whoever asks whether anything is in use hears yes."""
    assert read_node(**given).alloc_cpus
    assert read_node(**given).alloc_memory_mib
    assert read_node(alloc_cpus=0).alloc_cpus == 0


def test_no_reason_has_no_author() -> None:
    """Slurm 24.11 names root as the author of nothing."""
    assert read_node(reason="", reason_set_by_user="root").reason_by == ""


def test_a_node_in_three_partitions_is_one_node() -> None:
    """Its allocation counts once."""
    (node,) = read_nodes({"name": "a", "state": ["MIXED"], "alloc_cpus": 16, "partitions": ["p1", "p2", "p3"]})
    assert (node.alloc_cpus, node.partitions) == (16, ["p1", "p2", "p3"])


@pytest.mark.parametrize("body", [b"", b"{", b'{"nodes": [{"name": "a"', b"<html>", b"[]", b'{"nodes": 5}'])
def test_what_is_no_answer_raises(body: bytes) -> None:
    """Cut off, no JSON, or something else altogether."""
    with pytest.raises(msgspec.DecodeError):
        wire.decode(body, wire.Nodes)


def test_a_list_without_nodes_is_not_an_empty_list() -> None:
    """An answer that lacks the part says nothing about it."""
    assert wire.decode(b'{"errors": []}', wire.Nodes).nodes is None
    assert wire.decode(b'{"nodes": []}', wire.Nodes).nodes == []


def test_a_thousand_nodes_are_read_quickly() -> None:
    """The list is read every few seconds: some 7 ms where this was written, and no look at each letter."""
    one = json.loads(golden("26.05-v0.0.45", "nodes"))["nodes"][1]
    body = json.dumps({"nodes": [{**one, "name": f"gpu-{number}"} for number in range(1000)]}, indent=2).encode()

    def once() -> float:
        started = time.perf_counter()
        reply = wire.decode(body, wire.Nodes)
        assert len([convert.node("main", row) for row in reply.nodes or []]) == 1000
        return time.perf_counter() - started

    assert min(once() for _ in range(5)) < 0.05
