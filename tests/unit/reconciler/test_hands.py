"""What is remembered of a write, for the next decision on the same worker."""

from datetime import datetime

import pytest

from lockstep.contracts.facts import Wrote
from lockstep.kube.errors import Denied, KubeError
from lockstep.reconciler.hands import Hands
from lockstep.reconciler.model import DrainNode
from lockstep.reconciler.writer import Answer
from tests.builders import NOW, OURS, POLICY, a_desired, a_view, a_worker, ago, wrote_drain


class Writer:
    """Answers every drain."""

    async def drain(self, name: str, words: str) -> Answer:
        """At once."""
        return Answer(NOW, wrote=True)


class Told:
    """Takes the events that people see, or may not write any."""

    def __init__(self, error: KubeError | None = None) -> None:
        self._error = error

    async def emit_event(self, *_: object, **__: object) -> None:
        """Heard."""
        if self._error:
            raise self._error


async def drained(before: Wrote, *, episode: int, reassert: bool = False, told: Told | None = None) -> Wrote:
    """What is remembered after a drain in this episode."""
    hands = Hands(told or Told(), {}, {"main": Writer()}, POLICY, epoch=7)  # type: ignore[arg-type,dict-item]
    worker = a_worker(desired=a_desired(a_view(), episode=episode), wrote=before)
    done = await hands.carry_out(worker, DrainNode(words=OURS, reassert=reassert, because="a hold"))
    assert done.wrote is not None
    return done.wrote


@pytest.mark.parametrize(
    ("episode", "kept"),
    [
        pytest.param(1, ago(5), id="the same holds: the next resume waits"),
        pytest.param(2, None, id="new holds: nobody has resumed them yet"),
    ],
)
async def test_that_somebody_resumed_is_remembered_for_these_holds_only(episode: int, kept: datetime | None) -> None:
    """Holds that came later must not wait for what happened to others before them."""
    wrote = await drained(wrote_drain(episode=1, reasserted_at=ago(5)), episode=episode)
    assert (wrote.reasserted_at, wrote.episode, wrote.drained_at) == (kept, episode, NOW)


async def test_a_drain_against_a_resume_is_remembered() -> None:
    """The next one comes only after a while."""
    assert (await drained(wrote_drain(episode=1), episode=1, reassert=True)).reasserted_at == NOW


async def test_a_drain_is_remembered_also_where_people_cannot_be_told_of_it() -> None:
    """An Event of Kubernetes is for people: that we may not write one loses neither what was done nor our own event."""
    told = Told(Denied("no right to create events"))
    assert (await drained(wrote_drain(episode=1), episode=1, reassert=True, told=told)).reasserted_at == NOW
