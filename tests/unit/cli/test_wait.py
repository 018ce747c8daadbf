"""`lockstep hold --wait`: what is told of a Hold, and when it ends."""

from typing import Any

import pytest

from lockstep.cli import wait
from lockstep.cli.exits import Exit
from lockstep.contracts.hold import Condition, HoldPhase, HoldStatus, JobBrief, WaitingFor, WorkerCounts
from lockstep.kube.errors import Unreachable
from lockstep.kube.wire import Hold, ManagedMeta
from tests.unit.cli.seen import captured

SEEN = [Condition(type="Accepted", status="True")]


def a_kube_hold(phase: HoldPhase, **status: Any) -> Hold:
    """A Hold whose status is this."""
    known: dict[str, Any] = {"phase": phase, "conditions": SEEN, "workers": WorkerCounts(selected=2, drained=1)}
    meta = ManagedMeta(name="dimm", namespace="slurm", uid="u1")
    return Hold(metadata=meta, status=HoldStatus(**(known | status)))


@pytest.mark.parametrize(
    ("hold", "line", "code"),
    [
        (a_kube_hold(HoldPhase.DRAINING), "draining: 1 of 2 drained", None),
        (a_kube_hold(HoldPhase.DRAINED), "drained: 1 of 2 drained", Exit.OK),
        (a_kube_hold(HoldPhase.OVERDUE, message="jobs run"), "overdue: 1 of 2 drained (jobs run)", None),
        (a_kube_hold(HoldPhase.REFUSED, message="spec.reason: x"), "refused: spec.reason: x", Exit.NO),
        (a_kube_hold(HoldPhase.EXPIRED), "expired: no reason given", Exit.NO),
        (None, "released by somebody; it is no longer waited for", Exit.NO),
    ],
)
def test_each_phase_is_told_and_only_the_last_ones_end_the_wait(
    hold: Hold | None, line: str, code: Exit | None
) -> None:
    """Overdue is not the end: the drain goes on and says so."""
    assert wait.told(hold, "u1", 1.0) == (line, code)


def test_another_hold_by_the_same_name_is_not_waited_for() -> None:
    """Deleted and created anew is released."""
    assert wait.told(a_kube_hold(HoldPhase.DRAINED), "u2", 1.0)[1] is Exit.NO


def test_the_jobs_that_are_waited_for_are_named() -> None:
    """The first five, and that there are more."""
    jobs = [JobBrief(id=i) for i in range(1, 8)]
    hold = a_kube_hold(HoldPhase.DRAINING, waiting_for=[WaitingFor(worker="gpu-7", jobs=jobs)])

    line, _ = wait.told(hold, "u1", 1.0)

    assert line.endswith("waits for 7 jobs: 1 on gpu-7, 2 on gpu-7, 3 on gpu-7, 4 on gpu-7, 5 on gpu-7 …")


def test_a_hold_that_nobody_takes_up_is_told() -> None:
    """When no service runs, waiting in silence would be no help."""
    silent = a_kube_hold(HoldPhase.PENDING, conditions=[])

    assert "are Lockstep's services running?" in wait.told(silent, "u1", 30.0)[0]
    assert "running?" not in wait.told(silent, "u1", 1.0)[0]


class Kube:
    """Answers with these, one after the other."""

    def __init__(self, *answers: Hold | Exception | None) -> None:
        self.answers = list(answers)

    async def get_hold(self, _namespace: str, _name: str) -> Hold | None:
        """The next answer."""
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_progress_is_printed_once_a_change_and_an_outage_is_lived_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A pipe gets one line for each new state; an API server that restarts does not end the wait."""
    monkeypatch.setattr(wait, "EVERY_S", 0.0)
    draining, drained = a_kube_hold(HoldPhase.DRAINING), a_kube_hold(HoldPhase.DRAINED)
    out, text, _ = captured()

    code = await wait.wait_for(Kube(draining, draining, Unreachable("away"), drained), draining, out)  # type: ignore[arg-type]

    assert code is Exit.OK
    assert text.getvalue().splitlines() == [
        "draining: 1 of 2 drained",
        "Kubernetes cannot be read: away",
        "drained: 1 of 2 drained",
    ]


async def test_an_api_server_that_stays_away_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """After two minutes without an answer the person is told."""
    clock = iter(range(0, 10_000, 100))
    monkeypatch.setattr(wait, "monotonic", lambda: float(next(clock)))
    monkeypatch.setattr(wait, "EVERY_S", 0.0)
    hold = a_kube_hold(HoldPhase.DRAINING)

    with pytest.raises(Unreachable):
        await wait.wait_for(Kube(*[Unreachable("away")] * 5), hold, captured()[0])  # type: ignore[arg-type]
