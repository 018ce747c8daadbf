"""What the chart installs: safe pods, secrets as files, selectors that fit, and the rights of the one table."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest
import yaml

from lockstep.cli.rights import (
    DEPLOYMENT_RIGHTS,
    LEASE_RIGHTS,
    LEASE_RIGHTS_OF_CLEANUP,
    LEASES,
    REQUEST_RIGHTS,
    RIGHTS,
    RIGHTS_OF_CLEANUP,
    Right,
)
from lockstep.contracts.hold import GROUP
from lockstep.runtime.load import load
from tests.deploy.cases import GOOD
from tests.deploy.chart import (
    Object,
    component,
    labels_of,
    named,
    objects,
    of_kind,
    pod_of,
    secrets_of,
    selects,
    services,
    text_of,
    workloads,
)
from tests.lab.helm import Helm

pytestmark = pytest.mark.timeout(600)
SECRET = re.compile(r"\$2a\$|[A-Za-z0-9]{32}$")


def test_every_pod_is_restricted(case: str) -> None:
    """As Pod Security means it, and more: nothing can be written but what a volume is for."""
    for workload in workloads(case):
        pod = pod_of(workload)
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] == 65532
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        kinds = {kind for volume in pod["volumes"] for kind in volume if kind != "name"}
        assert kinds <= {"configMap", "projected", "secret", "persistentVolumeClaim"}
        for container in pod["containers"] + pod.get("initContainers", []):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert all(mount.get("readOnly") for mount in container["volumeMounts"] if mount["name"] != "data")


def test_only_who_talks_to_kubernetes_has_a_token_for_it(case: str) -> None:
    """Each service its own account; NATS and Jaeger have none."""
    accounts = [pod_of(each).get("serviceAccountName") for each in services(case)]

    assert len(set(accounts)) == len(accounts)
    assert set(accounts) <= {each["metadata"]["name"] for each in of_kind(case, "ServiceAccount")}
    for workload in workloads(case):
        ours = component(workload) not in {"nats", "jaeger"}
        assert pod_of(workload)["automountServiceAccountToken"] is ours


def test_selectors_find_the_pods_that_they_are_about_and_no_others(case: str) -> None:
    """Of Deployments, Services, budgets and network policies."""
    pods = {each["metadata"]["name"]: labels_of(each) for each in workloads(case)}

    def found(selector: dict[str, str]) -> set[str]:
        return {name for name, labels in pods.items() if selects(selector, labels)}

    ours = {each["metadata"]["name"] for each in services(case)}
    for workload in of_kind(case, "Deployment", "StatefulSet"):
        assert found(workload["spec"]["selector"]["matchLabels"]) == {workload["metadata"]["name"]}
    for budget in of_kind(case, "PodDisruptionBudget"):
        assert found(budget["spec"]["selector"]["matchLabels"]) == {budget["metadata"]["name"]}
    for service in of_kind(case, "Service"):
        name = service["metadata"]["name"]
        wanted = ours if name.endswith("-metrics") else {name.removesuffix("-headless")}
        assert found(service["spec"]["selector"]) == wanted
    for policy in of_kind(case, "NetworkPolicy"):
        name = policy["metadata"]["name"]
        wanted = set(pods) if name.endswith("-deny") else {name}
        assert found(policy["spec"]["podSelector"]["matchLabels"]) == wanted


def test_secrets_are_files_and_may_be_missing(case: str) -> None:
    """Never in the environment; a service says what it misses. A NATS server without its users must not start."""
    for workload in workloads(case):
        pod = pod_of(workload)
        env = [each for container in pod["containers"] for each in container.get("env", [])]
        assert not [each for each in env if "secretKeyRef" in str(each)]
        assert not [each for container in pod["containers"] for each in container.get("envFrom", [])]
        if component(workload) != "nats":
            assert all(ref.get("optional") is True for ref in secrets_of(pod))


def test_what_a_pod_mounts_is_there(case: str) -> None:
    """Or is a Secret that the site has."""
    there = {(each["kind"], each["metadata"]["name"]) for each in objects(case)}
    given = json.dumps(GOOD[case]) + "slurm-auth-jwt main-auth-jwt small-auth-jwt research-auth-jwt"
    for workload in workloads(case):
        pod = pod_of(workload)
        maps = [v["configMap"]["name"] for v in pod["volumes"] if "configMap" in v]
        assert {("ConfigMap", name) for name in maps} <= there
        for ref in secrets_of(pod):
            assert ("Secret", ref["name"]) in there or ref["name"] in given


def test_no_password_is_anywhere_but_in_a_secret(case: str) -> None:
    """Each clear one in its user's Secret alone; of the server's, what bcrypt makes of it."""
    secrets = of_kind(case, "Secret")
    passwords = {each["metadata"]["name"]: each["stringData"].get("password") for each in secrets}
    clear = {name: password for name, password in passwords.items() if password}
    others = [each for each in objects(case) if each["kind"] != "Secret"]

    assert len(set(clear.values())) == len(clear)
    for password in clear.values():
        assert SECRET.match(password)
        assert not [each for each in others if password in text_of(each)]
        assert len([each for each in secrets if password in text_of(each)]) == 1
    assert not [each for each in others if "$2a$" in text_of(each)]
    assert bool(clear) == (case not in {"nats-from-git", "nats-elsewhere", "nats-with-credentials", "cleaned-up-after"})


def test_a_service_mounts_its_own_secrets_only() -> None:
    """Its password on NATS; Slurm's key where Slurm is spoken to, an endpoint's secret where it is posted to."""
    found = {component(each): {ref["name"] for ref in secrets_of(pod_of(each))} for each in services("locked-in")}
    slurm = {"main-auth-jwt", "slurm-auth-jwt"}

    assert found == {
        "pod-watcher": {"lockstep-nats-pod-watcher"},
        "slurm-poller": {"lockstep-nats-slurm-poller", *slurm},
        "drain": {"lockstep-nats-drain"},
        "reconciler": {"lockstep-nats-reconciler", *slurm},
        "forward": {"lockstep-nats-forward", "pager"},
    }


@pytest.mark.parametrize("case", ["three-clusters", "requests-and-people", "forward"])
def test_each_service_may_do_what_the_table_of_rights_says(case: str) -> None:
    """On Kubernetes, and nothing else: everywhere, in each cluster's namespace, on its own Lease and Deployment."""
    spaces = {cluster.get("namespace", "slurm") for cluster in GOOD[case]["clusters"]}
    for deployment in services(case):
        name = component(deployment)
        wanted = list(RIGHTS.get(name.replace("-", "_"), []))
        if name == "drain" and "requests" in GOOD[case]:
            wanted += REQUEST_RIGHTS
        expected = Counter((space, r) for r in wanted if r.namespaced for space in spaces)
        expected += Counter(("", r) for r in wanted if not r.namespaced)
        expected += Counter(("lockstep-system", r) for r in LEASE_RIGHTS)
        if name == "slurm-poller":
            expected += Counter(("lockstep-system", r) for r in DEPLOYMENT_RIGHTS)
        assert Counter(_may(case, pod_of(deployment)["serviceAccountName"])) == expected


