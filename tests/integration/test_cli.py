"""The command as a person runs it, against all services and a real NATS, with a fake Kubernetes and Slurm."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from lockstep.base.clock import now
from lockstep.cli.exits import Exit
from tests.fakes.kube_store import Object
from tests.integration.whole import ME, START, Kube, Site, started, whole

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="site")
async def _site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    async with whole(folder) as site:
        yield site
    assert not (folder / "data" / "nats.url").exists()


async def test_a_hold_is_placed_explained_waited_for_and_released(site: Site) -> None:
    """The whole life of a hold, with a job on the worker."""
    job = site.slurm.start_job(["gpu-1"])
    await site.until("gpu-1", phase="busy")

    placed = await site.run("hold", "gpu-1", "--reason", "DIMM B2", "--deadline", "2h")
    assert placed.out == "hold/slurm/gpu-1-dimm-b2 holds 1 worker of cluster main\n"
    seen = await site.until("gpu-1", phase="draining", progress="draining")
    assert (seen["words"], seen["holds"][0]["owner"]) == (f"lockstep: {ME}: DIMM B2", ME)
    why = (await site.run("why", "gpu-1")).out
    assert f"waits for job {job}: RUNNING" in why
    assert "ends by: lockstep release gpu-1-dimm-b2" in why

    site.slurm.nodes["gpu-1"].base = "IDLE"
    del site.slurm.jobs[job]
    site.slurm.touch("nodes")
    site.slurm.touch("jobs")
    await site.until("gpu-1", progress="drained", protected=False)

    assert (await site.run("release", "gpu-1")).out == "hold/slurm/gpu-1-dimm-b2: released\n"
    assert (await site.until("gpu-1", in_service=True, phase="idle", protected=True))["words"] == ""


async def test_waiting_ends_when_the_worker_is_drained(site: Site) -> None:
    """`--wait` prints how far it is and ends with 0."""
    ran = await site.run("hold", "gpu-2", "--reason", "reboot", "--wait")

    assert ran.out.splitlines()[-1] == "drained: 1 of 1 drained"


async def test_a_second_hold_by_a_taken_name_gets_a_number(site: Site) -> None:
    """A proposed name gives way; one that was asked for does not."""
    first = await site.run("hold", "gpu-3", "--reason", "same")
    second = await site.run("hold", "gpu-3", "--reason", "same")
    third = await site.run("hold", "gpu-3", "--reason", "same", "--name", "gpu-3-same", code=Exit.BAD_INPUT)

    assert (first.out[:22], second.out[:24]) == ("hold/slurm/gpu-3-same ", "hold/slurm/gpu-3-same-2 ")
    assert "there is a Hold of that name" in third.err
    several = await site.run("release", "gpu-3", code=Exit.BAD_INPUT)
    assert "has 2 holds" in several.err
    assert len((await site.run("release", "gpu-3", "--all-mine")).out.splitlines()) == 2


async def test_somebody_elses_hold_is_ended_only_by_override_and_that_is_recorded(site: Site) -> None:
    """The owner is told, the override goes to NATS and to Kubernetes."""
    site.kube.user = "eve@example.com"
    await site.run("hold", "gpu-4", "--reason", "mine", "--name", "eves")
    site.kube.user = ME

    denied = await site.run("release", "eves", code=Exit.DENIED)
    assert "is of eve@example.com, not of me@example.com" in denied.err
    await site.run("release", "eves", "--override", code=Exit.BAD_INPUT)
    await site.until("gpu-4", in_service=False)
    await site.run("release", "eves", "--override", "--why", "needed now")

    recorded = (await site.run("events", "--kind", "hold.overridden", "--since", "5m")).out
    assert "main/gpu-4 overridden by me@example.com: hold/slurm/eves of eve@example.com: mine: needed now" in recorded
    assert "me@example.com ended hold/slurm/eves of eve@example.com: needed now" in site.kube.told()


async def test_an_override_ends_each_kind_of_hold_where_it_lives(site: Site) -> None:
    """A cordon, a condition, a pod's cordon and an administrator's drain."""
    override = ("--override", "--why", "needed")
    condition = {"type": "DiskPressure", "status": "True", "lastTransitionTime": START}
    status = site.kube.get("nodes", "host-5")["status"]
    site.kube.put(
        "nodes",
        "host-5",
        spec={"unschedulable": True},
        status=status | {"conditions": [*status["conditions"], condition]},
    )
    site.kube.put("pods", "gpu-5", "slurm", metadata=pod_cordoned(site.kube))
    site.slurm.nodes["gpu-6"].flags.add("DRAIN")
    site.slurm.nodes["gpu-6"].reason = "bad fan"
    site.slurm.touch("nodes")
    five = await site.until("gpu-5", in_service=False, progress="drained")
    ids = ["cordon/host-5", "pod-cordon/slurm/gpu-5", "condition/host-5/DiskPressure"]
    assert [hold["id"] for hold in five["holds"]] == ids
    await site.until("gpu-6", in_service=False)

    await site.run("release", *ids, "slurm/gpu-6", *override)

    assert not site.kube.get("nodes", "host-5")["spec"].get("unschedulable")
    assert site.kube.annotations("nodes", "host-5")["lockstep.sh/ignore-conditions"].startswith(
        "DiskPressure=2023-01-01T"
    )
    assert (
        "nodeset.slinky.slurm.net/pod-cordon" not in site.kube.get("pods", "gpu-5", "slurm")["metadata"]["annotations"]
    )
    assert (await site.until("gpu-6", in_service=True))["words"] == ""


def pod_cordoned(kube: Kube) -> Object:
    """The metadata of gpu-5 with Slinky's annotation."""
    meta: Object = kube.get("pods", "gpu-5", "slurm")["metadata"]
    return meta | {"annotations": {"nodeset.slinky.slurm.net/pod-cordon": "true"}}


