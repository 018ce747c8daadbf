"""Whatever fails, nobody is evicted, undrained or freed by mistake, and afterwards both systems are in step.

Each fault meets the same scene: gpu-1 is drained by a cordon and busy, gpu-3 is drained by an administrator, gpu-2 is
in service. During the fault something happens on the side that works. A guard reads both systems all the time.
"""

import asyncio
import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import nats
import pytest

from tests.e2e.guard import Guard, Shown, in_step
from tests.e2e.site import WORKERS, Site, always, eventually
from tests.e2e.told import Told
from tests.lab import paths
from tests.lab.lockstep import SERVICES, Lockstep

HERS = "bad DIMM, do not touch"
SAVED_S = 6
"""slurmctld writes its state down every 5 s: a kill forgets what is younger."""


@dataclass(frozen=True)
class Scene:
    """The lab in the middle of things."""

    site: Site
    guard: Guard
    told: Told
    job: int

    def happens_in_kube(self) -> None:
        """Somebody cordons gpu-2, and the job on gpu-1 ends."""
        self.site.cordon("gpu-2")
        self.site.cancel(self.job)

    def happens_in_slurm(self) -> None:
        """An administrator drains gpu-2, and the job on gpu-1 ends."""
        self.site.scontrol("gpu-2", state="drain", reason="fan noise")
        self.site.cancel(self.job)

    def nothing_is_freed(self, for_s: float) -> None:
        """Lockstep cannot see that gpu-1 is empty: its pod stays protected."""
        always("protected", lambda: self.site.protected("gpu-1") and self.site.protected("gpu-3"), for_s)

    def ends_well(self, timeout_s: float = 25) -> dict[str, Shown]:
        """Both systems and the desired state are in step, and everybody's drain is whose it was."""
        shown = in_step(self.site, timeout_s=timeout_s)
        assert shown["gpu-1"].ours
        assert shown["gpu-3"].reason == HERS
        assert shown["gpu-2"].drained
        desired = json.loads(self.site.lockstep.cli("get", "workers", "-o", "json"))["items"]
        assert {w["name"]: w["words"] for w in desired} == {w: shown[w].reason for w in WORKERS}
        return shown


@contextmanager
def scene_of(site: Site) -> Iterator[Scene]:
    """The scene that is described above."""
    job = site.job("gpu-1")
    site.cordon("gpu-1")
    site.scontrol("gpu-3", state="drain", reason=HERS)
    in_step(site)
    with Guard(site).watching() as guard:
        guard.stays("gpu-1", "gpu-3")
        yield Scene(site, guard, Told(site), job)


@pytest.fixture(name="scene")
def _scene(site: Site) -> Iterator[Scene]:
    with scene_of(site) as scene:
        yield scene


@pytest.mark.parametrize(
    ("mode", "numbers"),
    [
        pytest.param("status", {"code": 401}, id="401"),
        pytest.param("status", {"code": 429}, id="429"),
        pytest.param("status", {"code": 500}, id="500"),
        pytest.param("status", {"code": 502}, id="502 with HTML"),
        pytest.param("errors", {}, id="200 with errors"),
        pytest.param("half_body", {}, id="half a body"),
        pytest.param("hang", {}, id="no answer"),
        pytest.param("refuse", {}, id="port closed"),
    ],
)
def test_slurmrestd_does_not_answer_well(scene: Scene, mode: Any, numbers: dict[str, int]) -> None:
    """What Slurm shows cannot be read: nothing is freed; a cordon of that time is a DRAIN as soon as it can be."""
    scene.site.lab.slurm.proxy.set(mode, **numbers)
    scene.happens_in_kube()
    scene.told.wait_lost("slurm")
    scene.nothing_is_freed(0.5)
    scene.site.lab.slurm.proxy.clear()

    assert scene.ends_well()["gpu-2"].ours
    scene.told.once("slurm")


def test_slurmrestd_fails_every_second_request(scene: Scene) -> None:
    """As behind an address that takes turns between a good one and a broken one: work goes on, nobody is told."""
    scene.site.lab.slurm.proxy.set("flaky", code=503, every=2)
    scene.happens_in_kube()

    assert scene.ends_well()["gpu-2"].ours
    scene.told.never("slurm")


def test_the_answer_to_a_drain_is_lost(scene: Scene) -> None:
    """Slurm has done it and the connection breaks: it is read before anything is written, and written once."""
    proxy = scene.site.lab.slurm.proxy
    proxy.forget()
    proxy.set("drop_answer", method="POST", times=1)
    scene.happens_in_kube()

    assert scene.ends_well()["gpu-2"].ours
    assert sum(count for what, count in proxy.requests().items() if what.startswith("POST ")) == 1
    scene.told.never("slurm")


