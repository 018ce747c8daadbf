"""A consumer of a watch that keeps what it was told, and knows from that what there is."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any

from lockstep.kube.port import Delta


class Follower:
    """What one watch told."""

    def __init__(self) -> None:
        self.deltas: list[Delta[Any]] = []
        self.there: dict[str, Any] = {}
        """Name and last version of what there is."""
        self._grown = asyncio.Condition()

    async def follow(self, watch: AsyncGenerator[Delta[Any], None]) -> None:
        """Read it for ever."""
        async with aclosing(watch):
            async for delta in watch:
                self.deltas.append(delta)
                if delta.kind == "changed" and delta.after is not None:
                    known = self.there.get(delta.after.metadata.name)
                    assert known == delta.before, "before is what was told last"
                    self.there[delta.after.metadata.name] = delta.after
                elif delta.kind == "gone" and delta.before is not None:
                    assert delta.before.metadata.name in self.there, "only what was told can go"
                    del self.there[delta.before.metadata.name]
                async with self._grown:
                    self._grown.notify_all()

    async def until(self, true: Callable[["Follower"], bool], *, within_s: float = 5.0) -> None:
        """Wait until this is true of what was told."""
        try:
            async with asyncio.timeout(within_s), self._grown:
                await self._grown.wait_for(lambda: true(self))
        except TimeoutError:
            raise AssertionError(f"not told in {within_s} s; told so far: {self.deltas[-8:]}") from None

    def kinds(self) -> list[str]:
        """The kinds of what was told, in order."""
        return [d.kind for d in self.deltas]

    @property
    def names(self) -> set[str]:
        """What there is, as told."""
        return set(self.there)

    @property
    def alive(self) -> bool:
        """Whether the watch says that it is complete."""
        marks = [k for k in self.kinds() if k in {"synced", "lost"}]
        return bool(marks) and marks[-1] == "synced"


@asynccontextmanager
async def following(watch: AsyncGenerator[Delta[Any], None]) -> AsyncIterator[Follower]:
    """Follow a watch while the block runs; a watch that ends or raises by itself fails the test."""
    follower = Follower()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(follower.follow(watch))
        yield follower
        assert not task.done(), "a watch never ends by itself"
        task.cancel()
