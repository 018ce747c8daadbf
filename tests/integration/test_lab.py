"""The lab itself: what it promises to the tests that run on it. Needs root; the first run builds Kubernetes."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab import leftovers
from tests.lab.kube import KubeError
from tests.lab.lab import Lab
from tests.lab.processes import marked
from tests.lab.progress import wait_for
from tests.lab.rest import Rest
from tests.lab.versions import PAUSE

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    """A lab with three real kubelets and a worker on each."""
    lab = Lab.up(profile="kubelets", nodes=3)
    lab.workers.create(3)
    yield lab
    lab.down()


@pytest.fixture
def web(lab: Lab) -> Iterator[str]:
    """A web server on every node behind a Service; its name."""
    labels = {"app": "web"}
    container = {
        "name": "web",
        "image": PAUSE,
        "command": ["/bin/sh", "-c", "echo hello > /tmp/index.html; exec /bin/busybox httpd -f -p 8080 -h /tmp"],
        "readinessProbe": {"httpGet": {"port": 8080, "path": "/index.html"}, "periodSeconds": 1},
    }
    spread = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
    pod = {
        "containers": [container],
        "terminationGracePeriodSeconds": 1,
        "topologySpreadConstraints": [spread | {"labelSelector": {"matchLabels": labels}}],
    }
    for kind, version, spec in (
        ("Service", "v1", {"selector": labels, "ports": [{"port": 80, "targetPort": 8080}]}),
        (
            "DaemonSet",
            "apps/v1",
            {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod}},
        ),
    ):
        lab.kube.apply(
            {"apiVersion": version, "kind": kind, "metadata": {"name": "web", "namespace": "default"}, "spec": spec}
        )
    lab.kube.kubectl("rollout", "status", "daemonset/web", "--timeout=60s")
    yield "web"
    lab.kube.kubectl("delete", "service/web", "daemonset/web")


def test_pods_reach_each_other_by_name_through_a_service(lab: Lab, web: str) -> None:
    """DNS, Service addresses, pod network and exec, from a pod on each node."""
    pods = [pod["metadata"]["name"] for pod in lab.kube.get_json("pods", "-l", f"app={web}")["items"]]
    assert len(pods) == 3
    for pod in pods:
        url = f"http://{web}.default.svc.cluster.local/index.html"
        assert lab.kube.kubectl("exec", pod, "--", "/bin/wget", "-q", "-O-", url) == "hello\n"


def test_a_job_runs_on_gpus_in_worker_pods(lab: Lab) -> None:
    """Slurm's nodes are the pods: each prints its own name."""
    lab.workers.wait(["gpu-1", "gpu-2", "gpu-3"])
    assert sorted(lab.slurm.srun("-N3", "--gres=gpu:8", "hostname").split()) == ["gpu-1", "gpu-2", "gpu-3"]


def test_up_on_a_running_lab_attaches(lab: Lab) -> None:
    """Nothing is started again, and it is quick."""
    pid, begun = lab.processes.pid("kube-apiserver"), time.monotonic()
    assert Lab.up(profile="kubelets", nodes=3).processes.pid("kube-apiserver") == pid
    assert time.monotonic() - begun < 2


def test_another_command_cannot_end_a_lab_that_is_used(lab: Lab) -> None:
    """This process uses it; the text says so."""
    command = [sys.executable, "-m", "tests.lab", "down", "--no-wait"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode == 1
    assert f"in use by {os.getpid()} " in answer.stderr
    assert lab.healthy()


def test_dropped_watches_end_and_the_api_server_goes_on(lab: Lab) -> None:
    """The connection is reset; nobody restarts."""
    pid = lab.processes.pid("kube-apiserver")
    watch = _Watch(lab)
    lab.fail.drop_watches()
    assert watch.ended_within(5)
    assert lab.processes.pid("kube-apiserver") == pid
    assert lab.kube.ready()


def test_a_watch_from_before_a_compaction_is_told_that_it_is_gone(lab: Lab) -> None:
    """The API server's cache forgets at its restart, etcd at the compaction."""
    version = lab.kube.request("GET", "/api/v1/namespaces")["metadata"]["resourceVersion"]
    lab.kube.kubectl("annotate", "namespace", "default", f"lab/test={version}", "--overwrite")
    lab.fail.compact()
    lab.fail.restart_apiserver()
    events = list(_rest(lab).watch(f"/api/v1/namespaces?watch=1&resourceVersion={version}", 10))
    assert events[0]["object"]["code"] == 410


def test_a_frozen_api_server_answers_nothing_and_goes_on_later(lab: Lab) -> None:
    """Connections stay open: only a time limit helps the client."""
    with lab.fail.frozen("kube-apiserver"), pytest.raises(KubeError, match=r"(?i)timeout|deadline"):
        lab.kube.kubectl("get", "nodes", "--request-timeout=1s")
    assert "node-1" in lab.kube.kubectl("get", "nodes")


def test_a_revoked_token_stops_to_work(lab: Lab) -> None:
    """Within the ten seconds of the API server's cache."""
    token = lab.kube.token_for("somebody")
    server = (f"--server={lab.kube.server}", f"--certificate-authority={lab.kube.authority}", "--kubeconfig=/dev/null")
    ask = ("auth", "whoami", "-o", "json", f"--token={token}", *server)
    who = json.loads(lab.kube.kubectl(*ask))
    assert who["status"]["userInfo"]["username"] == "system:serviceaccount:lockstep-lab:somebody"
    lab.fail.revoke("somebody")
    wait_for("the token to be refused", lambda: not lab.kube.kubectl(*ask, check=False), 15)


def test_a_node_that_lost_its_power_comes_back_with_its_workers(lab: Lab) -> None:
    """Pods, kubelet and containerd are gone at once; images and names are still there."""
    node = lab.workers.node_of("gpu-2")
    lab.fail.power_off(node)
    wait_for("gpu-2 to stop answering", lambda: "gpu-2" not in lab.slurm.idle(), 90)
    lab.fail.power_on(node)
    lab.workers.wait(["gpu-2"], timeout_s=60)


def test_nats_keeps_its_server_over_a_kill(lab: Lab) -> None:
    """`start` is ready when it returns."""
    lab.nats.kill()
    assert not lab.healthy()
    lab.nats.start()
    assert lab.healthy()


def test_a_lab_whose_every_process_was_killed_starts_again(lab: Lab) -> None:
    """Pods that lost their kubelet, mounts and cgroups are in nobody's way."""
    for pid, _ in list(marked()):
        os.kill(pid, signal.SIGKILL)
    again = Lab.up(profile="kubelets", nodes=3)
    assert again.healthy()
    again.workers.wait(["gpu-1", "gpu-2", "gpu-3"])


def test_down_leaves_nothing(lab: Lab) -> None:
    """No process, mount, cgroup, bridge, iptables chain or folder but the cache and the logs."""
    lab.down()
    assert leftovers.find() == []


class _Watch:
    """A watch on all nodes, in a thread of its own."""

    def __init__(self, lab: Lab) -> None:
        self._seen = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(_rest(lab),), daemon=True)
        self._thread.start()
        assert self._seen.wait(10)

    def ended_within(self, seconds: float) -> bool:
        """Whether the watch is over."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self, rest: Rest) -> None:
        try:
            for _ in rest.watch("/api/v1/nodes?watch=1", 60):
                self._seen.set()
        except (OSError, ValueError):
            return


def _rest(lab: Lab) -> Rest:
    config: dict[str, Any] = json.loads(lab.kube.kubeconfig.read_text())
    return Rest(lab.kube.server, config["users"][0]["user"]["token"], lab.kube.authority)
