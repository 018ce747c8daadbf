"""What the Deployment of the Slurm poller shows of Slurm, and how it comes there."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest
import structlog
from structlog.testing import capture_logs

from lockstep.contracts.facts import SourceHealth
from lockstep.contracts.hold import Condition
from lockstep.fleet.facts import FactTable
from lockstep.kube import keys
from lockstep.kube.conditions import MAX_MESSAGE
from lockstep.kube.errors import Denied, NotFound
from lockstep.runtime.ports import Ports
from lockstep.runtime.settings import ClusterSettings, HealthSettings, LeaseSettings, Settings
from lockstep.slurm_poller import main
from lockstep.slurm_poller.shown import slurm_read

AT = datetime(2030, 1, 1, tzinfo=UTC)
READ = Condition(type=keys.SLURM_READ, status="True", reason="Read")


def read(of: str = "main", source: str = "slurm.node") -> SourceHealth:
    """A source that beats."""
    return SourceHealth(source=source, of=of, complete_as_of=AT)


def lost(error: str, of: str = "main", source: str = "slurm.node") -> SourceHealth:
    """A source that cannot be read."""
    return SourceHealth(source=source, of=of, last_error=error, failing_since=AT)


def gone(health: SourceHealth) -> SourceHealth:
    """The same, of which nothing will be said any more."""
    return SourceHealth(source=health.source, of=health.of, last_error=health.last_error, gone=True)


def slurm_lost(message: str) -> Condition:
    """The condition that says this."""
    return Condition(type=keys.SLURM_READ, status="False", reason="SlurmLost", message=message)


@pytest.mark.parametrize(
    ("sources", "clusters", "wanted"),
    [
        pytest.param([], ["main"], None, id="nothing known yet"),
        pytest.param([read("_site", "kube")], ["main"], None, id="only Kubernetes known"),
        pytest.param([read(source="slurm.reservation")], ["main"], None, id="no nodes read yet"),
        pytest.param([read()], ["main"], READ, id="read"),
        pytest.param([read(), lost("x", "_site", "kube")], ["main"], READ, id="Kubernetes is another matter"),
        pytest.param([read(), lost("x", "old")], ["main"], READ, id="a cluster that left the settings"),
        pytest.param([read(), gone(lost("x", source="slurm.job"))], ["main"], READ, id="a source that is gone"),
        pytest.param([read("a")], ["a", "b"], None, id="one of two known"),
        pytest.param([read("a"), read("b")], ["a", "b"], READ, id="both read"),
        pytest.param([lost("no key")], ["main"], slurm_lost("Slurm cluster main, slurm.node: no key"), id="lost"),
        pytest.param(
            [lost("no key", "b")],
            ["a", "b"],
            slurm_lost("Slurm cluster b, slurm.node: no key"),
            id="one lost, one unknown",
        ),
        pytest.param(
            [read(), lost("time-out", source="slurm.job")],
            ["main"],
            slurm_lost("Slurm cluster main, slurm.job: time-out"),
            id="jobs lost",
        ),
        pytest.param(
            [lost("z", "b"), lost("y", "a", "slurm.reservation"), lost("x", "a"), read("c")],
            ["c", "b", "a"],
            slurm_lost(
                "Slurm cluster a, slurm.node: x; Slurm cluster a, slurm.reservation: y; Slurm cluster b, slurm.node: z"
            ),
            id="several lost",
        ),
        pytest.param(
            [lost("two\nlines\x1b[31m")],
            ["main"],
            slurm_lost("Slurm cluster main, slurm.node: two lines[31m"),
            id="odd text",
        ),
    ],
)
def test_the_condition_is_what_the_sources_say(
    sources: list[SourceHealth], clusters: list[str], wanted: Condition | None
) -> None:
    """In whatever order they are told, so that nothing is written twice."""
    assert slurm_read(sources, clusters) == wanted
    assert slurm_read(reversed(sources), set(clusters)) == wanted


@pytest.mark.parametrize("count", [1, 2, 5, 200])
def test_the_message_is_bounded_and_a_long_error_hides_no_other_cluster(count: int) -> None:
    """Up to two dozen lost sources are all named; beyond, the message is cut."""
    names = [f"c{i:03}" for i in range(count)]
    shown = slurm_read([lost("x" * 5000, name) for name in names], names)

    assert shown is not None
    assert len(shown.message) <= MAX_MESSAGE
    assert all(f"Slurm cluster {name}, slurm.node" in shown.message for name in names[:20])


class Kube:
    """Shows what it was asked to, unless something is in the way."""

    def __init__(self) -> None:
        self.shown: dict[tuple[str, str], Condition] = {}
        self.asked = 0
        self.fault: Exception | None = None
        self.hangs = False

    async def set_deployment_condition(self, namespace: str, name: str, condition: Condition) -> bool:
        """As the port."""
        self.asked += 1
        if self.hangs:
            await asyncio.sleep(60)
        if self.fault:
            raise self.fault
        self.shown[namespace, name] = condition
        return True


class Scene:
    """The task that shows the condition, with all around it made up."""

    def __init__(self) -> None:
        cluster = ClusterSettings(name="main", namespace="slurm", url="http://slurm:6820", key_file="key")
        settings = Settings(
            clusters=[cluster],
            health=HealthSettings(deployment="poller"),
            lease=LeaseSettings(namespace="ours"),
        )
        self.kube, self.table, self.leads = Kube(), FactTable(), True
        made: Any = SimpleNamespace(
            settings=settings,
            kube=self.kube,
            slurm={"main": None},
            mirror=SimpleNamespace(table=self.table),
            may_act=lambda: self.leads,
            log=structlog.get_logger(),
        )
        self.ports = cast(Ports, made)

    def tell(self, health: SourceHealth) -> None:
        """The stream says so."""
        self.table.apply(health)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The task lives to the end."""
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(main.show(self.ports))
            yield
            assert not task.done()
            task.cancel()

    @property
    def shown(self) -> Condition | None:
        """On the Deployment."""
        return self.kube.shown.get(("ours", "poller"))


