"""The chart as Helm renders it, for tests: the objects, and questions about them."""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import yaml

from tests.lab.helm import NAMESPACE, Helm

from .cases import GOOD

Object = dict[str, Any]
RELEASE = "lockstep"


@cache
def manifest(case: str) -> str:
    """What Helm makes of one of the cases, rendered once: half of a second of it is the passwords' bcrypt."""
    return Helm().template(GOOD[case])


def objects(case: str) -> list[Object]:
    """The objects of one case."""
    return [each for each in yaml.load_all(manifest(case), Loader=_LOADER) if each]


def of_kind(case: str, *kinds: str) -> list[Object]:
    """Those of these kinds."""
    return [each for each in objects(case) if each["kind"] in kinds]


def named(case: str, kind: str, name: str, namespace: str = NAMESPACE) -> Object:
    """The one of that kind and name."""
    [found] = [
        each
        for each in of_kind(case, kind)
        if each["metadata"]["name"] == name and each["metadata"].get("namespace", namespace) == namespace
    ]
    return found


def workloads(case: str) -> list[Object]:
    """What makes pods."""
    return of_kind(case, "Deployment", "StatefulSet", "Job")


def services(case: str) -> list[Object]:
    """The Deployments of our services."""
    return [each for each in of_kind(case, "Deployment") if component(each) != "jaeger"]


def component(thing: Object) -> str:
    """Which part of the product it belongs to."""
    return str(thing["metadata"]["labels"]["app.kubernetes.io/component"])


def pod_of(workload: Object) -> Object:
    """The spec of the pods that it makes."""
    spec: Object = workload["spec"]["template"]["spec"]
    return spec


def labels_of(workload: Object) -> dict[str, str]:
    """The labels of the pods that it makes."""
    labels: dict[str, str] = workload["spec"]["template"]["metadata"]["labels"]
    return labels


def selects(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Whether a `matchLabels` matches."""
    return selector.items() <= labels.items()


def secrets_of(pod: Object) -> Iterator[Object]:
    """Every reference to a Secret in a pod's volumes, with `name` and perhaps `optional`."""
    for volume in pod.get("volumes", []):
        if "secret" in volume:
            yield {"name": volume["secret"]["secretName"], **volume["secret"]}
        yield from (part["secret"] for part in volume.get("projected", {}).get("sources", []) if "secret" in part)


def settings_of(case: str, name: str = f"{RELEASE}-settings") -> str:
    """`settings.yaml` as the services find it."""
    return str(named(case, "ConfigMap", name)["data"]["settings.yaml"])


def text_of(thing: Object) -> str:
    """All that is in an object."""
    return json.dumps(thing)


_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's where there is one: it reads the CRD ten times as quickly."""
