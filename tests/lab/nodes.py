"""Real Kubernetes nodes: a kubelet and a containerd each, several on one machine.

Every node lives in a mount namespace of its own, held by a small process (``node-1``). In it the usual folders
(/var/lib/kubelet, /run/containerd, …) are the node's own: kubelet and containerd run with their ordinary paths and do
not see those of the next node. When its last process has ended, all its mounts are gone with it, whatever crashed.
"""

import json
import shutil
import subprocess
from pathlib import Path

from . import cgroups, machine, network, paths, ports
from .build import CONTAINERD, KUBERNETES
from .kube import Kube
from .processes import Processes
from .progress import each, step, wait_for
from .versions import PAUSE

_OWN_FOLDERS = {
    "/var/lib/kubelet": "kubelet",
    "/var/lib/containerd": "containerd",
    "/run/containerd": "run",
    "/var/log/pods": "pod-logs",
    "/var/log/containers": "container-logs",
    "/opt/containerd": "opt",
    "/etc/cni/net.d": "cni",
    "/etc/cdi": "cdi",
    "/usr/libexec/kubernetes": "plugins",
}
"""Folder in the node's namespace, and where its content lies below the node's state."""


class Node:
    """One node: ``node-1``, with the processes ``node-1``, ``containerd-1`` and ``kubelet-1``."""

    def __init__(self, processes: Processes, number: int) -> None:
        """Address the node with this number, counted from 1."""
        self.number = number
        self.name = f"node-{number}"
        self.address = ports.node_address(number)
        self.containerd, self.kubelet = f"containerd-{number}", f"kubelet-{number}"
        self.state = paths.STATE / "nodes" / self.name
        self._processes = processes

    @property
    def socket(self) -> Path:
        """Containerd's socket, as the machine sees it."""
        return self.state / "run" / "containerd.sock"

    def start_containerd(self) -> None:
        """Create the namespace and start containerd in it; ready when it answers."""
        for folder in _OWN_FOLDERS.values():
            (self.state / folder).mkdir(parents=True, exist_ok=True)
        paths.write(self.state / "cni" / "lab.conflist", network.cni_config())
        config = paths.write(self.state / "containerd.toml", containerd_config())
        binds = [
            f"mount --bind {self.state / folder} {place} && mount --make-private {place} && mount --make-shared {place}"
            for place, folder in _OWN_FOLDERS.items()
        ]
        script = " && ".join(["mount --make-rslave /", *binds, "exec sleep infinity"])
        self._processes.start(self.name, ["unshare", "--mount", "--propagation=private", "sh", "-c", script])
        wait_for(f"mounts of {self.name}", self._mounted, 10, 0.01)
        path = f"{CONTAINERD.folder}:/usr/sbin:/usr/bin:/sbin:/bin"
        self._processes.start(
            self.containerd, self._inside(CONTAINERD.path("containerd"), "--config", config), env={"PATH": path}
        )
        wait_for(f"{self.containerd} (log: {self._processes.log(self.containerd)})", self._containerd_ready, 30)

    def start_kubelet(self, kube: Kube) -> None:
        """Start the kubelet; it registers by itself. Needs containerd and the API server."""
        root = cgroups.create(self.name)
        config = paths.write(
            self.state / "kubelet.json", json.dumps(kubelet_config(self.address, root, kube), indent=1)
        )
        self._processes.start(
            self.kubelet,
            self._inside(
                KUBERNETES.path("kubelet"),
                f"--config={config}",
                f"--kubeconfig={kube.node_kubeconfig(self.name)}",
                f"--hostname-override={self.name}",
                f"--node-ip={self.address}",
                "--cert-dir=/var/lib/kubelet/pki",
            ),
        )

    def ctr(self, *arguments: str | Path) -> str:
        """Run containerd's client in the namespace that the kubelet's images and containers are in."""
        argv = list(map(str, [CONTAINERD.path("ctr"), "--address", self.socket, "-n", "k8s.io", *arguments]))
        answer = subprocess.run(argv, capture_output=True, text=True, check=False)
        if answer.returncode != 0:
            raise RuntimeError(f"ctr {' '.join(map(str, arguments))} on {self.name}: {answer.stderr.strip()}")
        return answer.stdout

    def power_off(self) -> None:
        """End kubelet, containerd and all pods at once, as when a machine loses its power: nobody is told."""
        for name in (self.kubelet, self.containerd):
            self._processes.kill(name)
        cgroups.remove(self.name)
        for name in (self.containerd, self.name):
            self._processes.sweep(name)
        shutil.rmtree(self.state / "run")

    def power_on(self, kube: Kube) -> None:
        """Start the node again, with its images and disks; ready when it has told Kubernetes so anew."""
        lease = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{self.name}"
        before = kube.request("GET", lease)["spec"]["renewTime"]
        self.start_containerd()
        self.start_kubelet(kube)
        wait_for(
            f"a sign of life of {self.name}", lambda: kube.request("GET", lease)["spec"]["renewTime"] != before, 60
        )
        wait_registered(kube, [self])

    def _inside(self, *argv: str | Path) -> list[str | Path]:
        """The command that runs in the node's mount namespace."""
        return ["nsenter", f"--mount=/proc/{self._processes.pid(self.name)}/ns/mnt", "--", *argv]

    def _mounted(self) -> bool:
        mounts = Path(f"/proc/{self._processes.pid(self.name)}/mountinfo").read_text()
        return all(f" {place} " in mounts for place in _OWN_FOLDERS)

    def _containerd_ready(self) -> bool:
        self._processes.pid(self.containerd)
        if not self.socket.is_socket():
            return False
        argv = [str(CONTAINERD.path("ctr")), "--address", str(self.socket), "--connect-timeout", "2s", "version"]
        return subprocess.run(argv, capture_output=True, check=False).returncode == 0


