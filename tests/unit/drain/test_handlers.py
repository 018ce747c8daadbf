"""What the drain service remembers of its own decisions."""

import msgspec

from lockstep.drain.handlers import Drains
from lockstep.fleet.pairing import Site
from tests.builders import KEY, POLICY, a_desired, a_hold, a_node, a_pod, a_slurm_node, a_table


def test_a_decision_counts_at_once_although_it_has_not_come_back_from_the_stream() -> None:
    """It carries the epoch of who decided; otherwise it would be dropped as a predecessor's, and decided again."""
    before = msgspec.structs.replace(a_desired(), epoch=7)
    table = a_table(a_slurm_node(), a_pod(), a_node(), a_hold(), before)
    drains = Drains(table, Site(), ["main"], POLICY, epoch=7)

    (decided,) = drains.look([KEY])
    assert table.apply(decided.decision.desired)

    assert not table.desired[KEY].in_service
    assert drains.look([KEY]) == []
