"""Which write of ours a change of a Slurm node shows. Pure."""

from lockstep.contracts.facts import Desired, SlurmNode, Wrote, worker_key
from lockstep.fleet.facts import CauseOf, FactTable
from lockstep.fleet.holds import projected
from lockstep.slurm import reasons, states

Change = tuple[SlurmNode | None, SlurmNode]
"""One node as it was told last (None: it is new) and as it was read now."""


class Echoes:
    """Finds the event that tells of a write. Reads the table only."""

    def __init__(self, table: FactTable, cause_of: CauseOf) -> None:
        self._table = table
        self._cause_of = cause_of

    def of(self, before: SlurmNode | None, after: SlurmNode) -> str:
        """The event that tells of the write because of which a node changed; empty if that was no write of ours.

        Where the fact of the write has not come, what asked for it stands in its place.
        """
        stands = bool(our_words(after))
        if not stands and not _is_lifted(before, after):
            return ""
        if (told := self._told(after)) is not None:
            return told.cause
        desired = self._table.desired.get(worker_key(after))
        is_wanted = desired is not None and bool(projected(desired.holds)) is stands
        return self._cause_of((Desired, *worker_key(after))) if is_wanted else ""

    def is_early(self, before: SlurmNode | None, after: SlurmNode) -> bool:
        """Whether a write of ours shows for the first time before it has been told.

        Words of ours that nobody told are such a write, and so is the end of our DRAIN. But where its hold still stands
        somebody has resumed the node, and that may not wait for anything.
        """
        if before is None or our_words(before) == our_words(after):
            return False
        told = self._told(after)
        if told is not None and self._is_new(told, after):
            return False
        return bool(our_words(after)) or (_is_lifted(before, after) and self._may_be_lifted(after))

    def _told(self, after: SlurmNode) -> Wrote | None:
        """The last write, if it is what the node shows and the stream has told it."""
        key = worker_key(after)
        wrote, words = self._table.wrote.get(key), our_words(after)
        if wrote is None or wrote.cause not in {"", self._cause_of((Wrote, *key))}:
            return None
        return wrote if (reasons.same(words, wrote.words) if words else not wrote.words) else None

    def _is_new(self, wrote: Wrote, node: SlurmNode) -> bool:
        """It was answered since the node was last told otherwise: a resumed drain is set again with the same words."""
        known, at = self._table.slurm_nodes.get(worker_key(node)), wrote.drained_at if wrote.words else None
        return known is None or known.read_at is None or at is None or at > known.read_at

    def _may_be_lifted(self, node: SlurmNode) -> bool:
        """Nothing holds the worker any more, or not since our last DRAIN was told."""
        wrote, desired = self._table.wrote.get(worker_key(node)), self._table.desired.get(worker_key(node))
        if desired is None:
            return False
        is_answered = wrote is not None and bool(wrote.words) and wrote.episode == desired.episode
        return not (is_answered and projected(desired.holds))


def our_words(node: SlurmNode | None) -> str:
    """The words of our own DRAIN, as far as one stands: what changes under it came about because of our write."""
    ours = node is not None and states.is_drain(node.base, node.flags) and reasons.is_ours(node.reason)
    return node.reason if node is not None and ours else ""


def _is_lifted(before: SlurmNode | None, after: SlurmNode) -> bool:
    return bool(our_words(before)) and not states.is_drain(after.base, after.flags)
