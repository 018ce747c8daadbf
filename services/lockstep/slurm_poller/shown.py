"""What the Deployment's condition says: whether Slurm can be read, and if not, why. Pure."""

from collections.abc import Collection, Iterable

from lockstep.base.text import one_line
from lockstep.contracts.facts import SourceHealth
from lockstep.contracts.hold import Condition
from lockstep.kube import keys
from lockstep.kube.conditions import MAX_MESSAGE

NODES = "slurm.node"
"""The source that is always read; the others are where it can be."""
SHORTEST = 40
"""Characters that each of many lost sources has at least; then the message is cut as a whole."""


def slurm_read(sources: Iterable[SourceHealth], clusters: Collection[str]) -> Condition | None:
    """The condition `lockstep.sh/SlurmRead` for these clusters; None while not all are known and none is lost.

    False names every source that cannot be read, sorted by cluster, each with its error.
    """
    ours = [s for s in sources if s.of in clusters and s.source.startswith("slurm.") and not s.gone]
    if lost := sorted((s.of, s.source, s.last_error) for s in ours if s.last_error):
        limit = max(MAX_MESSAGE // len(lost) - len("; "), SHORTEST)
        texts = [one_line(f"Slurm cluster {of}, {source}: {error}", limit=limit) for of, source, error in lost]
        message = one_line("; ".join(texts), limit=MAX_MESSAGE)
        return Condition(type=keys.SLURM_READ, status="False", reason="SlurmLost", message=message)
    if {s.of for s in ours if s.source == NODES} != set(clusters):
        return None
    return Condition(type=keys.SLURM_READ, status="True", reason="Read")
