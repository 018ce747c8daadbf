"""The poller over a scripted Slurm and a bus that writes down what it is given."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Literal, cast

import msgspec
import pytest
from structlog.testing import capture_logs

from lockstep.base.errors import Retry
from lockstep.bus.publisher import Publisher
from lockstep.contracts.events import (
    Event,
    JobEvent,
    ReservationEntered,
    ReservationLeft,
    SlurmNodeVanished,
    SlurmPhaseChanged,
    SlurmStateChanged,
    SourceBack,
    SourceLost,
)
from lockstep.contracts.facts import Fact, SlurmJob, SlurmNode, SlurmReservation, SourceHealth
from lockstep.contracts.policy import Policy
from lockstep.contracts.subjects import tag_of
from lockstep.fleet.drained import why_not_drained
from lockstep.fleet.facts import FactTable
from lockstep.fleet.pairing import Site, pair
from lockstep.runtime.settings import PollSettings
from lockstep.runtime.telemetry import KEYS
from lockstep.slurm import states
from lockstep.slurm.errors import Busy, Refused, SlurmError, Unreachable
from lockstep.slurm.port import JobList, NodeList, SlurmApi
from lockstep.slurm_poller import handlers
from lockstep.slurm_poller.handlers import ClusterPoller
from lockstep.slurm_poller.traces import Traces
from tests.spans import header_of, kept_spans

Told = Literal["off", "drains", "all"]
POLL = PollSettings(min_interval_s=0.05, max_interval_s=1.0)


def a_node(name: str = "gpu-7", state: str = "IDLE", **fields: Any) -> SlurmNode:
    """A node as the client gives it."""
    base, flags = states.split(state)
    return SlurmNode(cluster="main", name=name, base=base, flags=flags, **fields)


def a_job(job_id: int, *nodes: str) -> SlurmJob:
    """A running job."""
    return SlurmJob(cluster="main", job_id=job_id, states=["RUNNING"], nodes=list(nodes))


class Bus:
    """Writes down what is published, in order; does not answer while `away`."""

    def __init__(self) -> None:
        self.told: list[Fact] = []
        self.happened: list[Event] = []
        self.order_of_all: list[str] = []
        self.traces: dict[str, str] = {}
        self.causes: dict[str, str] = {}
        self.table = FactTable()
        self.away = False

    async def facts(
        self,
        facts: Iterable[Fact],
        traces: Mapping[str, str] | None = None,
        causes: Mapping[str, str] | None = None,
    ) -> int:
        """As the publisher."""
        if self.away:
            raise Retry("NATS is away", after_s=0.01)
        self.traces |= traces or {}
        self.causes |= causes or {}
        for fact in facts:
            self.told.append(fact)
            self.order_of_all.append(fact.identity)
            self.table.apply(fact)
        return len(self.told)

    async def fact(self, fact: Fact) -> bool:
        """As the publisher."""
        return await self.facts([fact]) > 0

    async def events(self, events: Iterable[Event], traces: Mapping[str, str] | None = None) -> None:
        """As the publisher."""
        if self.away:
            raise Retry("NATS is away", after_s=0.01)
        self.happened += events
        self.order_of_all += [tag_of(type(event)) for event in events]
        self.traces |= traces or {}

    @property
    def order(self) -> list[str]:
        """What was published, in words."""
        return [
            f"beat {f.source}" if isinstance(f, SourceHealth) else f"{'gone ' * f.gone}{f.identity}" for f in self.told
        ]


class Slurm:
    """Answers as Slurm does: with nothing when nothing has changed since."""

    def __init__(self, *nodes: SlurmNode) -> None:
        self.here = list(nodes)
        self.running: list[SlurmJob] = []
        self.reserved: list[SlurmReservation] = []
        self.stamp = 1
        self.asked: list[tuple[str, int]] = []
        self.error: SlurmError | None = None
        self.jobs_error: SlurmError | None = None
        self.hangs = False
        self.takes_turns = False
        self.jobs_take_s = 0.0

    def now(self, *nodes: SlurmNode) -> None:
        """From now on these are the nodes."""
        self.here, self.stamp = list(nodes), self.stamp + 1

    async def nodes(self, *, since: int = 0) -> NodeList | None:
        """As the port."""
        await self._answer("nodes", since, self.error)
        return None if since == self.stamp else NodeList(nodes=self.here, last_update=self.stamp)

    async def jobs(self, *, since: int = 0) -> JobList | None:
        """As the port."""
        await self._answer("jobs", since, self.jobs_error)
        await asyncio.sleep(self.jobs_take_s)
        return None if since == self.stamp else JobList(jobs=self.running, last_update=self.stamp)

    async def reservations(self) -> list[SlurmReservation]:
        """As the port."""
        await self._answer("reservations", 0, self.error)
        return self.reserved

    async def _answer(self, what: str, since: int, error: SlurmError | None) -> None:
        self.asked.append((what, since))
        if self.hangs:
            await asyncio.sleep(60)
        if self.takes_turns and len(self.asked) % 2:
            raise Busy("slurmrestd is busy", status=503)
        if error is not None:
            raise error


class Scene:
    """A poller that is turned by hand."""

    def __init__(self, *nodes: SlurmNode, known: Iterable[Fact] = (), jobs: Told = "drains") -> None:
        self.slurm, self.bus = Slurm(*nodes), Bus()
        self.poller = ClusterPoller(
            "main",
            cast(SlurmApi, self.slurm),
            cast(Publisher, self.bus),
            poll=POLL,
            policy=Policy(),
            known=known,
            jobs=jobs,
            step_of=Traces(self.bus.table).step,
        )

    async def cycle(self, times: int = 1) -> float:
        """So many cycles; the wait that the last one asked for."""
        wait_s = 0.0
        for _ in range(times):
            wait_s = await self.poller.cycle()
        return wait_s

    def news(self) -> list[str]:
        """What was published since the last call."""
        order, self.bus.told = self.bus.order, []
        return order


async def test_facts_come_before_the_heartbeat_that_covers_them() -> None:
    """Nodes, their heartbeat, reservations and theirs."""
    scene = Scene(a_node("a"), a_node("b"))
    scene.slurm.reserved = [
        SlurmReservation(cluster="main", name="maint", nodes=["a"]),
        SlurmReservation(cluster="main", name="licenses"),
    ]
    await scene.cycle()

    assert scene.news() == ["a", "b", "beat slurm.node", "maint", "beat slurm.reservation"]
    assert scene.bus.happened == []


async def test_an_unchanged_cluster_costs_one_small_request_and_one_heartbeat() -> None:
    """Slurm is asked with its own stamp; jobs are nobody's business."""
    scene = Scene(a_node("a", "MIXED"))
    await scene.cycle()
    scene.news()
    scene.slurm.asked.clear()
    await scene.cycle(10)

    assert scene.slurm.asked == [("nodes", 1)] * 10
    assert scene.news() == ["beat slurm.node"] * 10


