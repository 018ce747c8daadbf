"""The events of one scene of a story, each in its place. Pure."""

from collections.abc import Callable, Sequence
from datetime import datetime

import msgspec

from lockstep.base.text import one_line
from lockstep.bus.events import EventSeen
from lockstep.contracts import events as e

MAX_CAUSE = 80
MOMENT_S = 1.0
"""So little disorder is not worth a word: services tell what happened at the same time one after the other."""


class Page(msgspec.Struct, frozen=True):
    """An event with what it needs to be told."""

    id: str
    cause: str
    at: datetime
    words: str
    seen: EventSeen
    also: tuple["Page", ...] = ()


Place = Callable[[Page, Callable[[], list[str]]], tuple[int, str]]
"""Depth and cause in words of an event, from the ids of the lines that it could stand under."""


class Slot(msgspec.Struct, eq=False):
    """An event in its place. `because` names its cause where it does not stand under it."""

    page: Page
    depth: int
    because: str = ""


class Scene:
    """The events of a scene in their places: in the order of time, but each behind what came of the same cause.

    Where that would put an event before others that are older by more than a moment, it stays at its time, and its
    cause is named. So a reader never goes back in time, and always sees of what an event came.
    """

    def __init__(self, scene: Sequence[Page], place: Place, path: Sequence[str]) -> None:
        """`place` is asked where no cause is in the scene; `path` is what its first line could stand under."""
        self.slots: list[Slot] = []
        self._place = place
        self._above = list(path)
        self._placed: dict[str, Slot] = {}
        self._pages = {page.id: page for page in scene} | {each.id: page for page in scene for each in page.also}
        for page in scene:
            if isinstance(page.seen.event, e.RequestEvent):
                self._pages.setdefault(page.seen.event.request, page)
        for page in scene:
            self._put(page, set())

    def _put(self, page: Page, waiting: set[str]) -> None:
        """Puts an event in its place, its cause first; a cause that waits for this very event is none."""
        if page.id in self._placed:
            return
        cause = self._pages.get(page.cause)
        if cause is not None and cause.id not in self._placed and cause.id not in waiting | {page.id}:
            self._put(cause, waiting | {page.id})
        slot = self._placed.get(cause.id) if cause is not None else None
        at = len(self.slots)
        if slot is None:
            found = Slot(page, *self._place(page, self._path))
        else:
            behind = self._behind(slot)
            if all((page.at - later.page.at).total_seconds() <= MOMENT_S for later in self.slots[behind:]):
                at, found = behind, Slot(page, slot.depth + 1)
            else:
                last = self.slots[-1]
                depth = min(slot.depth, last.depth) + 1 if self._root_of(slot) is self._root_of(last) else 0
                found = Slot(page, depth, because_of(slot.page.words, slot.page.at, page.at))
        self.slots.insert(at, found)
        self._placed[page.id] = found

    def _behind(self, slot: Slot) -> int:
        """Where the next event that came of this one belongs."""
        at = self.slots.index(slot) + 1
        while at < len(self.slots) and self.slots[at].depth > slot.depth:
            at += 1
        return at

    def _root_of(self, slot: Slot) -> Slot:
        at = self.slots.index(slot)
        while at and self.slots[at].depth:
            at -= 1
        return self.slots[at]

    def _path(self) -> list[str]:
        """What the next line could stand under."""
        path = list(self._above)
        for slot in self.slots:
            path[slot.depth :] = [slot.page.id]
        return path


def because_of(words: str, when: datetime, at: datetime) -> str:
    """A cause in words, for an event at `at`."""
    day = "" if when.date() == at.date() else f"{when:%Y-%m-%d} "
    return f"{one_line(words, limit=MAX_CAUSE)} ({day}{when:%H:%M:%S})"
