"""What changed for each worker between two moments, from the events between and after them. Pure.

Events that change a value tell it before and after. So a value *then* is the `before` of the first change since, and a
value *now* the `after` of the last one. Where they do not fit together, events are missing, and `unknown` is said.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta

import msgspec

from lockstep.contracts import events as e
from lockstep.contracts.common import Aware, WorkerKey
from lockstep.contracts.facts import HoldView
from lockstep.contracts.subjects import tag_of

UNKNOWN = "unknown: events are missing"
UNREAD = "unknown: not read then"
TYPES = (
    *(e.SlurmPhaseChanged, e.SlurmReasonChanged),
    *(e.HoldPlaced, e.ForeignDrainRespected, e.HoldReleased, e.HoldExpired),
    *(e.DrainStarted, e.DrainWaiting, e.DrainOverdue, e.DrainDone, e.DrainCancelled, e.DrainEnded),
    *(e.PodCreated, e.PodBound, e.PodReady, e.PodUnready, e.PodTerminating, e.PodFinished, e.PodGone),
    *(e.NodeRebooted, e.SourceLost, e.SourceBack, e.GapFound),
)
TAGS = frozenset(tag_of(kind) for kind in TYPES)
"""The kinds of events that are read."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A value at both moments; empty: there was none."""

    then: str
    now: str


class HoldChange(msgspec.Struct, frozen=True, kw_only=True):
    """A hold that stands at one of the moments only."""

    id: str
    hold_class: str = msgspec.field(name="class")
    owner: str
    reason: str


class WorkerChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is different about one worker."""

    cluster: str
    name: str
    phase: Change | None = None
    drain: Change | None = None
    reason: Change | None = None
    placed: list[HoldChange] = []
    ended: list[HoldChange] = []
    passed: int = 0
    """Holds that came and went between the moments."""
    pod: str = ""
    """`replaced`, `new` or `gone`."""
    reboots: int = 0
    """How often its Kubernetes node came up anew."""

    @property
    def classes(self) -> list[str]:
        """What kinds of things changed."""
        found = {"phase": bool(self.phase), "drain": bool(self.drain), "reason": bool(self.reason)}
        found |= {"holds placed": bool(self.placed), "holds ended": bool(self.ended)}
        found |= {f"pod {self.pod}": bool(self.pod), "node rebooted": bool(self.reboots)}
        return [name for name, changed in found.items() if changed]


class Outage(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch in which a source was not read."""

    source: str
    of: str
    lost: Aware
    back: Aware | None


class _Value:
    """A value whose changes are told one after the other."""

    def __init__(self) -> None:
        self.then: str | None = None
        self.now = ""
        self.sure = True
        self.later = False

    def change(self, before: str, after: str, *, later: bool) -> None:
        """One change; `later` ones, after the second moment, only check what was told."""
        if later:
            if self.then is not None and not self.later:
                self.sure = self.now == before
            self.later = True
            return
        if self.then is None:
            self.then = before
        self.now = after

    def change_between(self, *, read_then: bool = True, read_now: bool = True) -> Change | None:
        """The change that remains; None where there is none."""
        if self.then is None:
            return None
        then = self.then if read_then else UNREAD
        now = (self.now if self.sure else UNKNOWN) if read_now else UNREAD
        return Change(then=then, now=now) if then != now else None


class _Track:
    """What is told of one worker."""

    def __init__(self) -> None:
        self.phase, self.drain, self.reason = _Value(), _Value(), _Value()
        self.stood: dict[str, bool] = {}
        self.stands: dict[str, bool] = {}
        self.views: dict[str, HoldView] = {}
        self.pods_then: set[str] = set()
        self.pods_now: dict[str, bool] = {}
        self.reboots = 0

    def hold(self, view: HoldView, *, stands: bool) -> None:
        """A hold was placed or ended."""
        self.stood.setdefault(view.id, not stands)
        self.stands[view.id] = stands
        self.views[view.id] = view

    def pod(self, event: e.PodEvent) -> None:
        """A pod came, changed or went."""
        if event.uid not in self.pods_now and event.before:
            self.pods_then.add(event.uid)
        self.pods_now[event.uid] = not isinstance(event, e.PodGone)


