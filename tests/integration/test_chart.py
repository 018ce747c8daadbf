"""A real API server judges what the chart installs, for every kind of site; and what stays of it over its life."""

import base64
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy import chart
from tests.deploy.cases import GOOD
from tests.integration.control_plane import ControlPlane, control_plane
from tests.lab.helm import NAMESPACE, Helm, HelmError
from tests.lab.kube import KubeError
from tests.lab.lockstep import BIN, install
from tests.lab.processes import CLEAN_ENV
from tests.lab.progress import wait_for

pytestmark = pytest.mark.timeout(300)
OTHERS = {"ServiceMonitor": "servicemonitors", "PrometheusRule": "prometheusrules"}
"""Kinds of the Prometheus operator, of which this API server knows that they are there and nothing more."""
CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/holds.lockstep.sh"
ONE = GOOD["requests-and-people"]


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """An API server without nodes, and the namespaces of a site; ours takes restricted pods only, and says so."""
    with control_plane() as found:
        _forget(found)
        for kind, plural in OTHERS.items():
            found.kube.apply(_anything(kind, plural))
        for name in ("slurm", "research", NAMESPACE):
            kinds = ("enforce", "warn") if name == NAMESPACE else ()
            labels = {f"pod-security.kubernetes.io/{kind}": "restricted" for kind in kinds}
            found.kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
        yield found


@pytest.mark.parametrize("case", GOOD)
def test_the_api_server_takes_all_of_it_without_a_warning(plane: ControlPlane, case: str) -> None:
    """Each field is known, each value allowed, each pod restricted."""
    ours = Helm(plane).template(GOOD[case], "--dry-run=server")

    answer = plane.kube.kubectl(
        *(
            "apply",
            "--server-side",
            "--force-conflicts",
            "--dry-run=server",
            "--validate=strict",
            "--warnings-as-errors",
        ),
        *("-f", "-"),
        input=ours,
    )
    assert len(answer.splitlines()) == ours.count("\nkind: ") > 15


def test_an_upgrade_keeps_passwords_and_upgrades_the_hold_resource_which_outlives_the_release(
    plane: ControlPlane,
) -> None:
    """Helm upgrades nothing that lies in `crds/`; and what it can look up, it does not make anew. Holds stay, too."""
    helm = Helm(plane)
    told = helm.install(ONE, wait=False)
    assert f"kubectl -n {NAMESPACE} exec deploy/lockstep-reconciler -- lockstep doctor" in told
    before = _passwords(plane)
    older = [{"op": "remove", "path": "/spec/versions/0/additionalPrinterColumns/0"}]
    plane.kube.request("PATCH", CRD, older, kind="application/json-patch+json")

    people = {"nats": {"auth": {"readers": ["guest", "grafana", "audit"], "admins": ["admin"]}}}
    helm.upgrade({**ONE, **people}, "--force-conflicts", wait=False)
    after = _passwords(plane)
    assert before.items() <= after.items()
    assert set(after) - set(before) == {"lockstep-nats-audit"}
    columns = plane.kube.request("GET", CRD)["spec"]["versions"][0]["additionalPrinterColumns"]
    assert columns[0]["name"] == "Class"

    _hold(plane, "dimm")
    helm.uninstall(wait=False)
    assert _passwords(plane) == {}
    assert [hold["metadata"]["name"] for hold in plane.kube.get_json("holds", "-n", "slurm")["items"]] == ["dimm"]


@pytest.mark.parametrize("service", ["slurm-poller", "drain"])
def test_doctor_with_a_services_account_asks_what_that_service_needs(
    plane: ControlPlane, service: str, tmp_path: Path
) -> None:
    """So that `kubectl exec … -- lockstep doctor` on a sound installation finds nothing wrong with rights."""
    helm = Helm(plane)
    helm.upgrade(ONE, "--install", "--take-ownership", "--force-conflicts", wait=False)
    token = plane.kube.kubectl("-n", NAMESPACE, "create", "token", f"lockstep-{service}").strip()
    settings = yaml.safe_load(chart.settings_of("requests-and-people"))
    settings["kube"] = {"kubeconfig": str(plane.kube._pki.kubeconfig(service, plane.kube.server, token=token))}
    (tmp_path / "settings.yaml").write_text(yaml.safe_dump(settings))
    argv = [BIN / "lockstep", "doctor", "--config", tmp_path / "settings.yaml", "-o", "json"]
    answer = subprocess.run(
        argv, env={**CLEAN_ENV, "LOCKSTEP_NATS_USER": service}, capture_output=True, text=True, check=False
    )

    found = [
        check for check in json.loads(answer.stdout)["items"] if check["area"] in {"rights", "budgets", "neighbour"}
    ]
    assert {check["level"] for check in found} == {"ok"}, answer.stdout
    assert {check["found"].split(" has ")[0] for check in found if check["area"] == "rights"} == (
        {"drain", "drain, for requests,"} if service == "drain" else {"slurm_poller"}
    )


def test_a_resource_that_was_there_without_helm_is_adopted(plane: ControlPlane) -> None:
    """With the two options that the README names, and not without."""
    helm = Helm(plane)
    helm.uninstall(wait=False)
    _forget(plane)
    install(plane.kube)

    with pytest.raises(HelmError, match="invalid ownership metadata"):
        helm.install(ONE, wait=False)
    helm.uninstall(wait=False)
    helm.install(ONE, "--take-ownership", "--force-conflicts", wait=False)
    helm.uninstall(wait=False)


def _forget(plane: ControlPlane) -> None:
    """As if Lockstep had never been there."""
    plane.kube.kubectl("delete", "crd", "holds.lockstep.sh", "--ignore-not-found")
    for kind in ("mutating", "validating"):
        names = (f"{kind}admissionpolicy,{kind}admissionpolicybinding", "hold-owner.lockstep.sh")
        plane.kube.kubectl("delete", *names, "--ignore-not-found")


def _anything(kind: str, plural: str) -> dict[str, Any]:
    """A custom resource that takes everything."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    group = "monitoring.coreos.com"
    names = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
    versions = [{"name": "v1", "served": True, "storage": True, "schema": schema}]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": versions},
    }


def _passwords(plane: ControlPlane) -> dict[str, str]:
    """The clear passwords of all NATS users, by the name of their Secret."""
    found: list[dict[str, Any]] = plane.kube.get_json("secrets", "-n", NAMESPACE)["items"]
    return {
        each["metadata"]["name"]: base64.b64decode(each["data"]["password"]).decode()
        for each in found
        if "password" in each.get("data", {})
    }


def _hold(plane: ControlPlane, name: str) -> None:
    """A Hold; an API server serves a kind again some time after its definition was changed."""
    spec = {"workers": {"names": ["gpu-1"]}, "reason": "DIMM B2 swap"}
    metadata = {"name": name, "namespace": "slurm"}
    hold = {"apiVersion": "lockstep.sh/v1alpha1", "kind": "Hold", "metadata": metadata, "spec": spec}

    def created() -> bool:
        try:
            plane.kube.apply(hold)
        except KubeError as error:
            if "not found" not in str(error):
                raise
            return False
        return True

    wait_for("Holds can be created", created, 60)