def test_a_service_may_touch_no_lease_but_its_own() -> None:
    """Else one service could make another believe that it leads."""
    for deployment in services("forward"):
        name = component(deployment)
        rules = named("forward", "Role", f"lockstep-{name}-lease")["rules"]
        assert [rule.get("resourceNames") for rule in rules if rule["verbs"] != ["create"]] == [[f"lockstep-{name}"]]


@pytest.mark.parametrize(("release", "title"), [("lockstep", "lockstep"), ("here", "here-lockstep")])
def test_the_condition_is_shown_on_the_slurm_pollers_own_deployment(release: str, title: str, tmp_path: Path) -> None:
    """The settings name it whatever it is called, and it is the only one that may be touched."""
    text = Helm(release=release, namespace="lockstep-system").template(GOOD["one-name"])
    found = [each for each in yaml.safe_load_all(text) if each]
    name = f"{title}-slurm-poller"
    [config] = [each for each in found if each["metadata"]["name"] == f"{title}-settings"]
    [role] = [each for each in found if (each["kind"], each["metadata"]["name"]) == ("Role", f"{name}-condition")]
    (tmp_path / "settings.yaml").write_text(config["data"]["settings.yaml"])
    settings = load(tmp_path / "settings.yaml", {"LOCKSTEP_NATS_USER": "slurm-poller"})

    assert ("Deployment", settings.health.deployment) in {(e["kind"], e["metadata"]["name"]) for e in found}
    assert settings.health.deployment == name
    assert role["metadata"]["namespace"] == settings.lease_namespace
    assert [rule["resourceNames"] for rule in role["rules"]] == [[name], [name]]