class Changes:
    """Takes the events from the first moment on, in the order of the stream."""

    def __init__(self, start: datetime, end: datetime, on_node: Mapping[str, Collection[WorkerKey]]) -> None:
        """`on_node` says which workers are on a Kubernetes node, for events that do not say so themselves."""
        self.start, self.end = start, end
        self.outages: list[Outage] = []
        self.gaps: list[str] = []
        self._on_node = on_node
        self._tracks: dict[WorkerKey, _Track] = {}
        self._lost: dict[tuple[str, str], datetime] = {}

    def add(self, event: e.Event, at: datetime) -> None:  # noqa: PLR0912  one case an event
        """One event; `at` is when the stream took it."""
        later = at > self.end
        match event:
            case e.SourceLost():
                self._lost.setdefault((event.source, event.of), event.at)
            case e.SourceBack():
                began = self._lost.pop((event.source, event.of), event.at - timedelta(seconds=event.lost_for_s))
                self.outages.append(Outage(source=event.source, of=event.of, lost=began, back=event.at))
            case e.SlurmPhaseChanged():
                self._of(event).phase.change(event.before, event.after, later=later)
            case e.SlurmReasonChanged():
                self._of(event).reason.change(event.before, event.after, later=later)
            case e.DrainEvent():
                self._of(event).drain.change(event.before.value, event.after.value, later=later)
            case _ if later:
                pass
            case e.HoldPlaced() | e.ForeignDrainRespected():
                self._of(event).hold(event.hold, stands=True)
            case e.HoldReleased() | e.HoldExpired():
                self._of(event).hold(event.hold, stands=False)
            case e.PodEvent():
                self._of(event).pod(event)
            case e.NodeRebooted():
                for key in {worker.key for worker in event.workers} or self._on_node.get(event.node, ()):
                    self._tracks.setdefault(key, _Track()).reboots += 1
            case e.GapFound():
                self.gaps.append(f"{event.at:%Y-%m-%d %H:%M:%SZ} {event.where}: {event.detail}")
            case _:
                pass

    def failing(self, source: str, of: str, since: datetime) -> None:
        """A source is not read now, since then."""
        self._lost.setdefault((source, of), since)

    def unread(self) -> list[Outage]:
        """The outages that cover one of the two moments."""
        still = [Outage(source=s, of=of, lost=at, back=None) for (s, of), at in self._lost.items()]
        return [o for o in [*self.outages, *still] if _covers(o, self.start) or _covers(o, self.end)]

    def workers(self, cluster: str | None = None) -> list[WorkerChange]:
        """What changed, of those workers for which something did."""
        blind_then = {o.of for o in self.unread() if o.source == "slurm.node" and _covers(o, self.start)}
        blind_now = {o.of for o in self.unread() if o.source == "slurm.node" and _covers(o, self.end)}
        found = []
        for (home, name), track in sorted(self._tracks.items()):
            if cluster is not None and home != cluster:
                continue
            read = {"read_then": home not in blind_then, "read_now": home not in blind_now}
            change = WorkerChange(
                cluster=home,
                name=name,
                phase=track.phase.change_between(**read),
                drain=track.drain.change_between(),
                reason=track.reason.change_between(**read),
                placed=_holds(track, stood=False, stands=True),
                ended=_holds(track, stood=True, stands=False),
                passed=len(_holds(track, stood=False, stands=False)),
                pod=_pod(track),
                reboots=track.reboots,
            )
            if change.classes:
                found.append(change)
        return found

    def _of(self, event: e.WorkerEvent) -> _Track:
        return self._tracks.setdefault(event.worker.key, _Track())


def summary(changes: Collection[WorkerChange]) -> str:
    """How many workers changed, and in what: `3 workers changed: phase 2, holds placed 1 (manual 1)`."""
    if not changes:
        return "no worker changed"
    counts = Counter(name for change in changes for name in change.classes)
    inner = {
        "holds placed": Counter(hold.hold_class for change in changes for hold in change.placed),
        "holds ended": Counter(hold.hold_class for change in changes for hold in change.ended),
    }
    parts = []
    for name, count in counts.most_common():
        classes = ", ".join(f"{each} {n}" for each, n in inner.get(name, Counter()).most_common())
        parts.append(f"{name} {count}" + (f" ({classes})" if classes else ""))
    return f"{len(changes)} worker{'s' if len(changes) > 1 else ''} changed: {', '.join(parts)}"


def _covers(outage: Outage, at: datetime) -> bool:
    return outage.lost <= at and (outage.back is None or at < outage.back)


def _holds(track: _Track, *, stood: bool, stands: bool) -> list[HoldChange]:
    return [
        HoldChange(id=v.id, hold_class=v.hold_class.value, owner=v.owner, reason=v.reason)
        for v in track.views.values()
        if track.stood[v.id] is stood and track.stands[v.id] is stands
    ]


def _pod(track: _Track) -> str:
    now = {uid for uid, there in track.pods_now.items() if there}
    if now == track.pods_then:
        return ""
    if not now:
        return "gone"
    return "replaced" if track.pods_then else "new"
