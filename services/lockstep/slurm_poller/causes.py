"""Which write of ours a change of a Slurm node shows. Pure."""

from lockstep.contracts.facts import Desired, SlurmNode, Wrote, worker_key
from lockstep.fleet.facts import CauseOf, FactTable
from lockstep.fleet.holds import projected
from lockstep.slurm import reasons, states


class Echoes:
    """Finds the event that tells of a write. Reads the table only."""

    def __init__(self, table: FactTable, cause_of: CauseOf) -> None:
        self._table = table
        self._cause_of = cause_of

    def of(self, before: SlurmNode | None, after: SlurmNode) -> str:
        """The event that tells of the write because of which a node changed; empty if that was no write of ours.

        Until the fact of the write has come, what asked for it stands in its place.
        """
        key = worker_key(after)
        wrote, desired = self._table.wrote.get(key), self._table.desired.get(key)
        stands = _shows_drain(after)
        lifted = before is not None and _shows_drain(before) and not states.is_drain(after.base, after.flags)
        if not (stands or lifted):
            return ""
        told = wrote is not None and wrote.cause in {"", self._cause_of((Wrote, *key))}
        if wrote is not None and told and (reasons.same(after.reason, wrote.words) if stands else not wrote.words):
            return wrote.cause
        is_wanted = desired is not None and bool(projected(desired.holds)) is stands
        return self._cause_of((Desired, *key)) if is_wanted else ""


def _shows_drain(node: SlurmNode) -> bool:
    """A DRAIN of ours stands: what changes under it came about because of our write."""
    return states.is_drain(node.base, node.flags) and reasons.is_ours(node.reason)
