"""Which flow a change of a Slurm node belongs to: one of ours whose write it shows, or one that it begins."""

from lockstep.base import clock
from lockstep.contracts.facts import SlurmNode, worker_key
from lockstep.fleet.facts import FactTable
from lockstep.fleet.flows import attributes_of, is_recent, others
from lockstep.runtime.tracing import Step
from lockstep.slurm import reasons
from lockstep.slurm_poller.causes import our_words
from lockstep.slurm_poller.handlers import NAME


class Traces:
    """Finds the flow of what was read. Reads the table only."""

    def __init__(self, table: FactTable) -> None:
        self._table = table

    def step(self, before: SlurmNode | None, after: SlurmNode) -> Step:
        """The span of one change: `before` was told last."""
        desired = self._table.desired.get(worker_key(after))
        parent = self._shown(before, after)
        links = others(parent, [desired.traceparent] if desired and desired.holds else [])
        return Step(NAME, parent, links, attributes_of(after))

    def _shown(self, before: SlurmNode | None, after: SlurmNode) -> str:
        """The trace of the write of ours that shows here first.

        Where the news of the write has not come, what was wanted tells it.
        """
        key, now = worker_key(after), clock.now()
        wrote, desired = self._table.wrote.get(key), self._table.desired.get(key)
        was, stands = our_words(before), our_words(after)
        if was == stands:
            return ""
        if wrote is not None and is_recent(wrote.read_at, now) and wrote.traceparent and _told(wrote.words, stands):
            return wrote.traceparent
        wanted = desired if desired is not None and _told(desired.words, stands) else None
        return self._table.flows.origin([wanted], now).traceparent


def _told(words: str, shown: str) -> bool:
    return reasons.same(shown, words) if words and shown else words == shown