def test_the_clean_up_runs_when_all_is_gone_with_what_it_needs_and_no_more(tmp_path: Path) -> None:
    """While the services run they would write again what is taken away; so its account goes and comes with it."""
    case = "cleaned-up-after"
    hooks = [each for each in objects(case) if "helm.sh/hook" in each["metadata"].get("annotations", {})]
    [job] = of_kind(case, "Job")
    [container] = pod_of(job)["containers"]
    (tmp_path / "settings.yaml").write_text(named(case, "ConfigMap", "lockstep-cleanup")["data"]["settings.yaml"])
    expected = [(space, right) for right in RIGHTS_OF_CLEANUP if right.namespaced for space in ("slurm", "research")]
    expected += [("", right) for right in RIGHTS_OF_CLEANUP if not right.namespaced]
    expected += [(space, Right(verb, "holds", GROUP)) for verb in ("list", "delete") for space in ("slurm", "research")]
    expected += [("lockstep-system", right) for right in LEASE_RIGHTS_OF_CLEANUP]

    assert {each["metadata"]["annotations"]["helm.sh/hook"] for each in hooks} == {"post-delete"}
    assert {each["kind"] for each in hooks} >= {"Job", "ServiceAccount", "ConfigMap", "Role", "ClusterRoleBinding"}
    assert container["command"] == ["lockstep", "uninstall-cleanup", "--yes", "--undrain", "--holds"]
    tolerations = named(case, "Job", "lockstep-cleanup")["spec"]["template"]["spec"]["tolerations"]
    assert "node.kubernetes.io/unschedulable" in {each["key"] for each in tolerations}, "all nodes may be cordoned"
    assert Counter(_may(case, "lockstep-cleanup")) == Counter(expected)
    assert {ref["name"] for ref in secrets_of(pod_of(job))} == {"main-auth-jwt", "research-auth-jwt"}
    assert load(tmp_path / "settings.yaml", {each["name"]: each["value"] for each in container["env"]}).clusters


def test_crds_and_policies_are_upgraded_and_stay() -> None:
    """They are ordinary templates, and kept; of the same content as in the source."""
    kept = [
        each for each in objects("one-name") if "helm.sh/resource-policy" in each["metadata"].get("annotations", {})
    ]

    assert sorted({each["kind"] for each in kept}) == [
        "CustomResourceDefinition",
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    ]
    assert {each["metadata"]["annotations"]["helm.sh/resource-policy"] for each in kept} == {"keep"}
    assert not of_kind("somebody-else-makes-roles-and-crds", "CustomResourceDefinition", "Role", "ClusterRole")


def test_names_are_unique_and_short_enough(case: str) -> None:
    """A label takes 63 characters, and each object stands once."""
    names = [(e["kind"], e["metadata"].get("namespace", ""), e["metadata"]["name"]) for e in objects(case)]

    assert [name for name, times in Counter(names).items() if times > 1] == []
    assert max(len(name) for kind, _, name in names if "Role" not in kind) <= 63