def test_slurmctld_is_killed_and_restarted(scene: Scene) -> None:
    """Drains that Slurm had written down are there again; a cordon meanwhile is a DRAIN afterwards."""
    time.sleep(SAVED_S)
    scene.site.lab.fail.kill("slurmctld-main")
    scene.site.cordon("gpu-2")
    scene.told.wait_lost("slurm")
    scene.site.lab.fail.restart("slurmctld-main")

    assert scene.ends_well(40)["gpu-2"].ours
    scene.told.once("slurm")


def test_slurmctld_forgets_a_drain_that_it_answered(scene: Scene) -> None:
    """Killed before it wrote our DRAIN down it comes back without it: the DRAIN is written again."""
    time.sleep(SAVED_S)
    scene.guard.tolerated_s = 10
    state = scene.site.lab.slurm.root / "var/spool/slurmctld/node_state"
    saved = state.read_bytes()
    scene.site.cordon("gpu-2")
    eventually("DRAIN", lambda: scene.site.slurm("gpu-2").drained, pause_s=0)
    scene.site.lab.fail.kill("slurmctld-main")
    state.write_bytes(saved)
    scene.site.lab.fail.restart("slurmctld-main")
    eventually("it is written again", lambda: len(scene.told.events("worker.drain-set")) > 1, 30, 1)

    assert scene.ends_well(40)["gpu-2"].ours


def test_slurmctld_is_frozen(scene: Scene) -> None:
    """Connections stay open and nothing answers."""
    scene.site.cancel(scene.job)
    with scene.site.lab.fail.frozen("slurmctld-main"):
        scene.site.cordon("gpu-2")
        scene.told.wait_lost("slurm")

    assert scene.ends_well()["gpu-2"].ours
    scene.told.once("slurm")


def test_the_key_of_slurms_tokens_is_rotated(scene: Scene) -> None:
    """Slurm refuses our tokens until we have the new key too, and no restart is needed then."""
    time.sleep(SAVED_S)
    slurm = scene.site.lab.slurm
    theirs, ours = slurm.root / "etc/slurm/jwt_hs256.key", slurm.key_file
    new = bytes(reversed(theirs.read_bytes()))
    theirs.write_bytes(new)
    scene.site.lab.fail.kill("slurmctld-main")
    scene.site.lab.fail.restart("slurmctld-main")
    scene.told.wait_lost("slurm")
    scene.happens_in_kube()
    scene.nothing_is_freed(0.5)
    ours.write_bytes(new)

    assert scene.ends_well(40)["gpu-2"].ours
    scene.told.once("slurm")


@pytest.mark.timeout(180)
def test_nats_is_away_for_a_minute(scene: Scene) -> None:
    """Nothing is decided or freed meanwhile; each service says once that NATS is away, and once that it is back."""
    nats_server = scene.site.lab.nats
    nats_server.kill()
    try:
        scene.happens_in_kube()
        scene.nothing_is_freed(60)
    finally:
        nats_server.start()

    assert scene.ends_well()["gpu-2"].ours
    for service in SERVICES:
        for text in ("NATS stopped answering", "NATS answers again"):
            assert len(scene.told.lines(service, text)) == 1, (service, text)


def test_the_stream_of_facts_is_deleted(scene: Scene) -> None:
    """Everybody says anew what is so; nobody takes the silence for an answer."""
    asyncio.run(_ask_jetstream(scene.site.lab.nats.url, "delete_stream", "LOCKSTEP_FACTS"))
    scene.happens_in_kube()

    assert scene.ends_well()["gpu-2"].ours
    scene.told.gaps("LOCKSTEP_FACTS")


@pytest.mark.parametrize("stream", ["LOCKSTEP_FACTS", "LOCKSTEP_EVENTS"])
def test_a_stream_is_purged(scene: Scene, stream: str) -> None:
    """An administrator empties it, and nothing else happens that would make anybody look."""
    asyncio.run(_ask_jetstream(scene.site.lab.nats.url, "purge_stream", stream))
    scene.told.gaps(stream)
    scene.happens_in_kube()

    assert scene.ends_well()["gpu-2"].ours


def test_nats_is_killed_and_comes_back_with_an_older_store(scene: Scene) -> None:
    """As after a power cut: what it acknowledged last is gone. The drain of gpu-2 is not taken back for that."""
    lab, store = scene.site.lab, paths.STATE / "nats"
    with lab.fail.frozen("nats"):
        shutil.copytree(store, paths.STATE / "nats-older")
    scene.happens_in_kube()
    eventually("gpu-2 is drained", lambda: scene.site.slurm("gpu-2").drained)
    time.sleep(1)
    lab.nats.kill()
    shutil.rmtree(store)
    (paths.STATE / "nats-older").rename(store)
    lab.nats.start()

    eventually("the gap is told", lambda: scene.told.events("fleet.gap-found"), 30)
    assert scene.ends_well()["gpu-2"].ours
    assert scene.told.places().count("LOCKSTEP_FACTS") == 1
    assert scene.told.places().count("LOCKSTEP_EVENTS") <= 1


