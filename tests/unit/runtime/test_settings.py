"""Settings: one file, one environment, every fault at once."""

from pathlib import Path

import pytest

from lockstep.base.errors import BadInput
from lockstep.contracts.policy import Policy, Protect, signal_of
from lockstep.contracts.subjects import EVENTS, FACTS, STREAMS
from lockstep.runtime.load import load
from lockstep.runtime.settings import Settings

SMALL = """
clusters:
  - {name: main, namespace: slurm, url: "http://127.0.0.1:6820", key_file: /keys/jwt}
"""


def written(folder: Path, text: str) -> Path:
    """A settings file with that text."""
    path = folder / "lockstep.yaml"
    path.write_text(text)
    return path


def faults_of(path: Path, env: dict[str, str]) -> str:
    """All faults, one a line."""
    with pytest.raises(BadInput) as caught:
        load(path, env)
    return "\n".join(caught.value.faults)


def test_a_cluster_needs_five_lines_and_the_rest_has_defaults(tmp_path: Path) -> None:
    """What is not said has its default, and slurm-operator's labels are those of the cluster."""
    settings = load(written(tmp_path, SMALL), {})
    assert settings.policy == Policy()
    assert settings.lease_namespace == "slurm"
    assert settings.cluster("main").workers.labels == {
        "app.kubernetes.io/name": "slurmd",
        "slinky.slurm.net/cluster": "main",
    }


def test_the_environment_is_laid_over_the_file(tmp_path: Path) -> None:
    """A variable is the path in capitals; numbers, lists and a cluster's fields work too."""
    env = {
        "LOCKSTEP_CONFIG": str(written(tmp_path, SMALL)),
        "LOCKSTEP_NATS_URL": "nats://nats:4222",
        "LOCKSTEP_POLL_MIN_INTERVAL_S": "0.5",
        "LOCKSTEP_POLICY_PROTECT": "busy",
        "LOCKSTEP_POLICY_NODE_CONDITIONS": "[DiskPressure, 'label:a=b']",
        "LOCKSTEP_CLUSTERS_0_USER": "root",
        "LOCKSTEP_CLUSTERS_0_WORKERS_HYBRID": "true",
    }
    settings = load(env=env)
    assert settings.nats.url == "nats://nats:4222"
    assert settings.poll.min_interval_s == 0.5
    assert settings.policy.protect is Protect.BUSY
    assert settings.policy.node_conditions == ["DiskPressure", "label:a=b"]
    assert (settings.clusters[0].user, settings.clusters[0].workers.hybrid) == ("root", True)


def test_a_cluster_can_come_from_the_environment_alone() -> None:
    """No file is needed for one cluster."""
    settings = load(
        env={
            "LOCKSTEP_CLUSTERS_0_NAME": "main",
            "LOCKSTEP_CLUSTERS_0_NAMESPACE": "slurm",
            "LOCKSTEP_CLUSTERS_0_URL": "unix:///run/slurmrestd.sock",
            "LOCKSTEP_CLUSTERS_0_TOKEN_FILE": "/token",
        }
    )
    assert isinstance(settings, Settings)
    assert settings.clusters[0].url == "unix:///run/slurmrestd.sock"


