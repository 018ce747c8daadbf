from pathlib import Path

import pytest

from lockstep.runtime.settings import ClusterSettings, HealthSettings, KubeSettings, LeaseSettings, Settings

KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: a, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {token: x}}]
contexts: [{name: c, context: {cluster: a, user: u}}]
current-context: c
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Settings under which nothing but NATS is reached."""
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)
    return Settings(
        clusters=[ClusterSettings(name="main", namespace="slurm", url="http://127.0.0.1:1", key_file="/none")],
        kube=KubeSettings(kubeconfig=str(tmp_path / "kubeconfig")),
        lease=LeaseSettings(enabled=False),
        health=HealthSettings(port=0),
        data_dir=str(tmp_path / "data"),
    )
