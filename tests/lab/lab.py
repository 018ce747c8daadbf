"""The facade: one object for the whole lab.

>>> lab = Lab.up()                       # real kubelets where the machine can run them
>>> lab = Lab.attach()                   # the one that is running
>>> lab.kube.kubectl("get", "nodes"), lab.slurm.sinfo(), lab.nats.url
>>> with lab.fail.frozen("kube-apiserver"): ...
>>> lab.down()
"""

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from . import (
    addons,
    build,
    cgroups,
    docker,
    dockerfiles,
    hollow,
    images,
    lock,
    machine,
    needs,
    network,
    nodes,
    packages,
    paths,
    ports,
    product,
)
from .faults import Faults
from .jaeger import Jaeger
from .kube import CONTROL_PLANE, Kube
from .nats import Nats
from .processes import Processes
from .progress import say, step, together
from .prometheus import Prometheus
from .rootfs import SUITES, mounts_below, slurm_rootfs, unmount_below
from .slurm import Slurm
from .workers import Workers

Profile = Literal["kubelets", "hollow"]

SLURM = "26.05"
"""The version that a lab has when nobody asks for another."""
_FILE = paths.STATE / "lab.json"


class LabError(RuntimeError):
    """The lab cannot run here, or is not running; the text says what to do."""


@dataclass(frozen=True)
class Shape:
    """What a lab consists of."""

    profile: Profile
    nodes: int
    slurm: str
    """Version of Slurm."""
    checkout: str
    complete: bool = False
    """Whether ``up`` came to its end."""

    def same_as(self, other: "Shape | None") -> bool:
        """Whether the other lab could be used instead of this one."""
        return other is not None and other.complete and replace(other, complete=False) == self


class Lab:
    """A running lab. Every object of this class on a machine means the same one."""

    def __init__(self, shape: Shape) -> None:
        """See ``up`` and ``attach``."""
        self.shape = shape
        self.processes = Processes()
        real = shape.profile == "kubelets"
        self.host = ports.HOST if real else ports.LOOPBACK
        """Address of the machine; with real kubelets pods reach it too."""
        self.kube = Kube(self.processes, address=self.host)
        self.nodes = nodes.all_nodes(self.processes, shape.nodes) if real else []
        self.slurm = Slurm(self.processes, version=shape.slurm, address=self.host)
        self.workers = Workers(self.kube, self.slurm)
        """Worker pods; only real kubelets run them."""
        self.nats = Nats(self.processes)
        self.prometheus = Prometheus(self.processes)
        """Not part of `up`; whoever wants it starts it."""
        self.jaeger = Jaeger(self.processes)
        """Not part of `up` either."""
        self.fail = Faults(self.processes, self.kube, self.nodes)
        self._loaded: set[tuple[Path, int]] = set()
        """Archives, and which file each was: one that is built anew replaces the older."""

    @classmethod
    def up(
        cls,
        profile: Profile | None = None,
        nodes: int = 3,
        slurm: str = SLURM,
        workers: int | None = None,
        *,
        wait: bool = True,
    ) -> "Lab":
        """Start the lab, or attach to the one that runs if it is what is asked for; another one is ended first.

        Args:
            profile: Real kubelets, or hollow nodes. Default: kubelets where the machine can run them.
            nodes: How many Kubernetes nodes.
            slurm: Slurm's version, 26.05 or 24.11.
            workers: How many: pods on kubelets, processes beside hollow nodes. Default: one a kubelet, else none.
            wait: Wait for others that start, end or (if theirs must end first) use a lab.

        Raises:
            LabError: The machine lacks something; the text lists it.
            LockedError: Others are in the way and ``wait`` is false.
        """
        lock.share(wait=wait)
        shape = Shape(profile or _best_profile(), nodes, slurm, str(paths.CHECKOUT))
        if (lab := cls._running(shape)) is None:
            lock.own(wait=wait)
            if (lab := cls._running(shape)) is None:  # nobody started it while this process waited
                lab = cls._fresh(shape, workers)
            lock.share()
        return lab

    @classmethod
    def attach(cls) -> "Lab":
        """The lab that is running. Others cannot end it as long as this process lives.

        Raises:
            LabError: None is, or its start did not come to an end.
        """
        lock.share()
        if (lab := cls.peek()) is None:
            lock.release()
            raise LabError("no lab is running; start one: python -m tests.lab up")
        return lab

    @classmethod
    def peek(cls) -> "Lab | None":
        """The lab that is running, only to look at it: others may end it at any time."""
        shape = _read()
        return cls(shape) if shape is not None and shape.complete else None

    def healthy(self) -> bool:
        """Whether all its processes live and the API server is ready."""
        wanted = [*CONTROL_PLANE, "nats"]
        wanted += [name for node in self.nodes for name in (node.containerd, node.kubelet)]
        wanted += [addons.KUBE_PROXY, addons.DNS] if self.nodes else [hollow.NAME]
        return all(self.processes.alive(name) for name in wanted) and self.kube.ready()

    def load(self, archive: Path) -> None:
        """Make an image known to every node, once; hollow nodes need none."""
        version = (archive, archive.stat().st_ino)
        if version not in self._loaded:
            images.load(archive, self.nodes)
            self._loaded.add(version)

    def build_image(self, dockerfile: Path, context: Path, tag: str, *arguments: str) -> None:
        """Build a Dockerfile and make the image known to every node."""
        self.load(dockerfiles.build(dockerfile, context, tag, *arguments))

    def down(self, *, wait: bool = True) -> None:
        """End everything and leave nothing behind but the cache and the logs."""
        lock.own(wait=wait)
        with step("lab down"):
            self._clean()
        lock.release()

    @classmethod
    def _running(cls, shape: Shape) -> "Lab | None":
        if shape.same_as(_read()) and (lab := cls(shape)).healthy():
            say("The lab is up.")
            return lab
        return None

    @classmethod
    def _fresh(cls, shape: Shape, workers: int | None) -> "Lab":
        _announce(_read())
        prepare(shape)
        lab = cls(shape)
        lab._clean()
        paths.prepare()
        lab._start(workers)
        return lab

    def _start(self, workers: int | None) -> None:
        _save(self.shape)
        count = len(self.nodes) if workers is None else workers
        if self.nodes:
            network.up(len(self.nodes))
            nodes.prepare_machine()
            together(partial(self._start_kubelets, count), self._start_slurm, self.nats.up)
        else:
            together(self._start_hollow, self._start_slurm, self.nats.up)
        self._start_workers(count)
        _save(replace(self.shape, complete=True))

    def _start_kubelets(self, workers: int) -> None:
        together(partial(self.kube.up, len(self.nodes)), partial(self._start_containerds, workers))
        for node in self.nodes:
            node.start_kubelet(self.kube)
        together(partial(addons.up, self.processes, self.kube), partial(nodes.wait_registered, self.kube, self.nodes))

    def _start_containerds(self, workers: int) -> None:
        nodes.start_containerds(self.nodes)
        images.load_all([images.pause(), *([self.workers.image()] if workers else [])], self.nodes)

    def _start_hollow(self) -> None:
        self.kube.up(0, hollow=True)
        hollow.up(self.processes, self.kube, self.shape.nodes)

    def _start_slurm(self) -> None:
        with step(f"Slurm {self.shape.slurm}"):
            self.slurm.up()

    def _start_workers(self, count: int) -> None:
        if count and self.nodes:
            with step(f"{count} workers in pods"):
                self.workers.create(count)
        elif count:
            with step(f"{count} workers as processes"):
                self.slurm.add_slurmds([f"gpu-{number}" for number in range(1, count + 1)])

    def _clean(self) -> None:
        """End and remove everything that any lab of this machine may have left, in whatever state it is."""
        for name in self.processes.names():
            if name.startswith(("kubelet-", "containerd-")):
                self.processes.kill(name)
        cgroups.remove()
        for cluster in ("main", "old"):
            Slurm(self.processes, cluster=cluster).down()
        self.processes.stop_all(timeout_s=0)
        machine.restore()
        network.down()
        for folder in (paths.STATE, paths.RUN):
            for part in folder.glob("*"):
                unmount_below(part)
            if left := [point for point in mounts_below(folder) if point != folder]:
                raise LabError(f"still mounted, nothing is deleted: {', '.join(map(str, left))}")
            shutil.rmtree(folder, ignore_errors=True)


