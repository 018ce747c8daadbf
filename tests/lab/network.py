"""The lab's network: one bridge for nodes and pods, a few accepting iptables rules, and how all of it goes away.

Nodes of one machine share the bridge, so pods reach each other without routes; a node's address is a further address
of the bridge. No masquerading: everything sees the true pod address, also slurmctld on the machine.
"""

import contextlib
import json
import os
import re
import subprocess
from pathlib import Path

from . import machine, paths, ports

_SYSCTLS = {"net/ipv4/ip_forward": "1", "net/bridge/bridge-nf-call-iptables": "1"}
"""Forwarding between pods and machine; and iptables for bridged packets, so that answers of a Service find back."""

_TOUCHED = (*_SYSCTLS, "net/ipv4/conf/all/route_localnet")
"""All that is set back at the end: kube-proxy sets the last."""

_SAVED = paths.STATE / "sysctls.json"
_COMMENT = "lockstep-lab"
_CHAINS = re.compile(r"(KUBE|CNI)-")


def up(nodes: int) -> None:
    """Create the bridge with an address for the machine and each node; allow forwarding through it."""
    down()
    _set_sysctls()
    _run("ip", "link", "add", ports.BRIDGE, "type", "bridge")
    prefix = ports.NETWORK.partition("/")[2]
    _run("ip", "address", "add", f"{ports.HOST}/{prefix}", "dev", ports.BRIDGE)
    for number in range(1, nodes + 1):
        _run("ip", "address", "add", f"{ports.node_address(number)}/{prefix}", "dev", ports.BRIDGE)
    _run("ip", "link", "set", ports.BRIDGE, "up")
    _run("ip", "route", "add", ports.SERVICES, "dev", ports.BRIDGE, "src", ports.HOST)
    for direction in ("-s", "-d"):
        rule = [direction, ports.NETWORK, "-m", "comment", "--comment", _COMMENT, "-j", "ACCEPT"]
        _run("iptables", "-w", "-I", "FORWARD", *rule)


def cni_config() -> str:
    """The pod network as containerd's CNI reads it; the same for all nodes of the machine."""
    plugin = {
        "type": "bridge",
        "bridge": ports.BRIDGE,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "dataDir": str(paths.RUN / "addresses"),
            "ranges": [
                [
                    {
                        "subnet": ports.NETWORK,
                        "rangeStart": ports.PODS_FIRST,
                        "rangeEnd": ports.PODS_LAST,
                        "gateway": ports.HOST,
                    }
                ]
            ],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    return json.dumps({"cniVersion": "1.0.0", "name": "lab", "plugins": [plugin]}, indent=1)


def down() -> None:
    """Remove bridge, rules and chains, and set the kernel's switches back; nothing happens where nothing is left."""
    if bridge_exists():
        _run("ip", "link", "delete", ports.BRIDGE)
    for tool in ("iptables", "ip6tables"):
        for table, lines in _tables(tool).items():
            _clean_table(tool, table, lines)
    with contextlib.suppress(FileNotFoundError):
        machine.write_switches(json.loads(_SAVED.read_text()))
        _SAVED.unlink()


def bridge_exists() -> bool:
    """Whether the lab's bridge is there."""
    return Path("/sys/class/net", ports.BRIDGE).exists()


def chains() -> list[str]:
    """Chains of kube-proxy and CNI, and rules of the lab, as ``tool table chain``."""
    found = []
    for tool in ("iptables", "ip6tables"):
        for table, lines in _tables(tool).items():
            names = [line.split()[0][1:] for line in lines if line.startswith(":") and _CHAINS.match(line[1:])]
            names += [line for line in lines if _COMMENT in line]
            found += [f"{tool} {table} {name}" for name in names]
    return found


def _tables(tool: str) -> dict[str, list[str]]:
    """Rules by table, for the tables that exist; none on a machine without the tool."""
    try:
        answer = subprocess.run([f"{tool}-save"], capture_output=True, text=True, check=False, env=_env())
    except FileNotFoundError:
        return {}
    tables: dict[str, list[str]] = {}
    current: list[str] = []
    for line in answer.stdout.splitlines():
        if line.startswith("*"):
            current = tables.setdefault(line[1:], [])
        elif line.startswith((":", "-")):
            current.append(line)
    return tables


def _clean_table(tool: str, table: str, lines: list[str]) -> None:
    """Delete kube-proxy's and CNI's chains, the rules that lead there, and our own, in one transaction.

    ``--noflush`` leaves every other rule as it is, and their counters.
    """
    script = cleaning(table, lines)
    if script:
        command = [f"{tool}-restore", "-w", "--noflush"]
        subprocess.run(command, input=script, text=True, check=True, capture_output=True, env=_env())


def cleaning(table: str, lines: list[str]) -> str:
    """Commands for ``iptables-restore`` that delete what is ours from a table; empty if nothing is.

    Args:
        table: Its name.
        lines: Its chains and rules as ``iptables-save`` prints them.
    """
    ours = [line.split()[0][1:] for line in lines if line.startswith(":") and _CHAINS.match(line[1:])]
    rules = [line for line in lines if line.startswith("-A ")]
    leads = [rule for rule in rules if rule.split()[1] not in ours and (_COMMENT in rule or _target(rule) in ours)]
    if not ours and not leads:
        return ""
    flushed = [f":{name} - [0:0]" for name in ours]
    deleted = [f"-D{rule[2:]}" for rule in leads] + [f"-X {name}" for name in ours]
    return "\n".join([f"*{table}", *flushed, *deleted, "COMMIT", ""])


def _target(rule: str) -> str:
    match = re.search(r" -[jg] (\S+)", rule)
    return match[1] if match else ""


def _set_sysctls() -> None:
    if not Path("/proc/sys/net/bridge").exists():
        subprocess.run(["modprobe", "br_netfilter"], check=False, capture_output=True, env=_env())
    paths.write(_SAVED, json.dumps(machine.read_switches(_TOUCHED)))
    machine.write_switches(_SYSCTLS)


def _run(*argv: str) -> None:
    answer = subprocess.run(argv, capture_output=True, text=True, check=False, env=_env())
    if answer.returncode != 0:
        raise RuntimeError(f"{' '.join(argv)}: {answer.stderr.strip()}")


def _env() -> dict[str, str]:
    return {**os.environ, "PATH": f"/usr/sbin:/sbin:{os.environ.get('PATH', '/usr/bin:/bin')}"}
