"""What pairing needs to know, from the settings."""

from lockstep.fleet.pairing import Site
from lockstep.runtime.settings import Settings


def site_of(settings: Settings) -> Site:
    """Which clusters have workers without pods, and the label by which such a worker's Kubernetes node is known."""
    hybrid = frozenset(cluster.name for cluster in settings.clusters if cluster.workers.hybrid)
    labels = {cluster.workers.nodename_label for cluster in settings.clusters}
    return Site(hybrid=hybrid, nodename_label=min(labels))