async def test_events_follow_until_they_are_interrupted(site: Site) -> None:
    """What happens is printed as it happens, one JSON document a line; Ctrl-C ends with 130."""
    words = ("events", "--follow", "--worker", "gpu-2", "-o", "json")
    following = await started(*words, env=site.env | {"PYTHONUNBUFFERED": "1"})
    assert following.stdout is not None
    event: dict[str, Any] = {"type": ""}
    for number in range(20):
        site.kube.put("nodes", "host-2", spec={"unschedulable": number % 2 == 0})
        with suppress(TimeoutError):
            async with asyncio.timeout(2):
                event = json.loads(await following.stdout.readline())
        if event["type"] == "hold.placed.v1":
            break
    following.send_signal(signal.SIGINT)
    async with asyncio.timeout(30):
        _, err = await following.communicate()

    assert (event["type"], event["worker"]["name"], event["hold"]["id"]) == ("hold.placed.v1", "gpu-2", "cordon/host-2")
    assert (following.returncode, err) == (Exit.INTERRUPTED, b"")


async def test_the_story_of_a_cordon_is_one_tree_from_the_cordon_on(site: Site) -> None:
    """Every service said what its event came of, so all that a cordon and an uncordon led to stands under them."""
    await site.until("gpu-3", in_service=True, phase="idle", protected=True)
    since = now().isoformat()
    site.kube.put("nodes", "host-3", spec={"unschedulable": True})
    await site.until("gpu-3", progress="drained", protected=False)
    site.kube.put("nodes", "host-3", spec={})
    await site.until("gpu-3", in_service=True, phase="idle", protected=True)

    ran = await site.run("story", "gpu-3", "--since", since, "-o", "json")
    lines = [json.loads(line) for line in ran.out.splitlines()]

    roots = [line["type"] for line in lines if not line["depth"]]
    assert roots == ["node.cordoned.v1", "node.uncordoned.v1"]
    depths = {line["type"]: line["depth"] for line in lines}
    down = ["node.cordoned", "hold.placed", "drain.started", "worker.drain-set", "slurm-node.state-changed"]
    back = ["node.uncordoned", "hold.released", "drain.ended", "worker.drain-lifted"]
    assert [depths[f"{kind}.v1"] for kind in down] == [0, 1, 2, 3, 4]
    assert [depths[f"{kind}.v1"] for kind in back] == [0, 1, 2, 3]
    idents = {line["event"]["id"]: line["type"].removesuffix(".v1") for line in lines}
    changes = [line["event"]["cause_id"] for line in lines if line["type"] == "slurm-node.state-changed.v1"]
    assert [idents[cause] for cause in changes] == ["worker.drain-set", "worker.drain-lifted"]
    assert {"drain.drained.v1", "worker.unprotected.v1", "worker.protected.v1"} <= depths.keys()