def test_the_store_of_nats_is_wiped(scene: Scene) -> None:
    """Also with all streams gone the drains stay, and the cordon of that time is a DRAIN."""
    lab = scene.site.lab
    lab.nats.kill()
    shutil.rmtree(paths.STATE / "nats")
    scene.happens_in_kube()
    lab.nats.start()

    assert scene.ends_well()["gpu-2"].ours
    places = scene.told.places()
    assert sorted(set(places)) == sorted(places)
    assert {"LOCKSTEP_FACTS", "LOCKSTEP_EVENTS"} <= set(places)


def test_the_api_server_is_restarted(scene: Scene) -> None:
    """What happens in Slurm meanwhile is shown afterwards."""
    lab = scene.site.lab
    lab.fail.kill("kube-apiserver")
    scene.happens_in_slurm()
    scene.told.wait_lost("kube")
    lab.fail.restart_apiserver()

    assert scene.ends_well()["gpu-2"].reason == "fan noise"
    scene.told.once("kube")


@pytest.mark.timeout(180)
def test_the_api_server_is_frozen_for_half_a_minute(scene: Scene) -> None:
    """Watches stay open and silent: that is noticed, and the leases run out without harm."""
    with scene.site.lab.fail.frozen("kube-apiserver"):
        scene.happens_in_slurm()
        time.sleep(30)

    assert scene.ends_well(40)["gpu-2"].reason == "fan noise"
    scene.told.once("kube")


def test_watches_are_dropped(scene: Scene) -> None:
    """Broken off in the middle, they go on where they were; nothing is missed."""
    scene.site.lab.fail.drop_watches()
    scene.happens_in_kube()

    assert scene.ends_well()["gpu-2"].ours


def test_the_history_is_compacted_while_the_watcher_is_cut_off(scene: Scene) -> None:
    """It has missed a cordon and cannot be told of it: it reads everything anew."""
    lab, watcher = scene.site.lab, scene.site.lockstep.process("pod-watcher")
    with lab.fail.frozen(watcher):
        lab.fail.drop_watches()
        scene.happens_in_kube()
        lab.fail.compact()

    assert scene.ends_well()["gpu-2"].ours


def test_our_token_for_kubernetes_is_revoked(lab: Any, running: Lockstep, site: Site) -> None:
    """A refused token frees nothing; a new one in the same file is taken up without a restart."""
    lab.kube.kubectl(
        "create", "clusterrolebinding", "lockstep-lab-faults", "--clusterrole=cluster-admin",
        "--serviceaccount=lockstep-lab:lockstep",
    )  # fmt: skip
    file = paths.STATE / "lockstep-faults.kubeconfig"
    paths.write(file, _kubeconfig(lab.kube, lab.kube.token_for("lockstep")))
    running.stop()
    limited = Lockstep(lab, separate=True, settings={"kube": {"kubeconfig": str(file)}})
    limited.up()
    theirs = Site(lab, limited)
    try:
        with scene_of(theirs) as scene:
            lab.fail.revoke("lockstep")
            scene.told.wait_lost("kube", 40)
            scene.happens_in_slurm()
            scene.nothing_is_freed(1)
            paths.write(file, _kubeconfig(lab.kube, lab.kube.token_for("lockstep")))
            assert scene.ends_well(60)["gpu-2"].reason == "fan noise"
            scene.told.once("kube")
    finally:
        theirs.reset()
        limited.stop()
        running.up()
        lab.kube.kubectl("delete", "clusterrolebinding", "lockstep-lab-faults")


async def _ask_jetstream(url: str, what: str, stream: str) -> None:
    """As an administrator with the `nats` command."""
    client = await nats.connect(url)
    await getattr(client.jetstream(), what)(stream)
    await client.close()


def _kubeconfig(kube: Any, token: str) -> str:
    named = {
        "clusters": ("cluster", {"server": kube.server, "certificate-authority": str(kube.authority)}),
        "users": ("user", {"token": token}),
        "contexts": ("context", {"cluster": "lab", "user": "lab"}),
    }
    lists = {key: [{"name": "lab", kind: content}] for key, (kind, content) in named.items()}
    return json.dumps({"apiVersion": "v1", "kind": "Config", "current-context": "lab", **lists})
