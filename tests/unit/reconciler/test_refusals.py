"""What is told of a write that Slurm refuses again and again."""

from typing import Any, cast

import msgspec

from lockstep.base import clock
from lockstep.contracts.events import Event, WriteRefused
from lockstep.contracts.facts import JobAct, Progress, SlurmJob, Wrote
from lockstep.contracts.hold import Drain, DrainPolicy
from lockstep.fleet.pairing import Site
from lockstep.kube.port import KubeApi
from lockstep.reconciler.handlers import Reconciler
from lockstep.reconciler.hands import Hands
from lockstep.slurm.errors import Refused
from tests.builders import (
    CLUSTER,
    KEY,
    OURS,
    POLICY,
    a_desired,
    a_hold,
    a_job,
    a_node,
    a_pod,
    a_slurm_node,
    a_table,
    a_view,
    heartbeats,
    wrote_drain,
)


class Stubborn:
    """A Slurm that ends no job."""

    def __init__(self) -> None:
        self.asked = 0

    async def cancel(self, job_id: int) -> None:
        """No."""
        self.asked += 1
        raise Refused([f"job {job_id} is needed"])


async def test_a_job_that_slurm_will_not_end_is_told_once_for_each_run() -> None:
    """It is asked again with each sweep; another run of the same job is another refusal."""
    job, slurm, told = a_job(), Stubborn(), list[Event]()
    now = clock.now()
    table = a_table(
        a_node(),
        a_pod(),
        a_slurm_node("MIXED+DRAIN", reason=OURS),
        a_hold(drain=Drain(policy=DrainPolicy.CANCEL)),
        wrote_drain(),
        beats=heartbeats(slurm=now, jobs=now, kube=now),
    )

    def tell(_: Wrote | None, events: list[Event]) -> None:
        told.extend(events)

    def runs(run: SlurmJob, revision: int) -> None:
        act = JobAct(job_id=run.job_id, act=DrainPolicy.CANCEL, start=run.start)
        view = a_view(policy=DrainPolicy.CANCEL)
        table.apply(run)
        table.apply(a_desired(view, progress=Progress.DRAINING, job_acts=[act], revision=str(revision)))

    policy = msgspec.structs.replace(POLICY, conditions=False)
    hands = Hands(cast(KubeApi, None), {CLUSTER: cast(Any, slurm)}, {}, policy, epoch=1)
    reconciler = Reconciler(
        table, Site(), [CLUSTER], policy, hands, may_act=lambda: True, anticipate=table.apply, tell=tell
    )
    runs(job, 1)
    for _ in range(3):
        await reconciler.look(KEY)
        reconciler.forget_answers()
    assert [type(event) for event in told] == [WriteRefused]
    runs(msgspec.structs.replace(job, start=now), 2)
    for _ in range(2):
        await reconciler.look(KEY)
        reconciler.forget_answers()

    assert slurm.asked == 5
    assert [type(event) for event in told] == [WriteRefused, WriteRefused]
    assert len({event.id for event in told}) == 2