async def test_a_node_that_drains_has_its_jobs_read_later_in_the_same_cycle() -> None:
    """What is missing then has ended: the jobs' heartbeat is later than the node's fact."""
    scene = Scene(a_node("a", "MIXED+DRAIN"), a_node("b", "MIXED"))
    scene.slurm.running = [a_job(1, "a"), a_job(2, "b")]
    await scene.cycle()

    assert scene.news()[:5] == ["a", "b", "beat slurm.node", "1", "beat slurm.job"]
    node = scene.bus.table.slurm_nodes["main", "a"]
    jobs = scene.bus.table.sources["slurm.job", "main"]
    assert node.read_at is not None
    assert jobs.complete_as_of is not None
    assert jobs.complete_as_of > node.read_at


async def test_a_worker_is_drained_after_two_readings_and_not_before() -> None:
    """With the real rule, over what the poller publishes."""
    scene = Scene(a_node("a", "MIXED+DRAIN", alloc_cpus=1))
    scene.slurm.running = [a_job(1, "a")]

    def why_not() -> str:
        worker = pair(scene.bus.table, ("main", "a"), Site())
        seen = worker.slurm_as_of
        assert seen is not None
        return why_not_drained(worker, Policy(), seen)

    await scene.cycle(2)
    assert why_not() == "jobs run or complete"
    scene.slurm.running = []
    scene.slurm.now(a_node("a", "IDLE+DRAIN"))
    await scene.cycle()
    assert why_not()
    await scene.cycle()
    assert why_not() == ""


