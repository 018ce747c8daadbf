"""The fleet that is measured: real slurmds, and for each a worker pod on a hollow Kubernetes node."""

from concurrent.futures import ThreadPoolExecutor

from tests.lab.kube import Kube
from tests.lab.lab import Lab
from tests.lab.progress import step, wait_for
from tests.lab.rest import ApiError
from tests.lab.workers import NAMESPACE, labels

_SIDE_BY_SIDE = 8


def up(workers: int) -> tuple[Lab, list[str]]:
    """Start the lab with so many workers, or attach to it; returns it and the names of the workers.

    Pods come first: a worker counts as registered when its slurmd started after its pod.
    """
    lab = Lab.up("hollow", nodes=workers, workers=0)
    names = [f"gpu-{number}" for number in range(1, workers + 1)]
    with step(f"{workers} worker pods and slurmds"):
        _make_pods(lab, names)
        lab.slurm.add_slurmds(names, timeout_s=240)
    return lab, names


def node_of(worker: str) -> str:
    """The Kubernetes node of a worker."""
    return worker.replace("gpu-", "node-")


def _make_pods(lab: Lab, names: list[str]) -> None:
    kube = lab.kube
    kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"
    wait_for("the service account of the worker pods", lambda: _exists(kube, account), 30)
    with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
        list(pool.map(lambda name: _make_pod(lab, name), names))
    waiting = f"/api/v1/namespaces/{NAMESPACE}/pods?fieldSelector=status.phase!=Running&limit=1"
    wait_for("running worker pods", lambda: not kube.request("GET", waiting)["items"], 60)


def _make_pod(lab: Lab, name: str) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels(lab.slurm.cluster, "gpu")},
        "spec": {
            "hostname": name,
            "nodeName": node_of(name),
            "automountServiceAccountToken": False,
            "containers": [{"name": "slurmd", "image": "docker.io/lockstep-lab/slurmd:hollow"}],
        },
    }
    try:
        lab.kube.request("POST", f"/api/v1/namespaces/{NAMESPACE}/pods", pod)
    except ApiError as error:
        if error.status != 409:
            raise


def _exists(kube: Kube, path: str) -> bool:
    try:
        kube.request("GET", path)
    except ApiError:
        return False
    return True
