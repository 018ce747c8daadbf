"""Slurm's configuration files, as far as a mistake in them would show only late."""

from itertools import pairwise

import pytest

from tests.lab.rootfs import GPUS, RESEARCHER, REST, SLURM
from tests.lab.slurm import PORTS
from tests.lab.slurm_conf import ClusterConf, gres_conf, node_conf, slurm_conf


def a_conf(version: str, *extra: str) -> ClusterConf:
    """A cluster of this version."""
    return ClusterConf(name="main", version=version, host="lab", address="192.0.2.7", port=16817, extra=extra)


@pytest.mark.parametrize("version", ["24.11", "26.05"])
def test_no_key_stands_twice(version: str) -> None:
    """Slurm takes the last of two without a word, or does not start."""
    keys = [line.partition("=")[0] for line in slurm_conf(a_conf(version)).splitlines()]

    assert len(keys) == len(set(keys))


def test_an_older_slurm_is_not_given_words_it_does_not_know() -> None:
    """An unknown key ends slurmctld at its start."""
    assert "MetricsType" in slurm_conf(a_conf("26.05"))
    assert "MetricsType" not in slurm_conf(a_conf("24.11"))


def test_extra_lines_come_last() -> None:
    """A test can add a plugin without a file of its own."""
    assert slurm_conf(a_conf("26.05", "TopologyPlugin=topology/block")).endswith("\nTopologyPlugin=topology/block\n")


def test_a_node_claims_the_gpus_that_there_are() -> None:
    """What slurmd says of itself fits the device files that gres.conf names."""
    assert f"Gres=gpu:h100:{GPUS}" in node_conf(port=1)
    assert f"nvidia[0-{GPUS - 1}]" in gres_conf()


def test_clusters_side_by_side_share_no_port_and_users_no_number() -> None:
    """A thousand slurmds of one cluster end before the next one's begin."""
    ports = [port for cluster in PORTS.values() for port in vars(cluster).values()]
    firsts = sorted(cluster.slurmd for cluster in PORTS.values())

    assert len(set(ports)) == len(ports)
    assert all(after - before >= 1000 for before, after in pairwise(firsts))
    assert len({SLURM.uid, REST.uid, RESEARCHER.uid, 0}) == 4