async def test_jobs_are_gone_when_they_end_or_nobody_waits_for_them() -> None:
    """An unchanged answer of Slurm's keeps them."""
    scene = Scene(a_node("a", "MIXED+DRAIN"))
    scene.slurm.running = [a_job(1, "a"), a_job(2, "a")]
    await scene.cycle(3)
    scene.news()
    scene.slurm.running = [a_job(2, "a")]
    scene.slurm.now(a_node("a", "MIXED+DRAIN"))
    await scene.cycle()
    assert "gone 1" in scene.news()
    scene.slurm.now(a_node("a", "MIXED"))
    await scene.cycle()

    assert scene.news() == ["a", "beat slurm.node", "gone 2", "beat slurm.job"]


async def test_after_a_restart_only_differences_are_told() -> None:
    """Facts of a former run carry its epoch; what changed meanwhile is an event, what is missing is gone."""
    first = Scene(a_node("a"), a_node("b"), a_node("c"))
    await first.cycle()
    known = [msgspec.structs.replace(f, epoch=4) for f in first.bus.told if isinstance(f, SlurmNode)]
    second = Scene(a_node("a"), a_node("b", "IDLE+DRAIN"), known=known)
    await second.cycle()

    assert second.news()[:3] == ["b", "gone c", "beat slurm.node"]
    assert [type(event) for event in second.bus.happened] == [SlurmStateChanged, SlurmPhaseChanged, SlurmNodeVanished]
    assert all(fact.epoch == 0 for fact in second.bus.told)


async def test_an_outage_is_two_events_and_two_lines() -> None:
    """Facts stand, heartbeats stay away; the end is told after everything was read anew."""
    with capture_logs() as logs:
        scene = Scene(a_node("a"))
        await scene.cycle()
        scene.news()
        scene.slurm.error = Unreachable("connection refused")
        waits = [await scene.cycle() for _ in range(20)]
        lost = scene.news()
        scene.slurm.error = None
        scene.slurm.now(a_node("a", "IDLE+DRAIN"))
        await scene.cycle(3)

    assert lost == ["beat slurm.node"]
    assert scene.bus.table.sources["slurm.node", "main"].last_error == ""
    assert scene.news()[:2] == ["a", "beat slurm.node"]
    assert [type(event) for event in scene.bus.happened] == [
        SourceLost,
        SlurmStateChanged,
        SlurmPhaseChanged,
        SourceBack,
    ]
    assert [(line["log_level"], line["event"]) for line in logs] == [
        ("warning", "Slurm cannot be read"),
        ("info", "Changed"),
        ("info", "Slurm is read again"),
    ]
    assert {key for line in logs for key in line} - {"log_level"} <= KEYS
    assert max(waits) <= POLL.max_interval_s
    assert waits[0] <= POLL.min_interval_s < waits[-1]


async def test_every_second_request_may_fail() -> None:
    """A good slurmrestd and a broken one take turns behind one address: each reading is whole, and nobody is told."""
    scene = Scene(a_node("a", "MIXED+DRAIN"))
    scene.slurm.takes_turns = True
    await scene.cycle(10)

    assert scene.news().count("beat slurm.node") == 10
    assert {source.last_error for source in scene.bus.table.sources.values()} == {""}
    assert scene.bus.happened == []


async def test_what_the_outage_says_is_no_heartbeat() -> None:
    """It carries the last moment at which all was known."""
    scene = Scene(a_node("a"))
    await scene.cycle()
    as_of = scene.bus.table.sources["slurm.node", "main"].complete_as_of
    scene.slurm.error = Refused(["slurmctld is in backup mode"])
    await scene.cycle(5)
    health = scene.bus.table.sources["slurm.node", "main"]

    assert health.complete_as_of == as_of
    assert "backup mode" in health.last_error


async def test_jobs_that_cannot_be_read_withhold_only_their_own_heartbeat() -> None:
    """Nodes are still known; nobody counts as drained."""
    scene = Scene(a_node("a", "MIXED+DRAIN"))
    scene.slurm.running = [a_job(1, "a")]
    await scene.cycle()
    scene.news()
    scene.slurm.jobs_error = Unreachable("time-out")
    await scene.cycle(2)

    assert scene.news() == ["beat slurm.node"] * 2
    assert "1" in scene.bus.table.jobs["main"]


