"""Values: what is wrong is refused by its name, what is right becomes settings that the services take."""

from pathlib import Path

import msgspec
import pytest
import yaml

from lockstep.runtime.load import load
from lockstep.runtime.settings import Settings
from tests.deploy import chart
from tests.deploy.cases import BAD, GOOD
from tests.deploy.chart import component, pod_of, services, settings_of
from tests.lab.helm import CHART, Helm, HelmError

pytestmark = pytest.mark.timeout(600)
"""The first of all may have to wait until Helm is built."""
SERVICES = {"pod-watcher", "slurm-poller", "drain", "reconciler"}


def test_a_wrong_value_is_refused_by_its_name(bad: str) -> None:
    """Before anything is installed."""
    name, values = BAD[bad]

    with pytest.raises(HelmError) as refused:
        Helm().template(values)
    assert name in str(refused.value)


def test_helm_finds_nothing_to_complain_about(case: str) -> None:
    """`helm lint`, strict."""
    assert "0 chart(s) failed" in Helm().lint(GOOD[case], "--strict")


def test_the_settings_are_read_by_each_service_as_they_are(case: str, tmp_path: Path) -> None:
    """With the environment of its pod, in which is who it is on NATS."""
    name = "slurm-sync-settings" if "fullnameOverride" in GOOD[case] else "lockstep-settings"
    file = tmp_path / "settings.yaml"
    file.write_text(settings_of(case, name))
    given = GOOD[case]

    for deployment in services(case):
        [container] = pod_of(deployment)["containers"]
        env = {each["name"]: each["value"] for each in container["env"]}
        settings = load(file, env)
        assert [c.name for c in settings.clusters] == [c["name"] for c in given["clusters"]]
        assert settings.lease_namespace == "lockstep-system"
        assert (settings.health.host, settings.health.port) == ("0.0.0.0", 8080)
        assert settings.nats.url
        assert bool(settings.nats.user) == bool(settings.nats.password_file) != bool(settings.nats.creds_file)
        if settings.nats.user:
            assert component(deployment) in settings.nats.user
    assert {component(each) for each in services(case)} == SERVICES | ({"forward"} if "forward" in given else set())


def test_a_setting_arrives_as_it_was_given() -> None:
    """Under the same name."""
    settings = yaml.safe_load(settings_of("every-setting"))

    for part, value in GOOD["every-setting"].items():
        if isinstance(value, dict):
            assert value.items() <= settings[part].items()
        elif part != "clusters":
            assert settings[part] == value


def test_the_charts_defaults_are_the_settings_own() -> None:
    """Where a value has a setting's name and is not left out, it says what would hold without it."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    setting = msgspec.to_builtins(Settings(clusters=[]))
    shared = {
        f"{part}.{name}": (value, setting[part][name])
        for part in ("lease", "log", "nats")
        for name, value in values[part].items()
        if name in setting[part] and name != "format"
    }

    assert len(shared) >= 6
    assert {name: pair for name, pair in shared.items() if pair[0] != pair[1]} == {}
    assert values["jobs"] == setting["jobs"]


def test_slinkys_names_are_the_defaults() -> None:
    """Whoever has Slinky's chart under its own name says that name and nothing else."""
    [cluster] = yaml.safe_load(settings_of("one-name"))["clusters"]
    sources = [
        source["secret"]
        for each in services("one-name")
        for volume in pod_of(each)["volumes"]
        for source in volume.get("projected", {}).get("sources", [])
    ]
    keys = [(one["name"], one["items"][0]["key"]) for one in sources if one["items"][0]["path"].startswith("slurm/")]

    assert (cluster["url"], cluster["namespace"]) == ("http://slurm-restapi.slurm:6820", "slurm")
    assert set(keys) == {("slurm-auth-jwt", "jwt.key")}


def test_what_is_said_of_one_service_wins_over_what_is_said_of_all() -> None:
    """And what only one of them says is added."""
    found = {component(each): each for each in services("where-pods-run")}

    assert (found["drain"]["spec"]["replicas"], found["reconciler"]["spec"]["replicas"]) == (1, 3)
    assert pod_of(found["drain"])["nodeSelector"] == {"node-role.kubernetes.io/control-plane": "", "disk": "ssd"}
    assert pod_of(found["drain"])["containers"][0]["resources"]["limits"] == {"memory": "1Gi"}
    assert pod_of(found["drain"])["priorityClassName"] == "system-cluster-critical"


def test_changed_settings_roll_the_pods_and_the_same_do_not() -> None:
    """The settings' checksum is an annotation of the pods; nothing random is."""

    def checksums(case: str) -> set[str]:
        return {each["spec"]["template"]["metadata"]["annotations"]["checksum/settings"] for each in services(case)}

    again = [each for each in yaml.safe_load_all(Helm().template(GOOD["one-name"])) if each]
    pods = [each["spec"]["template"] for each in again if each["kind"] in {"Deployment", "StatefulSet"}]
    before = [each["spec"]["template"] for each in chart.of_kind("one-name", "Deployment", "StatefulSet")]

    assert len(checksums("one-name")) == 1
    assert checksums("one-name") != checksums("a-slinky-site")
    assert pods == before
