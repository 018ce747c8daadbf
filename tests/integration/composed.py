"""compose.yaml, played for real on Docker and a Kubernetes control plane; what both systems say goes to a file as JSON.

Docker makes bridges and firewall rules, so run it apart: ``tests.lab apart NAME python -m …composed FILE``.
Kubernetes' nodes have no kubelet; the composed workers are Slurm nodes without pods.
"""

import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

from tests.lab import lock, paths, ports, product
from tests.lab.docker import Docker
from tests.lab.kube import Kube
from tests.lab.lockstep import DEPLOY
from tests.lab.processes import Processes
from tests.lab.progress import step, wait_for

NODES = ("node-1", "node-2")
SECRET = "/etc/slurm/jwt_hs256.key"
"""In slurmctld's container."""


class Stage:
    """Kubernetes and Docker, and how to ask them."""

    def __init__(self) -> None:
        """Not started yet."""
        processes = Processes()
        self.kube = Kube(processes, address=ports.HOST)
        self.docker = Docker(processes)
        self._kubeconfig = paths.STATE / "kubeconfig"

    def up(self) -> None:
        """Start both; containers reach the API server at an address of this machine that is not loopback."""
        paths.prepare()
        subprocess.run(["ip", "address", "add", f"{ports.HOST}/32", "dev", "lo"], check=True)
        self.kube.up(0, hollow=True)
        for name in NODES:
            meta = {"name": name, "labels": {"kubernetes.io/hostname": name}}
            self.kube.apply({"apiVersion": "v1", "kind": "Node", "metadata": meta})
        self.kube.kubectl("apply", "--server-side", "-f", str(DEPLOY / "crds"), "-f", str(DEPLOY / "policies"))
        flat = self.kube.kubectl("config", "view", "--raw", "--flatten", "--minify")
        paths.write(self._kubeconfig, flat, mode=0o600)
        self.docker.up()
        self.docker.load(product.all_images())
        with step("compose up"):
            self.compose("up", "--detach", "--wait", "--wait-timeout", "120", "--no-build")

    def compose(self, *arguments: str) -> str:
        """Compose, as the administrator calls it."""
        return self.docker.compose(*arguments, env={"KUBECONFIG": str(self._kubeconfig)})

    def inside(self, service: str, *command: str, user: str = "") -> str:
        """Run a command in a service's container."""
        as_user = ("--user", user) if user else ()
        return self.compose("exec", "-T", *as_user, service, *command).strip()

    def slurm_says(self, node: str) -> str:
        """The node's state and the reason of its drain, as sinfo prints them."""
        return self.inside("slurmctld", "sinfo", "--noheader", "--nodes", node, "--format", "%T|%E")

    def condition(self, node: str) -> str:
        """The status of `lockstep.sh/InService`; empty while there is none."""
        conditions = self.kube.get_json("node", node)["status"].get("conditions", ())
        return next((c["status"] for c in conditions if c["type"] == "lockstep.sh/InService"), "")

    def await_slurm(self, node: str, state: str) -> str:
        """Wait until Slurm calls the node so; returns what it says then."""
        wait_for(f"{node} {state} in Slurm", lambda: self.slurm_says(node).startswith(state), 30)
        return self.slurm_says(node)


def play(stage: Stage) -> dict[str, Any]:
    """What happened, under a name each."""
    facts: dict[str, Any] = {"containers": [_container(stage, line) for line in _ids(stage)]}
    facts["job"] = stage.inside("worker-1", "srun", "--chdir=/tmp", "--nodes=2", "hostname", user="researcher").split()
    wait_for("the nodes' conditions", lambda: {stage.condition(node) for node in NODES} == {"True"}, 30)
    stage.kube.kubectl("cordon", NODES[0])
    facts["cordoned"] = stage.await_slurm(NODES[0], "drained")
    facts["why"] = stage.inside("drain", "lockstep", "why", NODES[0])
    facts["doctor"] = json.loads(stage.inside("drain", "lockstep", "doctor", "--output", "json"))["items"]
    stage.kube.kubectl("uncordon", NODES[0])
    facts["uncordoned"] = stage.await_slurm(NODES[0], "idle")
    stage.inside("slurmctld", "scontrol", "update", f"nodename={NODES[1]}", "state=drain", "reason=bad fan")
    wait_for("the administrator's drain in Kubernetes", lambda: stage.condition(NODES[1]) == "False", 30)
    facts["foreign"] = stage.slurm_says(NODES[1])
    facts["targets"] = _targets()
    wait_for("traces of all services", lambda: len(_get("16686/api/services")["data"]) >= 4, 30)
    facts["rules"] = len(_get("9090/api/v1/rules")["data"]["groups"][0]["rules"])
    facts["leaks"] = _leaks(stage)
    return facts


def _ids(stage: Stage) -> list[str]:
    return stage.compose("ps", "--all", "--quiet").split()


def _container(stage: Stage, identity: str) -> dict[str, Any]:
    (about,) = json.loads(stage.docker.run("inspect", identity))
    return {
        "service": about["Config"]["Labels"]["com.docker.compose.service"],
        "health": about["State"].get("Health", {}).get("Status", about["State"]["Status"]),
        "user": about["Config"]["User"],
        "read_only": about["HostConfig"]["ReadonlyRootfs"],
        "privileged": about["HostConfig"]["Privileged"],
        "dropped": about["HostConfig"]["CapDrop"],
        "restarts": about["RestartCount"],
    }


def _targets() -> dict[str, str]:
    def found() -> dict[str, str]:
        targets = _get("9090/api/v1/targets")["data"]["activeTargets"]
        return {target["labels"]["instance"]: target["health"] for target in targets}

    wait_for("Prometheus's targets", lambda: list(found().values()).count("up") >= 4, 60)
    return found()


def _leaks(stage: Stage) -> list[str]:
    """Where the key that signs Slurm's tokens can be read without right: what Docker tells, and the logs."""
    key = stage.inside("slurmctld", "base64", "-w0", SECRET)
    told = {"inspect": stage.docker.run("inspect", *_ids(stage)), "logs": stage.compose("logs", "--no-color")}
    return [name for name, text in told.items() if key in text]


def _get(path: str) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{path}", timeout=10) as answer:
        return json.load(answer)


def main(out: Path) -> None:
    """Play it and leave nothing running."""
    lock.own()
    stage = Stage()
    try:
        stage.up()
        out.write_text(json.dumps(play(stage), indent=1))
    except BaseException:
        if stage.docker.running:
            print(stage.compose("ps", "--all"), stage.compose("logs", "--no-color", "--tail=20"), file=sys.stderr)
        raise
    finally:
        stage.docker.down()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
