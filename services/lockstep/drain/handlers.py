"""Looks at workers whose facts changed, decides, and publishes what is wanted of them."""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

import msgspec

from lockstep.base import clock
from lockstep.contracts.common import WorkerKey
from lockstep.contracts.facts import Desired, KubeHold
from lockstep.contracts.hold import HoldStatus
from lockstep.contracts.policy import Policy
from lockstep.drain.causes import explained
from lockstep.drain.decide import decide
from lockstep.drain.model import Decision
from lockstep.drain.status import same, status_of
from lockstep.fleet.drained import WAITS_FOR_A_READ
from lockstep.fleet.facts import CauseOf, FactTable, Touched
from lockstep.fleet.holds import hold_id
from lockstep.fleet.pairing import Site, pair, workers_on
from lockstep.fleet.sources import Returns
from lockstep.fleet.worker import Worker


class Decided(NamedTuple):
    """What was decided, and on what."""

    worker: Worker
    decision: Decision


class Drains:
    """Keeps the desired state of every worker. No I/O: takes what changed, gives what to publish."""

    def __init__(
        self,
        table: FactTable,
        site: Site,
        clusters: Iterable[str],
        policy: Policy,
        *,
        epoch: int = 0,
        cause_of: CauseOf = lambda *_: "",
    ) -> None:
        self._table = table
        self._epoch = epoch
        self._cause_of = cause_of
        self._site = site
        self._clusters = frozenset(clusters)
        self._policy = policy
        self._seen_holds: dict[str, Mapping[str, KubeHold]] = {}
        self._returns = Returns(policy.stale_after_s)
        self._waiting: set[WorkerKey] = set()
        """Workers whose drain needs another read, which no fact announces."""
        self._due: dict[WorkerKey, datetime] = {}
        """When a deadline or an expiry makes a worker worth a look."""

    def look(self, keys: Iterable[WorkerKey]) -> list[Decided]:
        """What is to be published for those of these workers for whom it is news."""
        now = clock.now()
        decided: list[Decided] = []
        for key in keys:
            if key[0] not in self._clusters:
                continue
            worker = pair(self._table, key, self._site)
            decision = decide(worker, self._policy, now)
            if decision is not None:
                desired = msgspec.structs.replace(decision.desired, epoch=self._epoch)
                decision = msgspec.structs.replace(decision, desired=desired)
                decided.append(Decided(worker, explained(decision, worker, self._cause_of)))
            self._note(key, decision.desired if decision else worker.desired, now)
        return decided

    def touched(self, touched: Touched) -> set[WorkerKey]:
        """The workers that a change may concern."""
        keys = set(touched.workers)
        for node in touched.nodes:
            keys.update(workers_on(self._table, node, self._clusters, self._site))
        for cluster in touched.clusters & self._clusters:
            keys.update(self._touched_in(cluster))
        keys.update(self._returns.workers(self._table, touched.sources))
        read = {cluster for _, cluster in touched.sources}
        keys.update(key for key in self._waiting if key[0] in read)
        return keys

    def due(self) -> set[WorkerKey]:
        """The workers for which time alone has changed something."""
        now = clock.now()
        return {key for key, at in self._due.items() if at <= now}

    @property
    def refused(self) -> frozenset[str]:
        """The uids of Holds that count for nobody, though their schema is good."""
        return self._site.refused

    def everybody(self) -> set[WorkerKey]:
        """All workers, for the sweep."""
        return self._table.workers()

    def _touched_in(self, cluster: str) -> set[WorkerKey]:
        """The workers that a changed Hold names; all of the cluster for other selectors and for reservations."""
        before, after = self._seen_holds.get(cluster, {}), dict(self._table.holds[cluster])
        changed = [hold for i, hold in after.items() if hold != before.get(i)]
        ended = [before[i] for i in before.keys() - after.keys()]
        if not changed and not ended:
            return self._table.workers(cluster)
        self._seen_holds[cluster] = after
        self._refuse_what_selects_all(cluster)
        keys: set[WorkerKey] = set()
        for hold in [*changed, *ended]:
            names = hold.spec.workers.names if hold.spec else None
            if names is None:
                return self._table.workers(cluster)
            keys.update((cluster, name) for name in names)
        return keys

    def _refuse_what_selects_all(self, cluster: str) -> None:
        """A label selector that takes every worker is a slip, not a wish; once accepted, a Hold stays what it is."""
        bare = msgspec.structs.replace(self._site, refused=frozenset())
        workers = [pair(self._table, key, bare) for key in self._table.workers(cluster)]
        new = [h for h in self._table.holds[cluster].values() if not h.accepted and h.spec and h.spec.workers.selector]
        all_of_them = {h.uid for h in new if len(workers) > 1 and all(h in w.holds for w in workers)}
        others = {uid for uid in self._site.refused if uid not in {h.uid for h in new}}
        self._site = msgspec.structs.replace(self._site, refused=frozenset(others | all_of_them))

    def _note(self, key: WorkerKey, desired: Desired | None, now: datetime) -> None:
        waits = desired is not None and (desired.why_not in WAITS_FOR_A_READ)
        (self._waiting.add if waits else self._waiting.discard)(key)
        moments = [m for h in (desired.holds if desired else []) for m in (h.until, h.deadline) if m and m > now]
        if moments:
            self._due[key] = min(moments)
        else:
            self._due.pop(key, None)


class Statuses:
    """Which Hold resources must be told something new. No I/O either."""

    def __init__(self, table: FactTable) -> None:
        self._table = table
        self._told: dict[str, HoldStatus] = {}

    def news(self, refused: Collection[str]) -> list[tuple[KubeHold, HoldStatus]]:
        """The Holds whose status is not what was last told."""
        now = clock.now()
        on: dict[str, list[Desired]] = {}
        for desired in self._table.desired.values():
            for view in desired.holds:
                on.setdefault(view.id, []).append(desired)
        found = []
        for holds in self._table.holds.values():
            for hold in holds.values():
                status = status_of(hold, on.get(hold_id(hold), []), refused=hold.uid in refused, now=now)
                if hold.deleting_since is None and not same(self._told.get(hold.uid), status):
                    found.append((hold, status))
        return found

    def told(self, hold: KubeHold, status: HoldStatus) -> None:
        """Remembers what was written."""
        self._told[hold.uid] = status

    def tidy(self) -> None:
        """Forgets Holds that are gone."""
        there = {hold.uid for holds in self._table.holds.values() for hold in holds.values()}
        self._told = {uid: status for uid, status in self._told.items() if uid in there}
