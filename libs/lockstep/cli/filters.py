"""Which events were asked for: as subjects, so that NATS sends no others, and as a test of what it sends. Pure."""

from collections.abc import Collection, Iterator

import msgspec

from lockstep.base.errors import BadInput
from lockstep.bus.envelope import Unknown
from lockstep.bus.events import EventSeen
from lockstep.cli import choose
from lockstep.cli.exits import Exit, Stop
from lockstep.contracts import events as e
from lockstep.contracts.common import WorkerKey
from lockstep.contracts.facts import SITE
from lockstep.contracts.subjects import ROOT, name_of, scope_token, tag_of, token
from lockstep.fleet.facts import FactTable

TYPES = {tag_of(kind): kind for kind in e.EVENT_TYPES}
MAX_SUBJECTS = 256
"""More than these are not sent to NATS: then all workers are asked for, and the others left out here."""

Named = tuple[str | None, str]
"""A worker as it was asked for: its cluster (None: any) and its name."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for; empty: everything."""

    tags: frozenset[str] = frozenset()
    cluster: str | None = None
    workers: frozenset[Named] = frozenset()
    node: str = ""
    """Events about this Kubernetes node, and about workers while they were on it."""
    hold: str = ""
    """Events that name this hold, by its id or a Hold's name."""

    def subjects(self) -> list[str]:
        """The narrowest subjects that have all of them. No two of them overlap."""
        tags = self._tags()
        if tags is None:
            found = list(self._all_kinds())
        else:
            found = [subject for tag in sorted(tags) for subject in self._of_kind(tag)]
        if len(found) <= MAX_SUBJECTS:
            return found
        return msgspec.structs.replace(self, workers=frozenset({(None, "")})).subjects()

    def takes(self, seen: EventSeen) -> bool:
        """Whether the event was asked for. One of a newer kind is judged by its subject, and by nothing else."""
        event = seen.event
        if isinstance(event, Unknown):
            return not (self.tags or self.node or self.hold) and self._is_worker(*_about(seen.subject))
        return (
            (not self.tags or tag_of(type(event)) in self.tags)
            and (not self.cluster or event.scope in {self.cluster, SITE})
            and (not self.workers or self._is_about(event))
            and (not self.node or _is_on(event, self.node))
            and (not self.hold or _names(event, self.hold))
        )

    def _tags(self) -> frozenset[str] | None:
        """The kinds that can be meant; None: all, also those that are not known here."""
        if not (self.tags or self.node or self.hold):
            return None
        return frozenset(
            tag
            for tag, kind in TYPES.items()
            if (not self.tags or tag in self.tags)
            and (not self.node or issubclass(kind, e.NodeEvent | e.WorkerEvent))
            and (not self.hold or _can_name(kind))
        )

    def _all_kinds(self) -> Iterator[str]:
        root, scope = f"{ROOT}.event.*.*.*", scope_token(self.cluster) if self.cluster else "*"
        if not self.workers:
            yield f"{root}.{scope}.*" if self.cluster else f"{ROOT}.event.>"
        for cluster, name in sorted(self.workers, key=str):
            yield f"{root}.{scope_token(cluster) if cluster else scope}.{token(name) if name else '*'}"

    def _of_kind(self, tag: str) -> Iterator[str]:
        root, scope = f"{ROOT}.event.{tag}", scope_token(self.cluster) if self.cluster else "*"
        kind = TYPES[tag]
        if issubclass(kind, e.WorkerEvent) and self.workers:
            for cluster, name in sorted(self.workers, key=str):
                yield f"{root}.{scope_token(cluster) if cluster else scope}.{token(name) if name else '*'}"
        elif issubclass(kind, e.NodeEvent):
            yield f"{root}.{SITE}.{token(self.node) if self.node else '*'}"
        elif issubclass(kind, e.ClusterEvent | e.WorkerEvent):
            yield f"{root}.{scope}.*"
        else:
            yield f"{root}.*.*"

    def _is_about(self, event: e.Event) -> bool:
        match event:
            case e.WorkerEvent():
                return self._is_worker(*event.worker.key)
            case _ if not (self.tags or self.node):
                return False
            case e.NodeEvent():
                return any(self._is_worker(*worker.key) for worker in event.workers)
            case e.JobEvent():
                return any(self._is_worker(event.cluster, node) for node in event.nodes)
            case _:
                return False

    def _is_worker(self, cluster: str, name: str) -> bool:
        return not self.workers or (cluster, name) in self.workers or (None, name) in self.workers


