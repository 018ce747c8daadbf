"""The command on real systems: what people and scripts read, and how it ends."""

import json
import select
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

import pytest

from tests.e2e.guard import in_step
from tests.e2e.site import WORKERS, Site, eventually
from tests.lab.lockstep import BIN


def test_workers_holds_and_clusters_are_listed(site: Site) -> None:
    """As a table for people, as JSON and as names for scripts; all tell the same."""
    site.hold("dimm", {"names": ["gpu-2"]}, "DIMM B2 swap")
    in_step(site)
    get = site.lockstep.cli

    header, *rows = get("get", "workers").splitlines()
    assert header.split()[:2] == ["WORKER", "PHASE"]
    assert [row.split()[:2] for row in rows] == [["gpu-1", "idle"], ["gpu-2", "drained"], ["gpu-3", "idle"]]
    assert "DIMM B2 swap" in rows[1]
    workers = json.loads(get("get", "workers", "-o", "json"))["items"]
    assert [(w["name"], w["in_service"]) for w in workers] == [("gpu-1", True), ("gpu-2", False), ("gpu-3", True)]
    assert get("get", "workers", "-o", "name").split() == [f"main/{worker}" for worker in WORKERS]
    assert get("get", "workers", "--held", "-o", "name").split() == ["main/gpu-2"]

    assert "DIMM B2 swap" in get("get", "holds")
    assert get("get", "holds", "-o", "name").split() == ["hold/slurm/dimm"]
    hold = json.loads(get("get", "holds", "-o", "json"))["items"][0]
    assert (hold["workers"], hold["phase"]) == (["gpu-2"], "drained")
    cluster = json.loads(get("get", "clusters", "-o", "json"))["items"][0]
    assert (cluster["name"], cluster["workers"], cluster["held"], cluster["stale"]) == ("main", 3, 1, [])


def test_why_names_the_hold_and_what_ends_it(site: Site) -> None:
    """In words, and as JSON."""
    site.hold("dimm", {"names": ["gpu-2"]}, "DIMM B2 swap")
    in_step(site)

    text = site.lockstep.cli("why", "gpu-2")
    assert [part for part in ("hold/slurm/dimm", "DIMM B2 swap", "lockstep release") if part not in text] == []
    assert site.why("gpu-2")["worker"]["words"] == site.slurm("gpu-2").reason


def test_hold_waits_for_the_job_and_release_brings_the_worker_back(site: Site) -> None:
    """`hold --wait` ends with 0 when the worker is drained; its owner releases it by name."""
    job = site.job("gpu-1")
    with started(site, "hold", "gpu-1", "--reason", "fan", "--name", "fan", "--wait") as hold:
        assert hold.stdout is not None
        waits = eventually(
            "it waits for the job", lambda: (s := hold.stdout.readline()) and f"{job} on gpu-1" in s and s
        )
        assert "draining" in waits
        assert hold.poll() is None
        site.cancel(job)
        assert hold.wait(20) == 0
    assert site.slurm("gpu-1").drained

    site.lockstep.cli("release", "fan")
    assert not in_step(site)["gpu-1"].drained


def test_events_are_followed(site: Site) -> None:
    """`events --follow` shows what happens while it happens, and only what was asked for."""
    now = datetime.now(UTC).isoformat()  # noqa: TID251  a test speaks to a real clock
    asked = ("--since", now, "--kind", "hold", "--worker", "gpu-3")
    with started(site, "events", "--follow", "-o", "json", *asked) as events:
        site.hold("dimm", {"names": ["gpu-2", "gpu-3"]}, "DIMM B2 swap")
        placed = json.loads(line_of(events))
        site.release("dimm")
        released = json.loads(line_of(events))
    assert (placed["type"], placed["worker"]["name"]) == ("hold.placed.v1", "gpu-3")
    assert (released["type"], released["hold"]["reason"]) == ("hold.released.v1", "DIMM B2 swap")


