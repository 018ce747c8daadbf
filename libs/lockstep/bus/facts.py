"""The facts, all of them and then each change."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import NamedTuple

import structlog

from lockstep.bus.connection import Connection
from lockstep.bus.envelope import Unknown, cause_of, traceparent_of, unpack_fact
from lockstep.bus.ordered import CaughtUp, Missed, OrderedReader, Reset
from lockstep.contracts.facts import Fact
from lockstep.contracts.subjects import FACTS

log = structlog.get_logger()


class FactSeen(NamedTuple):
    """A fact, the trace in which it arose, and the id of the event because of which it is as it is."""

    fact: Fact
    traceparent: str
    sequence: int
    cause: str = ""


class FactFeed:
    """Reads the facts for ever. A fact that this version cannot read is counted, and told once per kind."""

    def __init__(
        self,
        connection: Connection,
        filters: Sequence[str] = (*FACTS.subjects,),
        *,
        on_round: Callable[[], None] = lambda: None,
    ) -> None:
        """Opens nothing. `on_round` is told again and again that this lives."""
        self._reader = OrderedReader(connection, FACTS.name, filters, whole=True, on_round=on_round)
        self._standing: set[int] = set()
        """Hashes of the subjects."""
        self.unknown: dict[str, int] = {}
        """How many messages of each kind could not be read."""

    @property
    def restarts(self) -> int:
        """How often the consumer had to be made anew."""
        return self._reader.restarts

    @property
    def sequence(self) -> int:
        """The sequence of the last message that was taken from the stream; 0: none yet."""
        return self._reader.last

    @property
    def standing(self) -> int:
        """How many facts that stand were told; so many messages the stream must have at least."""
        return len(self._standing)

    def read_anew(self, why: str) -> None:
        """What was told no longer counts; after a `Reset` everything is told again."""
        self._reader.read_anew(why)

    async def items(self) -> AsyncIterator[FactSeen | CaughtUp | Reset]:
        """Facts in the stream's order; `CaughtUp` once after the start and after each `Reset`."""
        async with aclosing(self._reader.items()) as items:  # type: ignore[type-var]
            async for item in items:
                match item:
                    case CaughtUp():
                        yield item
                    case Reset():
                        self._standing.clear()
                        yield item
                    case Missed():
                        continue
                    case _:
                        fact = unpack_fact(item.body)
                        if isinstance(fact, Unknown):
                            self._note(fact, item.subject)
                        else:
                            (self._standing.discard if fact.gone else self._standing.add)(hash(item.subject))
                            yield FactSeen(fact, traceparent_of(item.headers), item.sequence, cause_of(item.headers))

    def _note(self, unknown: Unknown, subject: str) -> None:
        self.unknown[unknown.type] = self.unknown.get(unknown.type, 0) + 1
        if self.unknown[unknown.type] == 1:
            log.warning("Fact cannot be read", kind=unknown.type, subject=subject, error=unknown.why)
