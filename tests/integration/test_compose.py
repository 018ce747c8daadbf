"""compose.yaml: what it says, and, started by a real Docker, that both systems are kept in step by it."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.lab import docker, paths, product, versions

pytestmark = pytest.mark.timeout(600)
PROFILES = [(), ("k3s",), ("grafana",), ("forward",), ("k3s", "grafana", "forward")]


def config(*profiles: str) -> dict[str, Any]:
    """The file as Compose understands it."""
    chosen = [f"--profile={profile}" for profile in profiles]
    found: dict[str, Any] = json.loads(docker.compose(*chosen, "config", "--format=json"))
    return found


@pytest.fixture(scope="module", name="played")
def _played(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `composed` saw, on a machine apart. What needs the network is fetched before."""
    docker.prepare()
    product.all_images()
    out = tmp_path_factory.mktemp("composed") / "facts.json"
    apart = [sys.executable, "-m", "tests.lab", "apart", "compose"]
    done = subprocess.run(
        [*apart, sys.executable, "-m", "tests.integration.composed", str(out)], cwd=paths.CHECKOUT, check=False
    )
    assert done.returncode == 0
    facts: dict[str, Any] = json.loads(out.read_text())
    return facts


@pytest.mark.parametrize("profiles", PROFILES, ids="+".join)
def test_each_profile_is_understood_and_all_that_it_mounts_is_there(profiles: tuple[str, ...]) -> None:
    """Docker would make a folder of a file that is not there, and the container would fail for it."""
    sources = [
        Path(volume["source"])
        for service in config(*profiles)["services"].values()
        for volume in service.get("volumes", ())
        if volume["type"] == "bind"
    ]
    assert sources
    assert [source for source in sources if not source.exists()] == []


def test_every_image_is_named_as_the_lab_and_the_chart_name_it() -> None:
    """One version everywhere: ours is that of the package."""
    images = {service["image"] for service in config()["services"].values()}
    ours = {product.lockstep_tag(), f"docker.io/lockstep/slurm:{product.version()}"}
    assert images == {*ours, versions.NATS_IMAGE, versions.JAEGER_IMAGE, versions.PROMETHEUS_IMAGE}


def test_only_this_machine_reaches_the_ports() -> None:
    """Nothing asks for a password here, so nothing listens on the network."""
    ports = [port for service in config("grafana").get("services", {}).values() for port in service.get("ports", ())]
    assert {port["host_ip"] for port in ports} == {"127.0.0.1"}


def test_all_containers_are_well_confined_and_never_restarted(played: dict[str, Any]) -> None:
    """Read-only, without capabilities that they do not need, and not root but for slurmd, which starts users' jobs."""
    containers = {one["service"]: one for one in played["containers"]}
    setup = containers.pop("setup")
    assert setup["health"] == "exited"
    assert {one["health"] for name, one in containers.items() if name != "jaeger"} == {"healthy"}
    assert {(one["read_only"], one["privileged"], *one["dropped"]) for one in containers.values()} == {
        (True, False, "ALL")
    }
    assert {name for name, one in containers.items() if one["user"] == "root"} == {"worker-1", "worker-2"}
    assert {name: one["restarts"] for name, one in containers.items() if one["restarts"]} == {}


def test_a_cordon_becomes_a_drain_and_goes_with_the_uncordon(played: dict[str, Any]) -> None:
    """The words are ours, `lockstep why` names the holder, and afterwards the node is idle."""
    assert played["cordoned"] == "drained|lockstep: kubectl: Kubernetes node cordoned"
    assert "ends by: kubectl uncordon node-1" in played["why"]
    assert played["uncordoned"].startswith("idle")


def test_an_administrators_drain_is_shown_and_left_alone(played: dict[str, Any]) -> None:
    """Kubernetes' node says that it is out of service; Slurm's reason stays hers."""
    assert played["foreign"] == "drained|bad fan"


def test_jobs_run_on_the_composed_workers(played: dict[str, Any]) -> None:
    """As a user without rights, on both."""
    assert sorted(played["job"]) == ["node-1", "node-2"]


def test_doctor_finds_nothing(played: dict[str, Any]) -> None:
    """In the drain service's container, with its settings and its rights."""
    assert [check for check in played["doctor"] if check["level"] != "ok"] == []


def test_prometheus_reads_every_service_and_knows_our_rules(played: dict[str, Any]) -> None:
    """The forwarder, which is not started, is no failed target."""
    assert played["targets"] == dict.fromkeys(("pod-watcher", "slurm-poller", "drain", "reconciler"), "up")
    assert played["rules"] > 10


def test_the_key_is_seen_in_no_place_but_its_volumes(played: dict[str, Any]) -> None:
    """Neither in what Docker tells of the containers nor in a log."""
    assert played["leaks"] == []
