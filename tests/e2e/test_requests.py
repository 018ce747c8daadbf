"""Requests over NATS on real systems: asked, drained, done; refused; repeated; and answered across a crash."""

import json
import subprocess
from typing import Any

from tests.e2e.guard import in_step
from tests.e2e.site import Site, always, eventually
from tests.e2e.test_cli import started

OPS = ("--through", "nats", "--nats-user", "ops")


def answers(site: Site, request: str) -> list[str]:
    """What was answered to a request, in short."""
    found = [e for e in site.events(kind="request") if e["request"] == request]
    return [e.get("outcome") or e["type"].split(".")[1] for e in found]


def told_by(process: "subprocess.Popen[str]") -> dict[str, Any]:
    """The next document that a command prints; remarks for people, which come while nobody answers, are passed over."""
    assert process.stdout is not None
    while not (line := process.stdout.readline()).startswith("{"):
        assert line, "it ended"
    return dict(json.loads(line))


def names(site: Site) -> set[str]:
    """The Holds there are."""
    return set(site.kubectl("get", "holds", "-n", "slurm", "-o", "name").split())


def test_a_hold_by_request_drains_the_worker_and_is_its_users(site: Site) -> None:
    """It waits for the job, tells how far it is, and ends when the worker is drained; everyone shows who owns it."""
    job = site.job("gpu-1")
    asked = ("hold", "gpu-1", "--reason", "fan noise", "--name", "fan", "--request-id", "e2e-life", "--wait")
    with started(site, *asked, *OPS) as hold:
        assert hold.stdout is not None
        eventually("it is accepted", lambda: "accepted: slurm/fan, 1 worker" in hold.stdout.readline())
        eventually("DRAIN", lambda: site.slurm("gpu-1").drained)
        assert hold.poll() is None
        site.cancel(job)
        told, _ = hold.communicate(timeout=30)
        assert hold.returncode == 0, told
    assert told.splitlines()[-2:] == ["progress: 1 of 1 drained", "done: drained"]

    assert site.slurm("gpu-1").reason == "lockstep: nats:ops: fan noise"
    header, row = site.kubectl("get", "holds", "fan", "-n", "slurm").splitlines()
    owner = header.index("OWNER")
    assert row[owner:].split()[0] == "nats:ops"
    placed = next(e for e in site.events(kind="hold.placed") if e["hold"]["id"] == "hold/slurm/fan")
    assert (placed["cause_id"], placed["hold"]["owner"]) == ("e2e-life", "nats:ops")

    person = site.lockstep.run("release", "fan")
    assert (person.returncode, "is of nats:ops" in person.stderr) == (5, True)
    site.lockstep.cli("release", "fan", *OPS)
    assert not in_step(site)["gpu-1"].drained
    assert "hold.lockstep.sh/fan" not in names(site)


def test_who_has_no_right_is_refused_and_that_is_recorded(site: Site) -> None:
    """Nothing is touched; what makes no sense is refused in the same way."""
    hold = ("hold", "gpu-2", "--reason", "x", "--through", "nats")
    guest = site.lockstep.run(*hold, "--nats-user", "guest", "--request-id", "e2e-guest")
    assert guest.returncode == 5
    assert "user 'guest' may not ask for hold on cluster 'main'" in guest.stderr
    site.hold("theirs", {"names": ["gpu-2"]}, "mine")
    eventually("theirs stands", lambda: site.slurm("gpu-2").drained)
    lost = site.lockstep.run("cancel-drain", "gpu-2", *OPS, "--request-id", "e2e-theirs")
    assert (lost.returncode, "hold/slurm/theirs" in lost.stderr) == (5, True)
    assert answers(site, "e2e-guest") == answers(site, "e2e-theirs") == ["refused"]
    site.release("theirs")
    assert not in_step(site)["gpu-2"].drained


def test_the_same_request_twice_is_one_hold(site: Site) -> None:
    """Also after the service was started anew; the answers are the same."""
    hold = ("hold", "gpu-3", "--reason", "x", "--request-id", "e2e-twice", "--wait", *OPS)
    first = site.lockstep.cli(*hold)
    before = names(site)
    site.lockstep.kill("drain")
    site.lockstep.restart("drain")
    assert site.lockstep.cli(*hold) == first
    always("one Hold", lambda: names(site) == before, 2)
    assert len(before) == 1

    site.lockstep.cli("cancel-drain", "gpu-3", *OPS)
    assert not in_step(site)["gpu-3"].drained


def test_a_request_survives_the_death_of_the_service_that_answers(site: Site) -> None:
    """Asked for while nobody is there, and killed again in the middle: carried out once, and told to the end."""
    job = site.job("gpu-1")
    site.lockstep.kill("drain")
    words = ("hold", "gpu-1", "--reason", "x", "--wait", "--request-id", "e2e-crash", "-o", "json")
    with started(site, *words, *OPS) as hold:
        assert told_by(hold)["request"] == "e2e-crash"
        site.lockstep.restart("drain")
        assert told_by(hold)["type"] == "request.accepted.v1"
        eventually("DRAIN", lambda: site.slurm("gpu-1").drained, 40)
        site.lockstep.kill("drain")
        site.cancel(job)
        site.lockstep.restart("drain")
        told, _ = hold.communicate(timeout=60)
        assert hold.returncode == 0, told
    assert json.loads(told.splitlines()[-1])["outcome"] == "drained"
    assert answers(site, "e2e-crash")[0] == "accepted"
    assert answers(site, "e2e-crash")[-1] == "drained"
    site.lockstep.cli("cancel-drain", "gpu-1", *OPS)
    assert not in_step(site)["gpu-1"].drained