async def test_a_slurm_that_never_answers_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reading has a deadline, and the next one works."""
    monkeypatch.setattr(handlers, "READ_WITHIN_S", 0.02)
    scene = Scene(a_node("a"))
    scene.slurm.hangs = True
    await scene.cycle(3)
    assert [type(event) for event in scene.bus.happened] == [SourceLost]
    scene.slurm.hangs = False
    await scene.cycle()

    assert "a" in scene.news()


@pytest.mark.parametrize("left", [0, 2])
async def test_a_reading_without_most_nodes_is_not_believed_at_once(left: int) -> None:
    """It is read again in full; no heartbeat and no gones meanwhile. Then it is believed."""
    nodes = [a_node(f"n{i}") for i in range(5)]
    with capture_logs() as logs:
        scene = Scene(*nodes)
        await scene.cycle()
        scene.news()
        scene.slurm.asked.clear()
        scene.slurm.now(*nodes[:left])
        await scene.cycle()
        assert scene.news() == []
        await scene.cycle()

    assert scene.news() == [*(f"gone n{i}" for i in range(left, 5)), "beat slurm.node"]
    assert scene.slurm.asked[:2] == [("nodes", 1), ("nodes", 0)]
    assert [line["event"] for line in logs] == ["Most nodes are missing, reading again"] + ["Changed"] * (5 - left)
    assert len(scene.bus.happened) == 5 - left


async def test_a_short_fault_makes_no_node_vanish() -> None:
    """A hundred, none, a hundred: nothing is told."""
    nodes = [a_node(f"n{i}") for i in range(100)]
    scene = Scene(*nodes)
    await scene.cycle()
    scene.slurm.now()
    await scene.cycle()
    scene.slurm.now(*nodes)
    await scene.cycle()

    assert not any(fact.gone for fact in scene.bus.told)
    assert scene.bus.happened == []


async def test_a_few_nodes_may_vanish_at_once() -> None:
    """Scale-in is ordinary."""
    scene = Scene(*(a_node(f"n{i}") for i in range(5)))
    await scene.cycle()
    scene.news()
    scene.slurm.now(*(a_node(f"n{i}") for i in range(3)))
    await scene.cycle()

    assert scene.news() == ["gone n3", "gone n4", "beat slurm.node"]


async def test_nothing_is_forgotten_while_nats_is_away() -> None:
    """A change that could not be published is read again in full, and told with its event."""
    scene = Scene(a_node("a"))
    await scene.cycle()
    scene.bus.away = True
    scene.slurm.now(a_node("a", "IDLE+DRAIN"))
    await scene.cycle(2)
    scene.bus.away = False
    scene.news()
    await scene.cycle(2)

    assert scene.news()[:2] == ["a", "beat slurm.node"]
    assert [type(event) for event in scene.bus.happened] == [SlurmStateChanged, SlurmPhaseChanged]


async def test_all_nodes_are_read_now_and_then_whatever_slurm_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change in the second of the last answer, or a clock that was set back, is found."""
    scene = Scene(a_node("a"))
    await scene.cycle()
    scene.slurm.here = [a_node("a", "IDLE+DRAIN")]
    await scene.cycle()
    assert "main" in {key[0] for key in scene.bus.table.slurm_nodes}
    assert scene.bus.happened == []
    monkeypatch.setattr(handlers, "FULL_EVERY_S", 0.0)
    await scene.cycle()

    assert [type(event) for event in scene.bus.happened] == [SlurmStateChanged, SlurmPhaseChanged]


async def test_a_quiet_cluster_is_read_at_the_shortest_interval() -> None:
    """Answers that cost nothing cost nothing."""
    scene = Scene(a_node("a"))

    assert await scene.cycle(5) == pytest.approx(POLL.min_interval_s, abs=0.02)


async def test_the_poller_is_the_only_one_who_asks() -> None:
    """However many read what it publishes, Slurm is asked once a cycle."""
    scene = Scene(a_node("a", "MIXED+DRAIN"))
    await scene.cycle(10)

    calls = [what for what, _ in scene.slurm.asked]
    assert calls.count("nodes") == 10
    assert calls.count("jobs") == 10
    assert calls.count("reservations") == 1