async def test_bad_input_changes_nothing(site: Site) -> None:
    """Refused before anything is created, with the field and the nearest names."""
    before = holds(site.kube)
    unknown = await site.run("hold", "gpu-77", "--reason", "r", code=Exit.NOT_FOUND)
    await site.run("hold", "gpu-7", "--reason", "x" * 10_000, code=Exit.BAD_INPUT)
    await site.run("hold", "--selector", "", "--reason", "r", code=Exit.BAD_INPUT)
    other = await site.run("hold", "gpu-1", "--reason", "r", "-c", "mian", code=Exit.NOT_FOUND)
    await site.run("hold", "gpu-1", "--reason", "r", "--dry-run")

    assert "'gpu-77': there is none of that name; nearest: gpu-" in unknown.err
    assert "'mian': there is none of that name; nearest: main" in other.err
    assert holds(site.kube) == before


def holds(kube: Kube) -> set[str]:
    """The Holds that are stored."""
    return {name for resource, _, name in kube._objects if resource == "holds"}


async def test_without_nats_kubernetes_alone_is_read_and_that_is_said(site: Site) -> None:
    """The holds and Slurm's state, as the pods' conditions show it, are still there."""
    await site.run("hold", "gpu-3", "--reason", "alone", "--name", "alone", "--wait")
    ran = await site.run("get", "workers", "-o", "json", LOCKSTEP_NATS_URL="nats://127.0.0.1:9")
    await site.run("release", "alone")

    assert "Reading Kubernetes alone" in ran.err
    three = next(item for item in json.loads(ran.out)["items"] if item["name"] == "gpu-3")
    assert (three["phase"], three["in_service"], three["stale"]) == ("drained", False, ["slurm"])


async def test_a_system_that_cannot_be_reached_is_code_4_and_rights_are_code_5(site: Site, tmp_path: Path) -> None:
    """Scripts can tell the two apart."""
    nowhere = json.loads(Path(site.kube.kubeconfig(tmp_path, token="mine")).read_text())
    nowhere["clusters"][0]["cluster"]["server"] = "http://127.0.0.1:9"
    (tmp_path / "nowhere").write_text(json.dumps(nowhere))
    away = {"LOCKSTEP_NATS_URL": "nats://127.0.0.1:9"}

    await site.run("get", "workers", "--kubeconfig", str(tmp_path / "nowhere"), code=Exit.UNREACHABLE, **away)
    await site.run("events", code=Exit.UNREACHABLE, **away)
    site.kube.tokens = {"mine"}
    other = site.kube.kubeconfig(tmp_path, token="other")
    try:
        await site.run("get", "workers", "--kubeconfig", other, code=Exit.DENIED, **away)
    finally:
        site.kube.tokens = None


async def test_doctor_tells_what_is_wrong_and_what_to_do(site: Site) -> None:
    """A fake that gives no rights fails; clock, versions, streams and sources are fine."""
    ran = await site.run("doctor", "-o", "json", code=Exit.NO)
    found = json.loads(ran.out)["items"]

    failed = {check["area"] for check in found if check["level"] == "fail"}
    fine = {check["area"] for check in found if check["level"] == "ok"}
    assert failed == {"holds", "rights"}
    assert fine >= {"settings", "kubernetes", "slurm main", "nats", "sources", "budgets", "neighbour"}
    assert all(check["do"] for check in found if check["level"] != "ok")
    assert not [check for check in found if "dead letters" in check["found"]]
    assert site.slurm.key.decode() not in ran.out


async def test_a_closed_pipe_is_no_error(site: Site) -> None:
    """`lockstep get workers | head -1` ends in silence."""
    read, write = os.pipe()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "lockstep.cli.main", "get", "workers", "-o", "yaml"),
        env=site.env,
        stdout=write,
        stderr=asyncio.subprocess.PIPE,
    )
    os.close(write)
    os.close(read)
    async with asyncio.timeout(20):
        _, err = await process.communicate()

    assert (process.returncode, err) == (Exit.OK, b"")