def test_every_fault_is_told_at_once_with_place_value_and_what_is_allowed(tmp_path: Path) -> None:
    """A file with six faults and a variable with one give seven lines."""
    path = written(
        tmp_path,
        """
clusters:
  - {name: Main_1, namespace: slurm, url: "http://host", key_file: /k, colour: red}
  - {name: b, namespace: slurm, url: "http://u:p@host", key_file: /k}
  - {name: c, url: "http://host", key_file: /k, token_file: /t}
policy: {protect: sometimes}
poll: {min_interval_s: 9}
""",
    )
    text = faults_of(path, {"LOCKSTEP_HEALTH_PORT": "99999"})
    assert "clusters[0].name: 'Main_1'" in text
    assert "clusters[0].colour: there is no such setting; allowed: name," in text
    assert "clusters[1].url: 'http://u:p@host'" in text
    assert "clusters[2].namespace: is missing" in text
    assert "policy.protect: 'sometimes'" in text
    assert "poll: min_interval_s 9 is more than max_interval_s 5" in text
    assert "LOCKSTEP_HEALTH_PORT: 99999: Expected `int` <= 65535" in text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("token_file: /t, key_file: /k", "want exactly one of key_file and token_file"),
        ("user: slurm", "want exactly one of key_file and token_file"),
    ],
)
def test_a_cluster_has_exactly_one_way_to_its_token(tmp_path: Path, change: str, said: str) -> None:
    """Two files, or none, are a fault of that cluster."""
    path = written(tmp_path, f'clusters: [{{name: a, namespace: s, url: "http://h", {change}}}]')
    assert f"clusters[0]: {said}" in faults_of(path, {})


def test_two_clusters_of_one_name_are_refused(tmp_path: Path) -> None:
    """A cluster's name is its identity everywhere."""
    path = written(tmp_path, SMALL + SMALL.split("\n", 2)[2])
    assert "two are called 'main'" in faults_of(path, {})


def test_an_unknown_variable_is_a_fault_and_a_service_link_is_not(tmp_path: Path) -> None:
    """Kubernetes puts LOCKSTEP_NATS_PORT=tcp://… into each pod beside a Service called lockstep-nats."""
    path = written(tmp_path, SMALL)
    links = {
        "LOCKSTEP_NATS_SERVICE_HOST": "10.0.0.1",
        "LOCKSTEP_NATS_SERVICE_PORT_CLIENT": "4222",
        "LOCKSTEP_NATS_PORT": "tcp://10.0.0.1:4222",
        "LOCKSTEP_NATS_PORT_4222_TCP_ADDR": "10.0.0.1",
        "LOCKSTEP_HEALTH_PORT": "tcp://10.0.0.2:8080",
    }
    assert load(path, links).health.port == 8080
    assert "LOCKSTEP_NATS_ULR: there is no such setting" in faults_of(path, {"LOCKSTEP_NATS_ULR": "nats://x"})


def test_a_password_in_an_address_is_refused(tmp_path: Path) -> None:
    """Secrets come from files only."""
    assert "LOCKSTEP_NATS_URL" in faults_of(written(tmp_path, SMALL), {"LOCKSTEP_NATS_URL": "nats://u:secret@h"})


def test_a_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    """Missing, no YAML, no mapping: each says which file and why."""
    assert "cannot be read" in faults_of(tmp_path / "none.yaml", {})
    assert "is no YAML" in faults_of(written(tmp_path, "a: [b"), {})
    assert "want a mapping, got list" in faults_of(written(tmp_path, "- a"), {})


@pytest.mark.parametrize(
    ("text", "signal"),
    [
        ("DiskPressure", ("condition", "DiskPressure", "True")),
        ("Ready=False", ("condition", "Ready", "False")),
        ("condition:Gpu=Unknown", ("condition", "Gpu", "Unknown")),
        ("taint:example.com/repair", ("taint", "example.com/repair", "")),
        ("label:state=bad", ("label", "state", "bad")),
    ],
)
def test_a_signal_is_read_as_it_is_written(text: str, signal: tuple[str, str, str]) -> None:
    """A kind, a key and a value, where the kind and the value may be left out."""
    assert tuple(signal_of(text)) == signal
    assert signal_of(str(signal_of(text))) == signal_of(text)


@pytest.mark.parametrize("text", ["", "Ready=Maybe", "pod:x", "label:", "taint: x"])
def test_a_signal_that_cannot_be_read_is_a_fault_of_the_settings(tmp_path: Path, text: str) -> None:
    """It would never match, and nobody would know."""
    path = written(tmp_path, SMALL + f"policy: {{node_conditions: ['{text}']}}")
    assert "policy: node_conditions" in faults_of(path, {})