async def test_each_change_begins_a_flow_of_its_own_and_the_first_reading_none() -> None:
    """Two jobs that begin are two traces; each goes along with the node's fact and with the event about it."""
    with kept_spans("slurm-poller") as spans:
        scene = Scene(a_node("a"), a_node("b"), a_node("c"))
        await scene.cycle()
        assert (spans.all, scene.bus.traces) == ([], {})

        scene.slurm.now(a_node("a", "ALLOCATED"), a_node("b", "ALLOCATED"), a_node("c"))
        await scene.cycle()
    headers = {str((span.attributes or {})["lockstep.worker"]): header_of(span) for span in spans.all}
    assert headers.keys() == {"a", "b"}
    assert len({header[3:35] for header in headers.values()}) == 2
    happened = {event.id: headers[event.identity] for event in scene.bus.happened}
    assert happened
    facts = {f"lockstep.fact.slurm.node.main.{name}": header for name, header in headers.items()}
    assert scene.bus.traces == facts | happened


async def test_what_happened_comes_before_the_fact_and_is_its_cause() -> None:
    """A crash in between repeats the event and loses none; whoever decides on the fact can name it."""
    scene = Scene(a_node("a"))
    await scene.cycle()
    scene.bus.order_of_all.clear()
    scene.slurm.now(a_node("a", "IDLE+DRAIN", reason="bad DIMM"))
    await scene.cycle()

    assert scene.bus.order_of_all[:4] == [
        "slurm-node.state-changed.v1",
        "slurm-node.phase-changed.v1",
        "slurm-node.reason-changed.v1",
        "a",
    ]
    assert scene.bus.causes == {"lockstep.fact.slurm.node.main.a": scene.bus.happened[0].id}


async def test_a_reservation_is_entered_and_left_when_slurm_says_so() -> None:
    """From one to the next is both; what was there before anybody looked has not happened now."""
    scene = Scene(a_node("a", reservation="weekly"), a_node("b"))
    await scene.cycle()
    for reservation in ("", "weekly", "other", "other"):
        scene.slurm.now(a_node("a", reservation=reservation), a_node("b"))
        await scene.cycle()

    assert [(type(event), getattr(event, "reservation", "")) for event in scene.bus.happened] == [
        (ReservationLeft, "weekly"),
        (ReservationEntered, "weekly"),
        (ReservationLeft, "weekly"),
        (ReservationEntered, "other"),
    ]
    assert len({event.id for event in scene.bus.happened}) == 4


def jobs_told(scene: Scene) -> list[tuple[str, int]]:
    """The jobs' events, in order."""
    return [(type(e).__name__, e.job_id) for e in scene.bus.happened if isinstance(e, JobEvent)]


async def turn_of_jobs(scene: Scene) -> None:
    """One drains with two jobs, of which one ends; elsewhere another begins and ends; then the drain is lifted."""
    scene.slurm.running = [a_job(1, "a"), a_job(2, "a")]
    await scene.cycle()
    scene.slurm.running = [a_job(2, "a"), a_job(3, "b")]
    scene.slurm.now(a_node("a", "MIXED+DRAIN"), a_node("b", "MIXED"))
    await scene.cycle(3)
    scene.slurm.running = [a_job(2, "a")]
    scene.slurm.now(a_node("a", "MIXED"), a_node("b"))
    await scene.cycle(3)