def prepare_machine() -> None:
    """Make the mount points of nodes where this machine does not have them."""
    machine.prepare(_OWN_FOLDERS)


def wait_registered(kube: Kube, nodes: list[Node], timeout_s: float = 90) -> None:
    """Wait until every node is Ready."""
    with step(f"{len(nodes)} kubelets ready"):
        names = {node.name for node in nodes}
        wait_for(f"nodes {', '.join(sorted(names))}", lambda: names <= _ready_nodes(kube), timeout_s)


def _ready_nodes(kube: Kube) -> set[str]:
    return {
        node["metadata"]["name"]
        for node in kube.request("GET", "/api/v1/nodes")["items"]
        for condition in node["status"].get("conditions", ())
        if (condition["type"], condition["status"]) == ("Ready", "True")
    }


def containerd_config() -> str:
    """Containerd's configuration (version 3).

    Without CAP_SYS_RESOURCE nobody may lower an OOM score, and each sandbox would fail with "can't get final child's
    PID from pipe: EOF"; containerd then keeps its own score.
    """
    restrict = "false" if _has_cap_sys_resource() else "true"
    return f"""version = 3
disabled_plugins = ["io.containerd.nri.v1.nri"]

[grpc]
address = "/run/containerd/containerd.sock"

[plugins.'io.containerd.cri.v1.images']
snapshotter = "overlayfs"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = "{PAUSE}"

[plugins.'io.containerd.cri.v1.runtime']
restrict_oom_score_adj = {restrict}
disable_apparmor = true
netns_mounts_under_state_dir = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ["/usr/lib/cni"]
conf_dir = "/etc/cni/net.d"
[plugins.'io.containerd.cri.v1.runtime'.containerd]
default_runtime_name = "runc"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
SystemdCgroup = false
"""


def kubelet_config(address: str, cgroup_root: str, kube: Kube) -> dict[str, object]:
    """The kubelet's configuration; the machine's limits (swap, cgroup v1, a full disk) do not stop it."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": address,
        "port": ports.KUBELET,
        "healthzBindAddress": address,
        "healthzPort": ports.KUBELET_HEALTH,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(kube.authority)},
        },
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup_root,
        "failCgroupV1": False,
        "enforceNodeAllocatable": [],
        "failSwapOn": False,
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "clusterDomain": "cluster.local",
        "clusterDNS": [ports.DNS_SERVICE],
        "resolvConf": "",
        "maxPods": 400,
        "serializeImagePulls": False,
        "nodeStatusUpdateFrequency": "5s",
        "syncFrequency": "10s",
        "shutdownGracePeriod": "0s",
    }


def _has_cap_sys_resource() -> bool:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) & 1 << 24)
    return False


def all_nodes(processes: Processes, count: int) -> list[Node]:
    """The nodes 1 to ``count``."""
    return [Node(processes, number) for number in range(1, count + 1)]


def start_containerds(nodes: list[Node]) -> None:
    """Start all containerds at once."""
    with step(f"{len(nodes)} containerds"):
        by_name = {node.name: node for node in nodes}
        each(lambda name: by_name[name].start_containerd(), list(by_name))
