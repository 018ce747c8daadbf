"""`lockstep get`: what is listed, and in which form."""

import json
from collections.abc import Callable

import msgspec
import pytest
import yaml

from lockstep.cli import choose, get
from lockstep.cli.exits import Exit, Stop
from lockstep.cli.output import show
from lockstep.cli.rows import cluster_rows, hold_rows
from lockstep.cli.view import Fleet, WorkerView, worker_view
from lockstep.contracts.facts import Progress
from lockstep.contracts.hold import WorkerSelector
from tests.builders import OURS, a_desired, a_hold, a_job, a_view, ago
from tests.unit.cli.seen import a_fleet, captured, parts

HELD = a_desired(a_view(), progress=Progress.DRAINING, why_not="jobs run or complete")


def a_busy_fleet() -> Fleet:
    """gpu-2 and gpu-10 idle, gpu-7 held and draining with a job."""
    return a_fleet(
        *parts(10), *parts(2), *parts(7, "MIXED+DRAIN", reason=OURS, gres_used="gpu:2"), a_hold(), HELD, a_job()
    )


def shown(fleet: Fleet, form: str = "table", **chosen: object) -> str:
    """What `get workers` prints."""
    out, text, _ = captured()
    known = {"names": [], "held": False, "test": None} | chosen
    views = get.chosen(fleet, fleet.workers(["main"]), **known)  # type: ignore[arg-type]
    show(out, form, "WorkerList", views, names=lambda v: f"{v.cluster}/{v.name}", columns=columns())
    return text.getvalue()


def columns() -> Callable[[WorkerView, bool], dict[str, str]]:
    """The columns of one cluster."""
    return get._worker_columns(several=False, ages=True)


def test_a_table_has_one_line_a_worker_in_the_order_in_which_people_count() -> None:
    """gpu-2 comes before gpu-10; who holds and what is waited for is on the line."""
    assert shown(a_busy_fleet()) == (
        "WORKER   PHASE      HELD BY           DRAIN              NODE      REASON\n"
        "gpu-2    idle       -                 -                  host-2    -\n"
        "gpu-7    draining   ops@example.com   draining (1 job)   host-7    lockstep: ops@example.com: DIMM B2\n"
        "gpu-10   idle       -                 -                  host-10   -\n"
    )


def test_wide_adds_states_pods_and_protection() -> None:
    """`-o wide` shows Slurm's own words, the pod, and what is allocated."""
    header, _, line, _ = shown(a_busy_fleet(), "wide").splitlines()

    assert header.split()[6:11] == ["STATE", "POD", "PROTECTED", "PARTITIONS", "GRES"]
    assert "MIXED+DRAIN" in line
    assert "slurm/gpu-7" in line
    assert "gpu:2" in line


def test_json_and_yaml_carry_every_field_of_every_worker() -> None:
    """Scripts get the same keys for each item, also where there is nothing to say."""
    answer = json.loads(shown(a_busy_fleet(), "json"))

    assert answer == yaml.safe_load(shown(a_busy_fleet(), "yaml"))
    assert answer["kind"] == "WorkerList"
    assert {tuple(item) for item in answer["items"]} == {WorkerView.__struct_fields__}
    seven = answer["items"][1]
    assert (seven["phase"], seven["in_service"], seven["progress"]) == ("draining", False, "draining")
    assert seven["holds"][0]["id"] == "hold/slurm/dimm"
    assert seven["waiting_for"][0]["id"] == 42


def test_names_are_cluster_and_name() -> None:
    """`-o name` gives what other commands take."""
    assert shown(a_busy_fleet(), "name").split() == ["main/gpu-2", "main/gpu-7", "main/gpu-10"]


def test_held_leaves_out_workers_in_service() -> None:
    """`--held` lists only what a hold keeps out."""
    assert shown(a_busy_fleet(), "name", held=True).split() == ["main/gpu-7"]


def test_a_selector_looks_at_the_pods_labels() -> None:
    """`-l` keeps the workers whose pod has the labels."""
    assert shown(a_busy_fleet(), "name", test=choose.selector("rack=1")).split() == ["main/gpu-7"]


def test_an_unknown_name_is_not_found_and_the_nearest_is_named() -> None:
    """A slip of the finger ends with code 3 and a hint."""
    with pytest.raises(Stop, match=r"'gpu-77'.*nearest: gpu-7") as told:
        shown(a_busy_fleet(), names=["gpu-77"])

    assert told.value.code is Exit.NOT_FOUND


def test_an_old_source_is_marked_on_every_line() -> None:
    """A phase that was read too long ago never looks like one that is true now."""
    fleet = a_fleet(*parts(7), now=ago(-60))

    assert "idle (stale)" in shown(fleet)


def test_a_drain_of_ours_without_a_hold_says_what_it_waits_for() -> None:
    """After a release the way back may take a while, and the table says why."""
    slurm, pod, node = parts(7, "IDLE+DRAIN", reason=OURS)
    fleet = a_fleet(slurm, msgspec.structs.replace(pod, ready=False), node)

    line = shown(fleet).splitlines()[1]

    assert "lifting" in line
    assert "waits: its pod is not ready" in line


def test_an_empty_list_prints_nothing_but_a_remark() -> None:
    """A pipe gets nothing, the person gets a word on stderr."""
    out, text, beside = captured()

    show(out, "table", "WorkerList", [], names=str, columns=columns())

    assert text.getvalue() == ""
    assert "No workers." in beside.getvalue()


def test_holds_are_listed_wherever_they_live() -> None:
    """A Hold resource, a cordon and an administrator's drain are rows of one table."""
    slurm, pod, node = parts(7, "IDLE+DRAIN", reason="bad fan", reason_by="root")
    cordoned = msgspec.structs.replace(node, unschedulable=True)
    fleet = a_fleet(slurm, pod, cordoned, a_hold())
    views = [worker_view(w, fleet) for w in fleet.workers(["main"])]

    rows = hold_rows(fleet, views, ["main"])

    assert [r.id for r in rows] == ["slurm/gpu-7", "hold/slurm/dimm", "cordon/host-7"]
    assert [r.owner for r in rows] == ["root", "ops@example.com", "kubernetes"]
    assert all(r.workers == ["gpu-7"] for r in rows)


def test_a_hold_that_selects_nobody_or_cannot_be_used_is_still_listed() -> None:
    """What was asked for and does not work is seen, with its fault."""
    nobody = a_hold("nobody", workers=WorkerSelector(names=["gpu-99"]))
    bad = a_hold("bad", workers=WorkerSelector(hostlist="gpu-[1-"))
    over = a_hold("over", expires_at=ago(5))
    fleet = a_fleet(*parts(7), nobody, bad, over)
    views = [worker_view(w, fleet) for w in fleet.workers(["main"])]

    phases = {r.id: (r.phase, r.fault) for r in hold_rows(fleet, views, ["main"])}

    assert phases["hold/slurm/nobody"] == ("pending", "")
    assert phases["hold/slurm/over"] == ("expired", "")
    assert phases["hold/slurm/bad"][0] == "refused"
    assert "spec.workers.hostlist" in phases["hold/slurm/bad"][1]


def test_a_cluster_is_counted_by_phase() -> None:
    """The totals of a cluster, and whether its sources are fresh."""
    fleet = a_busy_fleet()
    views = [worker_view(w, fleet) for w in fleet.workers(["main"])]

    (row,) = cluster_rows(fleet, views, ["main"])

    assert (row.workers, row.held, row.phases["idle"], row.phases["draining"], row.stale) == (3, 1, 2, 1, [])
