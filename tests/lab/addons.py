"""What makes pods reachable: kube-proxy for Services, CoreDNS for names. Both run on the machine, as processes."""

import subprocess

from . import paths, ports
from .build import COREDNS, KUBERNETES
from .kube import Kube
from .processes import Processes
from .progress import step, wait_for

KUBE_PROXY, DNS = "kube-proxy", "coredns"


def up(processes: Processes, kube: Kube) -> None:
    """Start both; ready when a Service name resolves through a Service address."""
    with step("kube-proxy and CoreDNS"):
        kube.apply(_dns_service())
        _start_proxy(processes, kube)
        _start_dns(processes, kube)
        wait_for(f"Service names resolve (logs: {processes.log(KUBE_PROXY)}, {processes.log(DNS)})", resolves, 60)


def resolves(name: str = "kubernetes.default.svc.cluster.local") -> bool:
    """Whether a name of the cluster resolves, asked as a pod asks: over the Service's address."""
    query = _query(name)
    probe = ["socat", "-t", "1", "-", f"UDP4:{ports.DNS_SERVICE}:53"]
    answer = subprocess.run(probe, input=query, capture_output=True, check=False).stdout
    return len(answer) > len(query) and answer[3] & 0x0F == 0


def _start_proxy(processes: Processes, kube: Kube) -> None:
    processes.start(
        KUBE_PROXY,
        [
            KUBERNETES.path("kube-proxy"),
            f"--kubeconfig={kube.component_kubeconfig('system:kube-proxy')}",
            "--hostname-override=node-1",
            "--proxy-mode=iptables",
            "--iptables-sync-period=30s",
            "--iptables-min-sync-period=100ms",
            f"--cluster-cidr={ports.NETWORK}",
            f"--healthz-bind-address={ports.LOOPBACK}:{ports.PROXY_HEALTH}",
            f"--metrics-bind-address={ports.LOOPBACK}:{ports.PROXY_METRICS}",
            "--conntrack-max-per-core=0",
            "--conntrack-tcp-timeout-established=0s",
            "--conntrack-tcp-timeout-close-wait=0s",
        ],
    )


def _start_dns(processes: Processes, kube: Kube) -> None:
    corefile = f""".:{ports.DNS} {{
    bind {ports.HOST}
    errors
    health {ports.LOOPBACK}:{ports.DNS_HEALTH}
    kubernetes cluster.local in-addr.arpa ip6.arpa {{
        kubeconfig {kube.component_kubeconfig("coredns")}
        pods insecure
        ttl 5
    }}
    cache 5
}}
"""
    path = paths.write(paths.STATE / "Corefile", corefile)
    processes.start(DNS, [COREDNS.path("coredns"), "-conf", path])


def _dns_service() -> str:
    """A Service without selector, and its one endpoint: CoreDNS on the machine."""
    return f"""
apiVersion: v1
kind: Service
metadata: {{name: kube-dns, namespace: kube-system, labels: {{k8s-app: kube-dns}}}}
spec:
  clusterIP: {ports.DNS_SERVICE}
  ports:
  - {{name: dns, port: 53, protocol: UDP, targetPort: {ports.DNS}}}
  - {{name: dns-tcp, port: 53, protocol: TCP, targetPort: {ports.DNS}}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: kube-dns-lab, namespace: kube-system, labels: {{kubernetes.io/service-name: kube-dns}}}}
addressType: IPv4
ports:
- {{name: dns, port: {ports.DNS}, protocol: UDP}}
- {{name: dns-tcp, port: {ports.DNS}, protocol: TCP}}
endpoints:
- addresses: ["{ports.HOST}"]
"""


def _query(name: str) -> bytes:
    """A DNS question for an address record."""
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split("."))
    return b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00" + labels + b"\x00\x00\x01\x00\x01"