@pytest.mark.parametrize(
    "ui", ["http://jaeger/trace/", "jaeger/{trace_id}", "http://u@jaeger/{trace_id}", "http://jaeger/{trace_id}{x}"]
)
def test_an_address_for_traces_without_a_place_for_the_trace_is_refused(tmp_path: Path, ui: str) -> None:
    """It would lead nowhere, or give something away."""
    assert "LOCKSTEP_TRACING_UI" in faults_of(written(tmp_path, SMALL), {"LOCKSTEP_TRACING_UI": ui})


def test_rights_to_ask_are_read_as_they_are_written(tmp_path: Path) -> None:
    """By default nobody may ask; a right names user, verbs and clusters."""
    assert load(written(tmp_path, SMALL), {}).requests.allow == []
    text = SMALL + "requests: {allow: [{user: ops, verbs: [hold, release], clusters: ['*'], override: true}]}\n"
    [right] = load(written(tmp_path, text), {}).requests.allow
    assert (right.user, right.verbs, right.clusters, right.override) == ("ops", ["hold", "release"], ["*"], True)


@pytest.mark.parametrize(
    ("right", "said"),
    [
        ("{verbs: [hold], clusters: [main]}", "requests.allow[0].user: is missing"),
        ("{user: ops, verbs: [hold], clusters: []}", "requests.allow[0].clusters: []: Expected `array` of length >= 1"),
        ("{user: ops, verbs: [], clusters: [main]}", "requests.allow[0].verbs: []: Expected `array` of length >= 1"),
        (
            "{user: ops, verbs: [hold, reboot], clusters: [main]}",
            "requests.allow[0]: verbs: 'reboot': want one of hold, release, cancel-drain",
        ),
        ("{user: '*', verbs: [hold], clusters: [main]}", "requests.allow[0]: user: '*': want the name of one user"),
        ("{user: ' a', verbs: [hold], clusters: [main]}", "requests.allow[0]: user: ' a': want the name of one user"),
        (
            "{user: ops, verbs: [hold], clusters: ['*', main]}",
            "requests.allow[0]: clusters: *, main: want either * alone or names",
        ),
        (
            "{user: ops, verbs: [hold], clusters: [mian]}",
            "requests.allow[0].clusters: 'mian' is no cluster; want * or one of main",
        ),
        (
            "{user: ops, verbs: [hold], clusters: [main], override: true}",
            "requests.allow[0]: override: is for the verb release",
        ),
        ("{user: ops, verbs: [hold], clusters: [main], all: true}", "requests.allow[0].all: there is no such setting"),
    ],
)
def test_a_right_that_says_nothing_clear_is_refused(tmp_path: Path, right: str, said: str) -> None:
    """A slip in a right must not give more than was meant, nor silently nothing."""
    assert said in faults_of(written(tmp_path, f"{SMALL}requests: {{allow: [{right}]}}\n"), {})


def test_the_events_are_kept_as_long_and_as_large_as_set(tmp_path: Path) -> None:
    """The other streams stay as they are."""
    path = written(tmp_path, SMALL + "nats: {events_max_bytes: 10000000, events_max_age_s: 86400}\n")
    facts, events, *_ = load(path, {}).nats.streams
    assert facts == FACTS
    assert (events.name, events.max_bytes, events.max_age_s) == (EVENTS.name, 10_000_000, 86_400)
    assert load(written(tmp_path, SMALL), {}).nats.streams == STREAMS


@pytest.mark.parametrize("field", ["events_max_bytes: 1000", "events_max_age_s: 60", "events_max_bytes: a lot"])
def test_a_bound_of_the_events_that_makes_no_sense_is_refused(tmp_path: Path, field: str) -> None:
    """Less than a mebibyte, less than ten minutes, no number."""
    assert "nats." + field.partition(":")[0] in faults_of(written(tmp_path, SMALL + f"nats: {{{field}}}\n"), {})
