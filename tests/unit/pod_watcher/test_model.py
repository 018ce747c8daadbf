"""What the settings name."""

from typing import Any

import pytest

from lockstep.contracts.policy import Policy
from lockstep.pod_watcher.model import reading_of, selector_of
from lockstep.runtime.settings import ClusterSettings, Settings, WorkerSelectors


def settings(*clusters: ClusterSettings, **policy: Any) -> Settings:
    """Settings with these clusters."""
    return Settings(clusters=list(clusters), policy=Policy(**policy))


def cluster(name: str, *, namespace: str = "slurm", **workers: Any) -> ClusterSettings:
    """A cluster."""
    return ClusterSettings(
        name=name, namespace=namespace, url="http://slurm:6820", key_file="/key", workers=WorkerSelectors(**workers)
    )


def test_the_policy_names_conditions_taints_and_labels() -> None:
    """Each in its own place."""
    reading = reading_of(
        settings(cluster("main"), node_conditions=["DiskPressure", "taint:example.com/repair", "label:maintenance=yes"])
    )

    assert reading.conditions == {"DiskPressure"}
    assert reading.taints == {"example.com/repair"}
    assert reading.labels is not None
    assert "maintenance" in reading.labels


def test_all_labels_are_read_where_workers_have_no_pods() -> None:
    """A Hold's selector then looks at the node's."""
    assert reading_of(settings(cluster("main", hybrid=True))).labels is None


def test_clusters_share_a_namespace_in_the_order_of_the_settings() -> None:
    """The first one refuses what names none."""
    reading = reading_of(settings(cluster("b"), cluster("a"), cluster("c", namespace="other")))

    assert reading.clusters == {"slurm": ["b", "a"], "other": ["c"]}


@pytest.mark.parametrize(
    ("labels", "selector"),
    [
        ({}, "app.kubernetes.io/name=slurmd,slinky.slurm.net/cluster=main"),
        ({"b": "2", "a": "1"}, "a=1,b=2"),
    ],
)
def test_a_selector_asks_for_all_labels(labels: dict[str, str], selector: str) -> None:
    """Slinky's where none are given."""
    assert selector_of(cluster("main", labels=labels)) == selector
