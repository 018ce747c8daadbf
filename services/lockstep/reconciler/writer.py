"""Writes to one Slurm cluster: gathers what is due within milliseconds, reads before it writes, sends in bulk.

Slurm has no compare-and-set, and a DRAIN over somebody's DRAIN silently replaces her reason (Slurm 26.05, seen). So
each write reads its nodes right before, and leaves alone what changed since it was decided.
"""

import asyncio
from collections.abc import Iterable
from datetime import datetime
from functools import partial
from typing import NamedTuple

from lockstep.base import clock
from lockstep.base.errors import Retry
from lockstep.contracts.facts import SlurmNode
from lockstep.fleet.flows import others
from lockstep.fleet.holds import is_foreign
from lockstep.runtime.tracing import current_traceparent, link, span
from lockstep.slurm import again, states
from lockstep.slurm.errors import NoSuchNode, SlurmError
from lockstep.slurm.port import Outcome, SlurmApi

SINGLE_READS = 32
"""Up to so many nodes are read one by one before a write, 2 to 4 ms each; more by one list of all, which takes 0.1 s
where there are a thousand."""


class Answer(NamedTuple):
    """Slurm answered at `at`. `wrote` is False when the node was already as wanted."""

    at: datetime
    wrote: bool


class _Wish(NamedTuple):
    """`words` for DRAIN; None for UNDRAIN."""

    name: str
    words: str | None
    answer: "asyncio.Future[Answer]"
    traceparent: str
    sent: list[str]
    """The trace of the batch in which it was sent."""


class SlurmWriter:
    """Serialises and gathers the writes to one cluster. `run` must be running for the others to be answered."""

    def __init__(self, slurm: SlurmApi, *, gather_s: float = 0.001) -> None:
        self._slurm = slurm
        self._gather_s = gather_s
        self._wishes: list[_Wish] = []
        self._wake = asyncio.Event()
        self._ended = False

    async def drain(self, name: str, words: str) -> Answer:
        """Set DRAIN with `words`, unless somebody else has drained the node meanwhile.

        Raises:
            Retry: the node is no longer what the decision was made on; look again.
            SlurmError: Slurm refused, or did not answer and may have done it: read before trying again.
        """
        return await self._wish(name, words)

    async def undrain(self, name: str) -> Answer:
        """Lift our own DRAIN; raises as `drain`."""
        return await self._wish(name, None)

    async def run(self) -> None:
        """Send batches for ever, one at a time. Whoever waits when this ends is told, and so is who comes later."""
        sent: list[_Wish] = []
        try:
            while True:
                await self._wake.wait()
                await asyncio.sleep(self._gather_s)
                self._wake.clear()
                sent, self._wishes = self._wishes, []
                await self._send_traced(sent)
        finally:
            self._ended = True
            _fail([*sent, *self._wishes], Retry("the write was interrupted"))

    async def _wish(self, name: str, words: str | None) -> Answer:
        if self._ended:
            raise Retry("nothing is written any more")
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        wish = _Wish(name, words, answer, current_traceparent(), [])
        self._wishes.append(wish)
        self._wake.set()
        try:
            return await answer
        finally:
            for traceparent in others(wish.traceparent, wish.sent):
                link(traceparent)

    async def _send_traced(self, wishes: list[_Wish]) -> None:
        """A batch is a part of the first flow that waits for it; it links to the others, and they to it."""
        traces = list(filter(None, (wish.traceparent for wish in wishes)))
        if not traces:
            await self._send(wishes)
            return
        links = others(traces[0], traces)
        with span("write to Slurm", parent=traces[0], links=links, attributes={"lockstep.count": len(wishes)}):
            for wish in wishes:
                wish.sent.append(current_traceparent())
            await self._send(wishes)

    async def _send(self, wishes: list[_Wish]) -> None:
        """One group after the other, each read right before it is written: a write takes milliseconds."""
        groups: dict[str | None, list[_Wish]] = {}
        for wish in wishes:
            groups.setdefault(wish.words, []).append(wish)
        try:
            for words, group in groups.items():
                await self._send_group(words, group)
        except SlurmError as error:  # who cannot be read now is not asked again for each group
            _fail(wishes, error)

    async def _send_group(self, words: str | None, group: list[_Wish]) -> None:
        found = await self._read({wish.name for wish in group})
        read_at = clock.now()
        due = []
        for wish in group:
            verdict = _verdict(found.get(wish.name), words)
            if verdict is None:
                due.append(wish)
            elif isinstance(verdict, Exception):
                _set(wish, verdict)
            else:
                _set(wish, Answer(read_at, wrote=False))
        if due:
            await self._post(words, due)

    async def _read(self, names: set[str]) -> dict[str, SlurmNode]:
        if len(names) > SINGLE_READS:
            listed = await again.read(self._slurm.nodes)
            return {node.name: node for node in listed.nodes if node.name in names} if listed else {}
        each = await asyncio.gather(*(self._one(name) for name in names))
        return {node.name: node for node in each if node is not None}

    async def _one(self, name: str) -> SlurmNode | None:
        try:
            return await again.read(partial(self._slurm.node, name))
        except NoSuchNode:
            return None

    async def _post(self, words: str | None, group: list[_Wish]) -> None:
        names = [wish.name for wish in group]
        post = partial(self._slurm.undrain, names) if words is None else partial(self._slurm.drain, names, words)
        try:
            outcome: Outcome = await again.write(post)
        except SlurmError as error:
            _fail(group, error)
            return
        answer = Answer(clock.now(), wrote=True)
        for wish in group:
            _set(wish, outcome.failed.get(wish.name, answer))


def _verdict(node: SlurmNode | None, words: str | None) -> bool | Exception | None:
    """None: write. True: it is so already. An error: it is not what the decision was made on."""
    if node is None:
        return Retry("Slurm does not know the node")
    drain = states.is_drain(node.base, node.flags)
    if words is None and not drain:
        return True
    if is_foreign(node):
        return Retry(f"somebody else keeps it out: {node.reason or 'no reason given'}")
    return True if drain and node.reason == words else None


def _fail(wishes: Iterable[_Wish], error: Exception) -> None:
    for wish in wishes:
        _set(wish, error)


def _set(wish: _Wish, result: Answer | Exception) -> None:
    if wish.answer.done():
        return
    if isinstance(result, Exception):
        wish.answer.set_exception(result)
    else:
        wish.answer.set_result(result)