@pytest.mark.parametrize(("release", "namespace"), [("lockstep", "slurm"), ("a" * 53, "lockstep-system")])
def test_beside_slurm_and_under_a_long_name_nothing_collides(release: str, namespace: str) -> None:
    """Where the Leases are in the cluster's own namespace, and where names must be cut."""
    text = Helm(release=release, namespace=namespace).template(GOOD["forward"])
    found = [each["metadata"] | {"kind": each["kind"]} for each in yaml.safe_load_all(text) if each]
    names = [(each["kind"], each.get("namespace", ""), each["name"]) for each in found]

    assert len(set(names)) == len(names)
    assert all(len(name) <= 63 for kind, _, name in names if "Role" not in kind)
    assert all(len(value) <= 63 for each in found for value in each.get("labels", {}).values())


def test_nothing_is_reached_but_what_is_needed() -> None:
    """Slurm by those who speak to it, endpoints by forward; names, NATS, Jaeger and the API server by all."""
    ports = {
        component(policy): sorted({port["port"] for rule in policy["spec"]["egress"] for port in rule["ports"]})
        for policy in of_kind("locked-in", "NetworkPolicy")
        if "component" in str(policy["metadata"]["labels"]) and "egress" in policy["spec"]
    }
    everybody = [53, 4222, 4318, 6443]
    [deny] = [p for p in of_kind("locked-in", "NetworkPolicy") if p["metadata"]["name"] == "lockstep-deny"]
    slurm = [
        rule["to"]
        for rule in named("locked-in", "NetworkPolicy", "lockstep-reconciler")["spec"]["egress"]
        if rule["ports"] == [{"protocol": "TCP", "port": 6820}]
    ]

    assert deny["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in deny["spec"]
    assert ports == {
        "pod-watcher": everybody,
        "drain": everybody,
        "slurm-poller": sorted([*everybody, 6820]),
        "reconciler": sorted([*everybody, 6820]),
        "forward": sorted([*everybody, 443]),
        "nats": [53, 6222],
    }
    assert slurm == [
        [{"ipBlock": {"cidr": "10.0.0.9/32"}}],
        [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "slurm"}}}],
    ]


def test_alerts_say_where_a_sites_runbooks_are() -> None:
    """And Prometheus' own templates in them are left as they are."""
    [rules] = of_kind("watched", "PrometheusRule")
    annotations = [rule["annotations"] for group in rules["spec"]["groups"] for rule in group["rules"]]

    assert all(a["runbook_url"].startswith("https://example.com/lockstep/docs/runbooks/") for a in annotations)
    assert any("{{ $labels." in a["summary"] for a in annotations)
    assert len(of_kind("watched", "ConfigMap")) == 3 + 3  # dashboards; settings, NATS, Jaeger


def _may(case: str, account: str) -> list[tuple[str, Right]]:
    """Every right that an account has, with the namespace where it has it."""
    found: list[tuple[str, Right]] = []
    for binding in of_kind(case, "RoleBinding", "ClusterRoleBinding"):
        if account not in [subject["name"] for subject in binding["subjects"]]:
            continue
        space = binding["metadata"].get("namespace", "")
        reference = binding["roleRef"]
        role = named(case, reference["kind"], reference["name"], space or "lockstep-system")
        found += [(space, right) for rule in role["rules"] for right in _rights(rule, namespaced=bool(space))]
    return found


def _rights(rule: Object, *, namespaced: bool) -> list[Right]:
    """The rights of one rule; a wildcard would be one that no table has."""
    inside = namespaced or LEASES in rule["apiGroups"]
    return [
        Right(verb, resource.partition("/")[0], group, resource.partition("/")[2], namespaced=inside)
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    ]