def tags_of(kinds: Collection[str]) -> frozenset[str]:
    """The types of events that `hold`, `hold.placed` or `hold.placed.v1` mean; empty: all.

    Raises:
        BadInput: there is no such kind; says which there are.
    """
    found: set[str] = set()
    for kind in kinds:
        tags = {tag for tag in TYPES if f"{tag}.".startswith(f"{kind}.")}
        if not tags:
            raise BadInput([f"--kind {choose.quoted(kind)}: there is none; want one of {', '.join(sorted(TYPES))}"])
        found |= tags
    return frozenset(found)


def workers_of(words: Collection[str], cluster: str | None) -> frozenset[Named]:
    """The workers that `gpu-7`, `main/gpu-7` and host lists such as `gpu-[1-8]` mean.

    Raises:
        BadInput: a host list cannot be read, or names nobody.
    """
    found: set[Named] = set()
    for word in words:
        home, slash, names = word.rpartition("/")
        expanded = choose.expanded("--worker", names)
        if not expanded:
            raise BadInput([f"--worker {choose.quoted(word)}: want a name, or a host list such as gpu-[1-8]"])
        found |= {(home if slash else cluster, name) for name in expanded}
    return frozenset(found)


def block_of(table: FactTable, block: str, clusters: Collection[str]) -> frozenset[Named]:
    """The workers of a block (or switch) of Slurm's topology, by Slurm's `Topology=` of each node.

    Slurm writes `ib:root:leaf1,nvl:rack01` there: after each topology's name the units that a node is in.

    Raises:
        Stop: there is no such block, or Slurm tells no worker's topology.
    """
    units: dict[str, set[WorkerKey]] = {}
    for key in table.workers():
        node = table.slurm_nodes.get(key)
        if node is None or key[0] not in clusters:
            continue
        for path in node.topology.split(","):
            for unit in path.split(":")[1:]:
                units.setdefault(unit.strip(), set()).add(key)
    if not units:
        why = "Slurm tells no worker's topology; has it a topology.yaml or topology.conf, and is it 25.05 or later?"
        raise Stop(Exit.NOT_FOUND, f"--block {choose.quoted(block)}: {why}")
    if block not in units:
        raise Stop(
            Exit.NOT_FOUND,
            f"--block {choose.quoted(block)}: there is none of that name; {choose.among(block, sorted(units))}",
        )
    return frozenset(units[block])


def _about(subject: str) -> tuple[str, str]:
    """Scope and identity of an event, by its subject."""
    *_, scope, identity = subject.split(".")
    try:
        return (scope if scope.startswith("_") else name_of(scope)), name_of(identity)
    except ValueError:
        return scope, identity


def _is_on(event: e.Event, node: str) -> bool:
    match event:
        case e.WorkerEvent():
            return event.worker.kube_node == node
        case e.NodeEvent():
            return event.node == node
        case _:
            return False


def _can_name(kind: type[e.Event]) -> bool:
    fields = set(kind.__struct_fields__)
    return not fields.isdisjoint({"hold", "holds", "standing"}) or kind is e.HoldRefused


def _names(event: e.Event, hold: str) -> bool:
    match event:
        case e.HoldReasserted():
            ids = event.holds
        case e.HoldRefused():
            ids = [event.name]
        case e.RequestAccepted():
            ids = [f"hold/{event.hold}"]
        case e.HoldReleased() | e.HoldExpired() | e.HoldPlaced() | e.HoldOverridden() | e.ForeignDrainRespected():
            ids = [event.hold.id]
        case _:
            ids = []
    return any(ident == hold or (ident.startswith("hold/") and ident.rpartition("/")[2] == hold) for ident in ids)