def test_doctor_finds_nothing_wrong(site: Site) -> None:
    """On a healthy site every check passes."""
    answer = site.lockstep.run("doctor", "-o", "json")
    checks = json.loads(answer.stdout)["items"]
    assert [check for check in checks if check["level"] == "fail"] == []
    assert answer.returncode == 0
    assert {"kubernetes", "slurm main", "nats", "rights"} <= {check["area"] for check in checks}


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        pytest.param(["why", "gpu-9"], 3, "gpu-9", id="no such worker"),
        pytest.param(["get", "holds", "nope"], 3, "nope", id="no such hold"),
        pytest.param(["get", "workers", "--cluster", "nope"], 3, "nope", id="no such cluster"),
        pytest.param(["release", "nope"], 3, "nope", id="nothing to release"),
        pytest.param(["get", "pods"], 2, "pods", id="no such list"),
        pytest.param(["hold", "gpu-1"], 2, "--reason", id="no reason"),
        pytest.param(["hold", "gpu-[1-", "--reason", "x"], 2, "gpu-[1-", id="broken host list"),
        pytest.param(["hold", "gpu-1", "--reason", "x", "--deadline", "soon"], 2, "deadline", id="no time"),
        pytest.param(["events", "--since", "yesterday"], 2, "yesterday", id="no moment"),
    ],
)
def test_what_cannot_be_done_ends_with_its_own_code(site: Site, words: list[str], code: int, says: str) -> None:
    """3: not found, 2: bad input. One line on standard error names what was wrong; nothing was changed."""
    answer = site.lockstep.run(*words)

    assert (answer.returncode, answer.stdout) == (code, "")
    assert says in answer.stderr
    assert "Traceback" not in answer.stderr
    assert not any(site.slurm(w).drained for w in WORKERS)


def test_without_nats_events_end_with_4_and_workers_are_read_from_kubernetes(site: Site) -> None:
    """What needs NATS says that it cannot be reached; what Kubernetes knows is still told."""
    site.hold("dimm", {"names": ["gpu-2"]}, "DIMM B2 swap")
    in_step(site)
    site.lab.nats.kill()
    try:
        events = site.lockstep.run("events")
        workers = site.lockstep.run("get", "workers", "-o", "json")
    finally:
        site.lab.nats.start()
    assert events.returncode == 4
    assert "NATS" in events.stderr
    assert workers.returncode == 0
    assert "Kubernetes alone" in workers.stderr
    assert [w["name"] for w in json.loads(workers.stdout)["items"] if not w["in_service"]] == ["gpu-2"]


def test_a_kubeconfig_is_enough(site: Site) -> None:
    """Without settings and NATS a person can look, hold and release."""
    kubeconfig = ("--kubeconfig", str(site.lab.kube.kubeconfig))

    def person(*words: str) -> "subprocess.CompletedProcess[str]":
        answer = site.lockstep.run(*words, *kubeconfig, settings=False)
        assert answer.returncode == 0, answer.stderr
        return answer

    assert person("get", "workers", "-o", "name").stdout.split() == [f"main/{worker}" for worker in WORKERS]
    person("hold", "gpu-2", "--reason", "fan noise", "--name", "fan", "--wait")
    assert site.slurm("gpu-2").reason.endswith("fan noise")
    assert "fan noise" in person("why", "gpu-2").stdout
    person("release", "fan")
    in_step(site)


@contextmanager
def started(site: Site, *words: str) -> Iterator["subprocess.Popen[str]"]:
    """`lockstep` running beside the test; ended at the latest with the block."""
    process = subprocess.Popen(
        [BIN / "lockstep", *words],
        env=site.lockstep.environment() | {"PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def line_of(process: "subprocess.Popen[str]", timeout_s: float = 15) -> str:
    """The next line that it prints."""
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], timeout_s)
    assert ready, "nothing is printed"
    return process.stdout.readline()