@pytest.mark.parametrize(
    ("told", "events"),
    [
        ("off", []),
        ("drains", [("JobEnded", 1)]),
        ("all", [("JobEnded", 1), ("JobStarted", 3), ("JobEnded", 3)]),
    ],
)
async def test_the_setting_says_of_which_jobs_is_told(
    told: Told, events: list[tuple[str, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Facts are only those on workers that leave, whatever it says; an unchanged answer is no news."""
    monkeypatch.setattr(handlers, "JOBS_REST", 0.0)
    scene = Scene(a_node("a", "MIXED+DRAIN"), a_node("b", "MIXED"), jobs=told)
    await turn_of_jobs(scene)

    assert jobs_told(scene) == events
    assert {fact.identity for fact in scene.bus.told if isinstance(fact, SlurmJob)} == {"1", "2"}
    assert scene.bus.table.jobs["main"] == {}


async def test_all_jobs_are_read_each_time_where_all_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """With Slurm's own stamp, so that an unchanged answer is small."""
    monkeypatch.setattr(handlers, "JOBS_REST", 0.0)
    scene = Scene(a_node("a", "MIXED"), jobs="all")
    await scene.cycle(3)

    assert [since for what, since in scene.slurm.asked if what == "jobs"] == [0, 1, 1]


async def test_a_large_answer_about_jobs_keeps_nobody_from_reading_nodes() -> None:
    """A tenth of the time is spent on it, unless a drain waits for the jobs."""
    scene = Scene(a_node("a", "MIXED"), jobs="all")
    scene.slurm.jobs_take_s = 0.2
    await scene.cycle(5)
    assert [what for what, _ in scene.slurm.asked if what != "reservations"] == ["nodes", "jobs", *["nodes"] * 4]
    scene.slurm.now(a_node("a", "MIXED+DRAIN"))
    await scene.cycle(2)

    assert [what for what, _ in scene.slurm.asked][-4:] == ["nodes", "jobs"] * 2


async def test_jobs_that_cannot_be_read_keep_nobody_from_reading_nodes() -> None:
    """It is told that they are lost; nodes are read as often as before, unless a drain waits."""
    scene = Scene(a_node("a", "MIXED"), jobs="all")
    scene.slurm.jobs_error = Unreachable("no answer")
    waits = [await scene.cycle() for _ in range(6)]

    assert max(waits) < POLL.max_interval_s / 2
    assert [(type(e), getattr(e, "source", "")) for e in scene.bus.happened] == [(SourceLost, "slurm.job")]
    scene.slurm.now(a_node("a", "MIXED+DRAIN"))
    assert await scene.cycle(4) > POLL.max_interval_s / 2


async def test_jobs_that_were_lost_are_read_again_also_when_nobody_waits_for_them_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was told to be lost is told to be back; from then on nobody asks for jobs."""
    monkeypatch.setattr(handlers, "JOBS_REST", 0.0)
    scene = Scene(a_node("a", "MIXED+DRAIN"))
    scene.slurm.jobs_error = Unreachable("no answer")
    await scene.cycle(4)
    scene.slurm.now(a_node("a", "MIXED"))
    await scene.cycle(2)
    scene.slurm.jobs_error = None
    await scene.cycle()
    told = [(type(e), e.source) for e in scene.bus.happened if isinstance(e, SourceLost | SourceBack)]
    scene.slurm.asked.clear()
    await scene.cycle()

    assert told == [(SourceLost, "slurm.job"), (SourceBack, "slurm.job")]
    assert "jobs" not in [what for what, _ in scene.slurm.asked]


async def test_a_worker_that_begins_to_leave_has_its_jobs_read_although_none_has_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only the jobs on workers that leave are kept from one answer to the next."""
    monkeypatch.setattr(handlers, "FULL_EVERY_S", 0.0)
    scene = Scene(a_node("a", "MIXED+DRAIN"), a_node("b", "MIXED"))
    scene.slurm.running = [a_job(1, "a"), a_job(2, "b")]
    await scene.cycle(2)
    scene.slurm.here = [a_node("a", "MIXED+DRAIN"), a_node("b", "MIXED+DRAIN")]
    await scene.cycle(2)

    assert set(scene.bus.table.jobs["main"]) == {"1", "2"}
    assert [since for what, since in scene.slurm.asked if what == "jobs"] == [0, 1, 0, 1]


async def test_the_end_of_a_job_is_told_by_a_successor() -> None:
    """A run that the stream names and Slurm does not: at least once, with the id that a predecessor would have used."""
    first = Scene(a_node("a", "MIXED+DRAIN"))
    first.slurm.running = [a_job(1, "a")]
    await first.cycle()
    known = [fact for fact in first.bus.told if not isinstance(fact, SourceHealth)]
    second, third = (Scene(a_node("a", "IDLE+DRAIN"), known=known) for _ in range(2))
    await second.cycle(2)
    await third.cycle(2)

    assert jobs_told(second) == [("JobEnded", 1)]
    ids = [[e.id for e in scene.bus.happened if isinstance(e, JobEvent)] for scene in (second, third)]
    assert ids[0] == ids[1]


async def test_more_jobs_than_are_followed_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it stays so."""
    monkeypatch.setattr("lockstep.slurm_poller.jobs.MAX_RUNS", 1)
    scene = Scene(a_node("a", "MIXED"), jobs="all")
    scene.slurm.running = [a_job(1, "a"), a_job(2, "a")]
    with capture_logs() as logs:
        for _ in range(3):
            scene.slurm.now(a_node("a", "MIXED"))
            await scene.cycle()

    assert [(line["event"], line["count"]) for line in logs] == [("More jobs run than are followed", 1)]
