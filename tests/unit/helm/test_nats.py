"""The chart's NATS: a configuration that the server takes, and a user for each who comes."""

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from lockstep.bus.client import PATIENCE_S
from tests.deploy.cases import GOOD
from tests.deploy.chart import named, of_kind
from tests.lab.helm import Helm
from tests.lab.nats import binary

pytestmark = pytest.mark.timeout(600)
SERVERS = ["one-name", "nats-from-git", "requests-and-people", "forward", "three-nats-servers", "nats-with-tls"]


@pytest.mark.parametrize("case", SERVERS)
def test_the_server_takes_its_configuration(case: str, tmp_path: Path) -> None:
    """As the pod has it, with the passwords beside it."""
    config = named(case, "ConfigMap", "lockstep-nats")["data"]["nats-server.conf"]
    (tmp_path / "nats-server.conf").write_text(config.replace("/etc/nats/tls", str(tmp_path)))
    (tmp_path / "passwords.conf").write_text(_passwords(case))
    if "cert_file" in config:
        _certificate(tmp_path)
    argv = [binary(), "-t", "--config", tmp_path / "nats-server.conf"]
    answer = subprocess.run(
        argv, env={**os.environ, "POD_NAME": "lockstep-nats-0"}, capture_output=True, text=True, check=False
    )

    assert answer.returncode == 0, answer.stderr


@pytest.mark.parametrize("case", SERVERS)
def test_the_server_takes_as_long_for_a_password_as_its_clients_wait(case: str) -> None:
    """A server that gives up first drops its clients while they are patient."""
    config = named(case, "ConfigMap", "lockstep-nats")["data"]["nats-server.conf"]
    assert f"timeout: {PATIENCE_S:g}\n" in config


def test_each_service_and_each_person_has_a_user_with_rights_of_its_own() -> None:
    """A requester may ask under her own name only, and tell of an override where she may; no password stands there."""
    config = named("requests-and-people", "ConfigMap", "lockstep-nats")["data"]["nats-server.conf"]
    users = re.findall(r'user: "([a-z-]+)", password: \$([a-z_]+)', config)
    secrets = {
        each["metadata"]["name"].removeprefix("lockstep-nats-") for each in of_kind("requests-and-people", "Secret")
    }

    assert {user for user, _ in users} == secrets - {"server"}
    assert {user for user, _ in users} >= {
        "pod-watcher",
        "slurm-poller",
        "drain",
        "reconciler",
        "ops",
        "guest",
        "admin",
    }
    assert all(variable == f"{user.replace('-', '_')}_password" for user, variable in users)
    assert {user: user in _told(config, "hold.overridden") for user in ("ops", "ci", "guest")} == {
        "ops": True,
        "ci": False,
        "guest": False,
    }
    assert [user for user, _ in users if f"lockstep.request.*.v1.{user}.>" in config] == ["ci", "ops"]
    assert "{user}" not in config


def test_three_servers_know_each_other_and_are_spread_and_budgeted() -> None:
    """All start at once: none is ready before two are."""
    [servers] = of_kind("three-nats-servers", "StatefulSet")
    [claim] = servers["spec"]["volumeClaimTemplates"]
    passwords = named("three-nats-servers", "Secret", "lockstep-nats-server")["stringData"]["passwords.conf"]
    settings = yaml.safe_load(named("three-nats-servers", "ConfigMap", "lockstep-settings")["data"]["settings.yaml"])
    hosts = [f"lockstep-nats-{i}.lockstep-nats-headless.lockstep-system.svc" for i in range(3)]

    assert (servers["spec"]["replicas"], servers["spec"]["podManagementPolicy"]) == (3, "Parallel")
    assert claim["spec"]["storageClassName"] == "fast"
    assert named("three-nats-servers", "PodDisruptionBudget", "lockstep-nats")["spec"]["maxUnavailable"] == 1
    assert [f"@{host}:6222" in passwords for host in hosts] == [True] * 3
    assert settings["nats"]["url"] == ",".join(f"nats://{host}:4222" for host in hosts)


def test_a_claim_of_the_sites_is_used_and_none_is_made() -> None:
    """`nats.storage.existingClaim`."""
    [servers] = of_kind("nats-on-a-claim", "StatefulSet")
    claims = [volume["persistentVolumeClaim"] for volume in servers["spec"]["template"]["spec"]["volumes"][1:]]

    assert claims == [{"claimName": "nats"}]
    assert "volumeClaimTemplates" not in servers["spec"]


def test_an_existing_nats_is_all_that_there_is() -> None:
    """No server of our own, and each service with the user that the site gave it."""
    users = {
        env["value"]: source["secret"]["items"][0]["key"]
        for each in of_kind("nats-elsewhere", "Deployment")
        for env in each["spec"]["template"]["spec"]["containers"][0]["env"]
        for volume in each["spec"]["template"]["spec"]["volumes"]
        for source in volume.get("projected", {}).get("sources", [])
        if env["name"] == "LOCKSTEP_NATS_USER" and source["secret"]["items"][0]["path"] == "nats/password"
    }

    settings = yaml.safe_load(named("nats-elsewhere", "ConfigMap", "lockstep-settings")["data"]["settings.yaml"])

    assert {key: value for key, value in settings["nats"].items() if key.endswith("_file")} == {
        f"{name}_file": f"/var/run/lockstep/nats/{name}" for name in ("password", "ca", "cert", "key")
    }
    assert not of_kind("nats-elsewhere", "StatefulSet", "Secret")
    assert users["lockstep-pod-watcher"] == "pod-watcher.password"
    assert len(users) == 4


def test_without_a_cluster_to_look_at_a_secret_of_the_sites_keeps_everything_the_same() -> None:
    """What a tool renders from git is the same each time; else all passwords would change with each."""
    assert Helm().template(GOOD["nats-from-git"]) == Helm().template(GOOD["nats-from-git"])
    assert Helm().template(GOOD["one-name"]) != Helm().template(GOOD["one-name"])


def _told(config: str, event: str) -> list[str]:
    """The users that may publish that event."""
    blocks = re.findall(r'user: "([a-z-]+)".*?publish: (\[.*?\])', config, re.DOTALL)
    return [user for user, subjects in blocks if event in subjects]


def _passwords(case: str) -> str:
    """`passwords.conf` as the chart makes it, or as its values tell a site to make it."""
    if "auth" in (nats := GOOD[case].get("nats", {})) and "existingSecret" in nats["auth"]:
        services = ("pod_watcher", "slurm_poller", "drain", "reconciler")
        return "".join(f'{name}_password: "$2a$11$abc"\n' for name in services)
    return str(named(case, "Secret", "lockstep-nats-server")["stringData"]["passwords.conf"])


def _certificate(folder: Path) -> None:
    """A key and a certificate that is its own authority."""
    argv = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-subj",
        "/CN=nats",
    ]
    files = ["-keyout", folder / "tls.key", "-out", folder / "tls.crt"]
    subprocess.run([*argv, *files], check=True, capture_output=True)
    (folder / "ca.crt").write_bytes((folder / "tls.crt").read_bytes())