def prepare(shape: Shape) -> None:
    """Check the machine; install, build and bootstrap what is missing. The slow part of a first run.

    Raises:
        LabError: The machine lacks something that cannot be installed.
    """
    lacking = [need for need in needs.look() if not need.met and (shape.profile == "kubelets" or not need.for_kubelets)]
    if lacking:
        raise LabError("\n".join(["the lab cannot run here:", *(f"  {need.what}: {need.hint}" for need in lacking)]))
    build_everything(shape.slurm)


def build_everything(slurm: str, programs: Sequence[build.Program] = build.NEEDED) -> None:
    """Fill the cache: Debian packages on the machine, Go programs, Slurm's root file systems, images.

    With `ALL` programs it has everything that any test needs from the network: labs apart reach none, and a test that
    compiled for minutes would run into its time limit.
    """
    if build.missing():
        minutes = sum(program.minutes for program in build.missing(programs))
        say(f"First run: Kubernetes and more is built once, about {minutes:.0f} minutes on two cores; later 15 s.")
    packages.install()
    if programs is build.ALL:
        packages.install(packages.FOR_TESTS)
    ours = [product.lockstep_image, product.nats_image] if build.HELM in programs else []
    together(partial(build.build_all, programs), partial(slurm_rootfs, slurm), lambda: [image() for image in ours])
    images.pause()
    if programs is build.ALL:
        for each in SUITES:
            slurm_rootfs(each)
        build.compile_module(paths.CHECKOUT / "examples" / "go")
        product.all_images()
        docker.prepare()


def clean(*, wait: bool = True) -> None:
    """``Lab.down`` for a lab of which nothing is known any more."""
    Lab(_read() or Shape("hollow", 0, SLURM, "")).down(wait=wait)


def _best_profile() -> Profile:
    able, why = needs.can_run_kubelets()
    if not able:
        say(f"No real kubelets on this machine ({why}); hollow nodes instead.")
    return "kubelets" if able else "hollow"


def _announce(found: Shape | None) -> None:
    if found is None:
        return
    whose = "" if found.checkout == str(paths.CHECKOUT) else f" of the checkout {found.checkout}"
    state = "another shape" if found.complete else "a start that did not end"
    say(f"A lab{whose} is here ({found.profile}, {found.nodes} nodes; {state} or not healthy): it is ended first.")


def _save(shape: Shape) -> None:
    paths.write(_FILE, json.dumps(asdict(shape)))


def _read() -> Shape | None:
    try:
        return Shape(**json.loads(_FILE.read_text()))
    except (FileNotFoundError, TypeError, ValueError):
        return None
