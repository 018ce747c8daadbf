"""A worker's events as lines of a story: in order, each under what it came about from. Pure.

A *scene* is a stretch of events without a minute of silence. Within one, an event stands under its cause. A cause of an
earlier scene is named in words instead, so that what is told stays in the order of time and little is to be remembered.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime

import msgspec

from lockstep.base.text import one_line
from lockstep.bus.envelope import Unknown
from lockstep.bus.events import EventSeen
from lockstep.cli.moments import lasting
from lockstep.cli.said import Words, by_of, kind_of, together
from lockstep.cli.scene import MAX_CAUSE, Page, Scene, because_of
from lockstep.contracts import events as e
from lockstep.contracts.common import Aware

SCENE_GAP_S = 60
MAX_SCENE = 500
"""Events of one scene that are put in order together."""
MAX_KNOWN = 10_000
"""Events that are remembered as a cause of later ones."""
MAX_TEXT = 400
MAX_ID = 40
NEVER = datetime.fromtimestamp(0, UTC)


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One event as it is told."""

    id: str
    at: Aware
    type: str
    depth: int
    """0: at the margin; 1: under the nearest line above of depth 0; and so on."""
    text: str
    by: str = ""
    """Who did it or whose it is, where the event says so."""
    because: str = ""
    """The cause in words, where it is not among the lines above of this scene. `event` has its id."""
    gap_s: float = 0.0
    """How long it was quiet before, where that is worth a word."""
    traceparent: str = ""
    sequence: int
    event: e.Event | Unknown
    also: list["Line"] = []
    """Other sides of the same thing: a new state of a Slurm node is a new phase, and has a reason. `text` has them."""

    @property
    def all(self) -> list["Line"]:
        """The line and its other sides."""
        return [self, *self.also]


class _Known(msgspec.Struct, frozen=True):
    id: str
    at: datetime
    words: str


class Teller:
    """Takes events in the order of the stream, and gives lines. Each event is told once."""

    def __init__(self) -> None:
        self._words = Words()
        self._scene: dict[str, Page] = {}
        self._known: dict[str, _Known] = {}
        self._path: list[str] = []
        self._last: datetime | None = None
        self.told = 0
        """How many lines there were."""

    def add(self, seen: EventSeen) -> list[Line]:
        """The lines of the scene that this event ends by coming after it."""
        ident = f"sequence {seen.sequence}" if isinstance(seen.event, Unknown) else seen.event.id
        if ident in self._scene or ident in self._known:
            return []
        page = self._page(ident, seen)
        ends = self._scene and (page.at - next(reversed(self._scene.values())).at).total_seconds() > SCENE_GAP_S
        lines = self.flush() if ends or len(self._scene) >= MAX_SCENE else []
        self._scene[ident] = page
        return lines

    def flush(self) -> list[Line]:
        """The lines of what was not told yet, without waiting for the end of the scene."""
        scene, self._scene = sorted(self._scene.values(), key=lambda page: (page.at, page.seen.sequence)), {}
        return list(self._lines(_together(scene))) if scene else []

    def summary(self) -> str:
        """The drains in one sentence; empty when there was none."""
        return self._words.summary()

    def _page(self, ident: str, seen: EventSeen) -> Page:
        event, words = seen.event, one_line(self._words.of(seen), limit=MAX_TEXT)
        if isinstance(event, Unknown):
            return Page(ident, "", seen.at or self._last or NEVER, words, seen)
        return Page(ident, event.cause_id, event.at, words, seen)

    def _lines(self, scene: Sequence[Page]) -> Iterator[Line]:
        gap = (scene[0].at - self._last).total_seconds() if self._last else 0.0
        if gap <= SCENE_GAP_S:
            gap = 0.0
        else:
            self._path = []
        for page, depth, because in self._in_order(scene):
            self.told += 1 + len(page.also)
            line = msgspec.structs.replace(_line(page, depth), because=because, gap_s=gap)
            if page.also:
                events = [each.seen.event for each in (page, *page.also)]
                words = one_line(together(events), limit=MAX_TEXT)
                line = msgspec.structs.replace(line, text=words, also=[_line(each, depth) for each in page.also])
            yield line
            gap = 0.0
        self._last = max(page.at for page in scene)

    def _in_order(self, scene: Sequence[Page]) -> Iterator[tuple[Page, int, str]]:
        """Each event of the scene with its depth and, where it is not under its cause, that in words."""
        for slot in Scene(scene, self._place, self._path).slots:
            self._path[slot.depth :] = [slot.page.id]
            self._remember(slot.page)
            yield slot.page, slot.depth, slot.because

    def _place(self, page: Page, path: Callable[[], list[str]]) -> tuple[int, str]:
        """Depth and cause in words of what came of nothing in its scene; `path` is what it could stand under."""
        if not page.cause:
            return 0, ""
        cause = self._known.get(page.cause)
        if cause is None:
            mine = isinstance(page.seen.event, e.RequestEvent) and page.seen.event.request == page.cause
            return 0, "" if mine else one_line(page.cause, limit=MAX_ID)
        if cause.id in (above := path()):
            return above.index(cause.id) + 1, ""
        return 0, because_of(cause.words, cause.at, page.at)

    def _remember(self, page: Page) -> None:
        known = _Known(page.id, page.at, one_line(page.words, limit=MAX_CAUSE))
        self._known |= dict.fromkeys([page.id, *(each.id for each in page.also)], known)
        if isinstance(page.seen.event, e.RequestEvent):
            self._known.setdefault(page.seen.event.request, known)
        while len(self._known) > MAX_KNOWN:
            del self._known[next(iter(self._known))]


def _line(page: Page, depth: int) -> Line:
    return Line(
        id=page.id,
        at=page.at,
        type=kind_of(page.seen),
        depth=depth,
        text=page.words,
        by=one_line(by_of(page.seen.event), limit=MAX_ID * 2),
        traceparent=page.seen.traceparent,
        sequence=page.seen.sequence,
        event=page.seen.event,
    )


def _together(scene: Iterable[Page]) -> list[Page]:
    """The scene with what one reading says of a Slurm node made one: its state, phase and reason."""
    found: dict[object, Page] = {}
    for page in scene:
        key: object = page.id
        if isinstance(page.seen.event, e.SlurmStateChanged | e.SlurmPhaseChanged | e.SlurmReasonChanged):
            key = (page.at, page.cause)
        first = found.get(key)
        found[key] = page if first is None else msgspec.structs.replace(first, also=(*first.also, page))
    return list(found.values())


def gap_words(line: Line) -> str:
    """`3 h later`; empty where nothing is to be said."""
    return f"{lasting(round(line.gap_s / 60) * 60)} later" if line.gap_s else ""