async def eventually(true: Callable[[], object]) -> None:
    """Waits until it is so."""
    async with asyncio.timeout(30):
        while not true():
            await asyncio.sleep(0.001)


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "SHOW_EVERY_S", 0.001)
    monkeypatch.setattr(main, "TELL_WITHIN_S", 0.02)


async def test_the_condition_follows_the_facts() -> None:
    """Nothing while nothing is known; then what is so, both ways, in the namespace of the Leases."""
    scene = Scene()
    async with scene.running():
        await asyncio.sleep(0.02)
        assert scene.kube.asked == 0
        scene.tell(lost("no key"))
        await eventually(lambda: scene.shown == slurm_lost("Slurm cluster main, slurm.node: no key"))
        scene.tell(read())
        await eventually(lambda: scene.shown == READ)


@pytest.mark.parametrize("fault", [Denied("may not"), NotFound("is gone"), None], ids=["denied", "gone", "hangs"])
async def test_what_cannot_be_shown_harms_nobody_and_is_said_once(fault: Exception | None) -> None:
    """It is tried again until it is shown; its end is said, too."""
    scene = Scene()
    scene.kube.fault, scene.kube.hangs = fault, fault is None
    scene.tell(lost("no key"))
    with capture_logs() as lines:
        async with scene.running():
            await eventually(lambda: scene.kube.asked > 3)
            assert [(line["log_level"], line["name"]) for line in lines] == [("warning", "poller")]
            assert lines[0]["error"] == (str(fault) if fault else "no answer within 0.02 s")
            scene.kube.fault, scene.kube.hangs = None, False
            await eventually(lambda: scene.shown)
            await eventually(lambda: len(lines) > 1)
    assert [line["log_level"] for line in lines] == ["warning", "info"]


async def test_who_may_not_act_shows_nothing() -> None:
    """Another replica shows it by now."""
    scene = Scene()
    scene.leads = False
    scene.tell(read())
    async with scene.running():
        await asyncio.sleep(0.02)
        assert scene.kube.asked == 0
        scene.leads = True
        await eventually(lambda: scene.shown == READ)
