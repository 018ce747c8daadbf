"""What a lab has left on the machine; nothing, after ``down``. Used by ``status`` and by the lab's own test."""

from . import cgroups, machine, network, paths
from .processes import marked
from .rootfs import mounts_below


def find() -> list[str]:
    """One line for each process, mount, cgroup, bridge, chain, rule or folder of the lab that exists now."""
    found = [f"process {pid} ({name})" for pid, name in marked()]
    found += [f"mount {point}" for root in (paths.STATE, paths.RUN) for point in mounts_below(root)]
    found += [f"cgroup {folder}" for folder in cgroups.folders()]
    if network.bridge_exists():
        found.append("the bridge")
    found += [f"iptables: {chain}" for chain in network.chains()]
    found += [f"folder {folder}" for folder in (paths.STATE, paths.RUN) if folder.exists()]
    return found + machine.left()
