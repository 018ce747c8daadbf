"""Wishes over NATS: what is said of each answer, how the command ends, and what cannot be meant."""

import json
from typing import Any

import pytest

from lockstep.base.errors import BadInput
from lockstep.cli.cancel_drain import all_of_mine
from lockstep.cli.connect import Reach, settings_of
from lockstep.cli.exits import Exit, Stop
from lockstep.cli.release import Sight, ask_for
from lockstep.cli.through import faults_of_way, goes_by_nats, nats_user, told
from lockstep.contracts.events import RequestAccepted, RequestDone, RequestEvent, RequestProgressed, RequestRefused
from lockstep.contracts.facts import Fact
from lockstep.contracts.hold import WorkerSelector
from tests.builders import NOW, a_hold, a_slurm_node
from tests.unit.cli.seen import a_fleet, args, captured, parts

ME = "nats:ops"


def answer(kind: type[RequestEvent], verb: str = "hold", **fields: Any) -> RequestEvent:
    """An answer to a request of ops."""
    return kind(id="e", at=NOW, cluster="main", request="r-1", verb=verb, by="ops", **fields)


@pytest.mark.parametrize(
    ("event", "text", "waiting", "otherwise"),
    [
        (answer(RequestAccepted, hold="slurm/dimm", workers=1), "accepted: slurm/dimm, 1 worker", None, Exit.OK),
        (answer(RequestAccepted, hold="slurm/dimm", workers=2), "accepted: slurm/dimm, 2 workers", None, Exit.OK),
        (answer(RequestProgressed, selected=3, draining=1), "progress: 0 of 3 drained, 1 draining", None, None),
        (answer(RequestDone, outcome="drained"), "done: drained", Exit.OK, Exit.OK),
        (answer(RequestDone, outcome="overdue"), "done: overdue", Exit.NO, Exit.NO),
        (answer(RequestDone, outcome="cancelled"), "done: cancelled", Exit.NO, Exit.NO),
        (answer(RequestDone, "cancel-drain", outcome="cancelled"), "done: cancelled", Exit.OK, Exit.OK),
        (answer(RequestDone, "release", outcome="released"), "done: released", Exit.OK, Exit.OK),
    ],
)
def test_each_answer_is_told_and_ends_the_command_or_not(
    event: RequestEvent, text: str, waiting: Exit | None, otherwise: Exit | None
) -> None:
    """In words, or as the event itself; a hold that was not drained is a no."""
    out, written, _ = captured()
    assert told(event, out, to_the_end=True) == waiting
    assert told(event, out, to_the_end=False) == otherwise
    assert written.getvalue() == f"{text}\n" * 2
    out.form = "json"
    told(event, out, to_the_end=True)
    assert json.loads(written.getvalue().splitlines()[-1])["request"] == "r-1"


@pytest.mark.parametrize(
    ("code", "exit_"),
    [
        ("invalid", Exit.BAD_INPUT),
        ("denied", Exit.DENIED),
        ("not-found", Exit.NOT_FOUND),
        ("busy", Exit.NO),
        ("failed", Exit.NO),
        ("", Exit.NO),
        ("new", Exit.NO),
    ],
)
def test_a_refusal_ends_with_the_code_of_its_kind(code: str, exit_: Exit) -> None:
    """As if Kubernetes had refused; a kind that is not known yet is a no."""
    out, written, _ = captured()
    with pytest.raises(Stop, match=r"refused: spec\.reason: is empty") as stop:
        told(answer(RequestRefused, fault="spec.reason: is empty", code=code), out, to_the_end=False)
    assert (stop.value.code, written.getvalue()) == (exit_, "")


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["--through", "kubernetes", "--request-id", "x"], "--request-id: is for requests"),
        (["--through", "kubernetes", "--nats-user", "x"], "--nats-user: is for requests"),
        (["--request-id", "a b"], "--request-id 'a b': want letters, digits"),
        (["--request-id", "-x"], None),
        (["--request-id", "x" * 129], "at most 128"),
        (["--request-id", "fw-7.2026:a_b"], None),
        ([], None),
    ],
)
def test_options_about_the_way_that_make_no_sense_are_named(words: list[str], fault: str | None) -> None:
    """Before anything is read."""
    if words[-1:] == ["-x"]:
        words = ["--request-id=-x"]
        fault = "--request-id '-x'"
    found = faults_of_way(args("cancel-drain", "gpu-1", *words))
    assert [fault in f for f in found] == ([True] if fault else [])


async def test_without_a_kubeconfig_a_wish_is_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless the way is said; and who asks is who the settings say, or the option."""

    async def none(_: Reach) -> None:
        raise BadInput(["kubernetes access: no configuration"])

    monkeypatch.setattr(Reach, "kube", none)
    asked = args("release", "dimm", "--nats-user", "ana")
    reach = Reach(settings_of(asked, {}))
    assert await goes_by_nats(asked, reach)
    assert nats_user(asked, reach) == "ana"
    assert not await goes_by_nats(args("release", "dimm", "--through", "kubernetes"), reach)


def sight(*facts: Fact) -> Sight:
    """What ops sees over NATS."""
    return Sight.of(a_fleet(*facts), ["main"], ME)


def mine(name: str = "dimm", **fields: Any) -> Fact:
    """A Hold that ops asked for."""
    return a_hold(name, owner=ME, requested_by="ops", **fields)


async def test_only_holds_are_ended_by_a_request() -> None:
    """A drain in Slurm is ended there; nothing is asked for when one of several cannot be."""
    seen = sight(*parts(7), mine(), a_slurm_node("IDLE+DRAIN", name="gpu-1", reason="fan"))
    targets = [seen.target(row) for row in seen.rows]
    asked = args("release", "dimm", "slurm/gpu-1", "--request-id", "r-1")
    with pytest.raises(BadInput) as wrong:
        await ask_for(targets, asked, Reach(settings_of(asked, {})), captured()[0])
    assert [fault.split(":")[0] for fault in wrong.value.faults] == ["slurm/gpu-1", "--request-id"]


def test_cancel_drain_ends_all_own_holds_or_names_what_else_stands() -> None:
    """On Kubernetes by the same rule as over NATS."""
    key = ("main", "gpu-7")
    assert [row.id for row in all_of_mine(key, sight(*parts(7), mine(), mine("fan")))] == [
        "hold/slurm/dimm",
        "hold/slurm/fan",
    ]
    others = sight(*parts(1), *parts(7), mine(), mine("rack", workers=WorkerSelector(names=["gpu-1", "gpu-7"])))
    with pytest.raises(Stop, match=r"is kept out by hold/slurm/rack of nats:ops \(2 workers\)") as stop:
        all_of_mine(key, others)
    assert stop.value.code == Exit.DENIED
    with pytest.raises(Stop, match="no hold of yours stands on it"):
        all_of_mine(key, sight(*parts(7)))
