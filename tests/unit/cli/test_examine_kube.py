"""What `lockstep doctor` asks of Kubernetes: the rights that these settings need."""

from pathlib import Path

import pytest

from lockstep.cli.checks import Level
from lockstep.cli.connect import Reach
from lockstep.cli.examine_kube import rights
from lockstep.cli.rights import LEASE_RIGHTS, RIGHTS
from lockstep.runtime.settings import ClusterSettings, HealthSettings, KubeSettings, LeaseSettings, Settings
from tests.fakes.kube import FakeKube


@pytest.mark.parametrize("deployment", ["", "lockstep-slurm-poller"])
async def test_the_right_to_show_a_condition_is_asked_for_where_one_is_shown(tmp_path: Path, deployment: str) -> None:
    """In the namespace of the Leases; who shows none is not told to have too few rights."""
    cluster = ClusterSettings(name="main", namespace="slurm", url="http://slurm:6820", key_file="key")
    async with FakeKube() as api:
        api.allowed = {(r.verb, r.resource) for r in [*LEASE_RIGHTS, *(r for some in RIGHTS.values() for r in some)]}
        settings = Settings(
            clusters=[cluster],
            health=HealthSettings(deployment=deployment),
            lease=LeaseSettings(namespace="ours"),
            kube=KubeSettings(kubeconfig=api.kubeconfig(tmp_path)),
        )
        reach = Reach(settings)
        found = await rights(reach, settings.clusters)
        await reach._stack.aclose()

    failed = [check.found for check in found if check.level is Level.FAIL]
    lacks = "get deployments.apps in ours, patch deployments/status.apps in ours"
    assert failed == ([f"slurm_poller may not: {lacks}"] if deployment else [])
