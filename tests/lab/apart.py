"""A machine apart: one command, and the lab that it starts, in namespaces of their own.

Labs listen on the same ports and have bridges and rules of the same names. Side by side they live in a network, a mount
and a process namespace each; when the command has ended, its lab is taken down, and nothing of it is left running.
"""

import os
import sys
from collections.abc import Sequence

from . import paths

_NAMESPACES = ("--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child")
_SCRIPT = f"""
ip link set lo up
cgroups=$(mktemp -d)
mount --rbind /sys/fs/cgroup "$cgroups" && mount -t sysfs sysfs /sys && mount --move "$cgroups" /sys/fs/cgroup || exit 1
rmdir "$cgroups"
mkdir -p "$0" && mount -t tmpfs -o mode=0711,size=40% tmpfs "$0" || exit 1
"$@"
code=$?
{sys.executable} -m {__package__} down
umount "$0" && rmdir "$0"
exit $code
"""
"""The file system /sys shows the network of whoever mounted it. The shell stays: it is the one who reaps.

The lab's state (`$0`) is kept in memory, where the gigabyte of images of each lab is unpacked and removed at once; on a
busy disk `down` alone takes up to half a minute.
"""


def run(name: str, command: Sequence[str]) -> None:
    """Become that command, apart, with a lab of this name; its exit status is the command's. Needs root."""
    os.environ["LOCKSTEP_LAB_NAME"] = name
    os.chdir(paths.CHECKOUT)
    state = paths.STATE.with_name(f"{paths.STATE.name}-{name}")
    os.execvp("unshare", ["unshare", *_NAMESPACES, "sh", "-c", _SCRIPT, str(state), *command])
