"""Turns: bounded, by rank, and none is lost."""

import asyncio

from lockstep.reconciler.turns import Turns


class Crowd:
    """Tasks that take a turn each, told apart by a name."""

    def __init__(self, turns: Turns, group: asyncio.TaskGroup) -> None:
        self.turns, self.group = turns, group
        self.order: list[str] = []
        self.inside = 0
        self.most = 0

    def come(self, name: str, rank: int) -> "asyncio.Task[None]":
        """Somebody comes and asks for a turn."""
        return self.group.create_task(self._take(name, rank))

    async def _take(self, name: str, rank: int) -> None:
        async with self.turns.turn(rank):
            self.order.append(name)
            self.inside += 1
            self.most = max(self.most, self.inside)
            await asyncio.sleep(0)
            self.inside -= 1


async def test_the_lowest_rank_goes_first() -> None:
    """Who waits is let in by rank, and within a rank in the order of coming."""
    async with asyncio.TaskGroup() as group:
        crowd = Crowd(Turns(1), group)
        for name, rank in (("first", 9), ("shown", 2), ("shown later", 2), ("protected", 0)):
            crowd.come(name, rank)
    assert crowd.order == ["first", "protected", "shown", "shown later"]


async def test_no_more_at_the_same_time() -> None:
    """There are never more inside than there are turns, and as many as that if they want."""
    async with asyncio.TaskGroup() as group:
        crowd = Crowd(Turns(3), group)
        for number in range(20):
            crowd.come(str(number), number % 4)
    assert crowd.most == 3
    assert len(crowd.order) == 20


async def test_a_turn_of_somebody_who_left_is_passed_on() -> None:
    """Cancelled while waiting, or in the moment of being let in: the next one comes in all the same."""
    turns = Turns(1)
    async with asyncio.TaskGroup() as group:
        crowd = Crowd(turns, group)
        async with turns.turn(0):
            leaves, leaves_late = crowd.come("leaves", 0), crowd.come("leaves late", 0)
            crowd.come("stays", 1)
            await asyncio.sleep(0)
            leaves.cancel()
        leaves_late.cancel()
    assert crowd.order == ["stays"]
    async with asyncio.timeout(30), turns.turn(5):
        pass
