"""The lab's addresses and ports in one table. Everything listens on loopback or on the lab's own bridge."""

import re
import socket
import subprocess

LOOPBACK = "127.0.0.1"

BRIDGE = "lslab0"
NETWORK = "10.144.0.0/16"
"""Nodes and pods."""
HOST = "10.144.0.1"
"""The machine, as pods see it; the API server and CoreDNS listen here."""
PODS_FIRST, PODS_LAST = "10.144.16.0", "10.144.255.250"
SERVICES = "10.145.0.0/16"
KUBERNETES_SERVICE = "10.145.0.1"
DNS_SERVICE = "10.145.0.10"

ETCD = 12379
ETCD_PEER = 12380
API_SERVER = 26443
CONTROLLER_MANAGER = 10257
SCHEDULER = 10259
KUBELET = 10250
KUBELET_HEALTH = 10248
PROXY_HEALTH = 10256
PROXY_METRICS = 10249
DNS = 10053
DNS_HEALTH = 10054
NATS = 14222
NATS_MONITOR = 18222
PROMETHEUS = 19090
"""Only while somebody wants it."""
JAEGER = 26686
"""Its questions and answers; only while somebody wants it, as the next two."""
JAEGER_GRPC = 26685
OTLP = 24318
"""Where it takes traces, over HTTP."""


def node_address(number: int) -> str:
    """Address of the node with this number, counted from 1; an address of the bridge for a real kubelet."""
    return f"10.144.{number // 250}.{number % 250 + 5}"


def taken(kubelets: bool) -> list[str]:
    """Ports that somebody else listens on already, as ``port (what for) by whom``."""
    wanted = {
        "etcd": ETCD,
        "etcd peers": ETCD_PEER,
        "API server": API_SERVER,
        "controller manager": CONTROLLER_MANAGER,
        "scheduler": SCHEDULER,
        "NATS": NATS,
        "NATS monitor": NATS_MONITOR,
    }
    if kubelets:
        wanted |= {"kube-proxy": PROXY_HEALTH, "kube-proxy metrics": PROXY_METRICS, "CoreDNS health": DNS_HEALTH}
    return [f"{port} ({what}) by {_listener(port)}" for what, port in wanted.items() if _in_use(port)]


def _listener(port: int) -> str:
    """Name and pid of the process that listens there, as far as this user may know."""
    try:
        answer = subprocess.run(["ss", "-Hltnp", f"sport = :{port}"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "another process"
    match = re.search(r'"([^"]+)",pid=(\d+)', answer.stdout)
    return f"{match[1]}, pid {match[2]}" if match else "another process"


def _in_use(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return True
    return False
