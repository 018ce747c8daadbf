"""What a lab has left on the machine; nothing, after ``down``. Used by ``status`` and by the lab's own test."""

from . import cgroups, machine, network, paths
from .processes import marked
from .rootfs import mounts_below


def find() -> list[str]:
    """One line for each process, mount, cgroup, bridge, chain, rule or folder of the lab that exists now.

    A state folder that is a mount point is not the lab's, but that of whoever keeps it apart.
    """
    roots = (paths.STATE, paths.RUN)
    found = [f"process {pid} ({name})" for pid, name in marked()]
    found += [f"mount {point}" for root in roots for point in mounts_below(root) if point != root]
    found += [f"cgroup {folder}" for folder in cgroups.folders()]
    if network.bridge_exists():
        found.append("the bridge")
    found += [f"iptables: {chain}" for chain in network.chains()]
    found += [f"folder {folder}" for folder in roots if folder.exists() and not folder.is_mount()]
    return found + machine.left()
