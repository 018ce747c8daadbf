"""Publishes facts and events, and returns when the stream has them."""

import asyncio
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from types import MappingProxyType

import msgspec

from lockstep.base.clock import monotonic
from lockstep.base.errors import Reject, Retry
from lockstep.bus.acks import Acks, Answer
from lockstep.bus.connection import NO_MESSAGE, WRONG_LAST_SEQUENCE, ApiError, Connection
from lockstep.bus.envelope import EXPECTED_SEQUENCE, Message, Unknown, pack_event, pack_fact, unpack_fact
from lockstep.bus.keeper import STUCK_AFTER_S, Claim
from lockstep.contracts.events import Event
from lockstep.contracts.facts import Fact, SourceHealth
from lockstep.contracts.subjects import FACTS, event_subject, fact_subject

ACK_WITHIN_S = 2.0
AGAIN_AFTER_S = 0.2
WINDOW = 1_000
"""Messages that wait for their acknowledgement at the same time."""
_NONE: Mapping[str, str] = MappingProxyType({})

Sending = Callable[[str, str], AbstractContextManager[str]]
"""`sending(subject, traceparent)` around the sending of one message; gives the traceparent that goes with it."""


class _Said(msgspec.Struct):
    """What we last said of a subject and why, and (0: not known) the sequence at which the stream has it."""

    fact: Fact
    news: Fact
    sequence: int = 0
    cause: str = ""


class Publisher:
    """Publishes for one service. Facts keep their order; an unchanged fact is not sent again.

    Two facts are the same when they differ in `epoch` and `read_at` only: freshness is the heartbeat's. Events about
    one worker (or node, or source) are in the stream in the order in which they were given, whatever is lost on the
    way; those about different ones may overtake each other when NATS fails in between.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        source: str,
        epoch: int = 0,
        may_act: Callable[[], bool] = lambda: True,
        sending: Sending = lambda _subject, traceparent: nullcontext(traceparent),
        patience_s: float = 15.0,
        on_doubt: Callable[[str], None] = lambda _: None,
        on_event: Callable[[Event], None] = lambda _: None,
    ) -> None:
        """Opens nothing.

        Args:
            connection: where to.
            source: who we are, for `ce-source`.
            epoch: written into each fact that has none.
            may_act: asked before anything is sent; when it says no, nothing is.
            sending: around the sending of each message.
            patience_s: for one call, until it raises Retry.
            on_doubt: called when an error may mean a lost stream, or with what was lost; see `StreamKeeper.look`.
            on_event: called with each event that the stream has.
        """
        self._connection = connection
        self._acks = Acks(connection.client)
        self._source = source
        self._epoch = epoch
        self._may_act = may_act
        self._sending = sending
        self._patience_s = patience_s
        self._on_doubt = on_doubt
        self._on_event = on_event
        self._said: dict[str, _Said] = {}
        self._turn = asyncio.Lock()
        self._events_turn = asyncio.Lock()
        self.claim: Claim | None = None
        """The newest message of ours that the stream of facts has acknowledged."""
        self._stuck_since: dict[str, float] = {}
        """Per kind of messages, when the first was not stored of those that are tried ever since."""

    @property
    def stuck_for_s(self) -> float:
        """For how long NATS has stored no fact or no event of ours, though it is there; 0 while all is well."""
        return monotonic() - min(self._stuck_since.values()) if self._stuck_since else 0.0

    def known(self, facts: Iterable[Fact], cause_of: Callable[[Fact], str] = lambda _: "") -> None:
        """Takes what the stream already says of this source, so that only differences are sent. At start, once."""
        for fact in facts:
            self._said.setdefault(fact_subject(fact), _Said(fact, _news(fact), cause=cause_of(fact)))

    async def fact(self, fact: Fact) -> bool:
        """Publishes one fact; see `facts`. Whether it was news."""
        return await self.facts([fact]) == 1

    async def facts(
        self, facts: Iterable[Fact], traces: Mapping[str, str] = _NONE, causes: Mapping[str, str] = _NONE
    ) -> int:
        """Publishes those that are news, all at once, and returns how many when the stream has them.

        `traces` says per subject in which trace a fact arose, where it is not the current one; `causes` the event
        because of which it is as it is. A fact without a cause keeps the last of its subject, and another cause alone
        is no news.

        Raises:
            Retry: NATS did not take some of them in time. Those that it has are not sent again by the next call.
            Reject: another instance with a higher epoch writes these facts; this one must stop.
        """
        async with self._turn:
            newest = {fact_subject(fact): self._stamped(fact) for fact in facts}
            news = {subject: fact for subject, fact in newest.items() if self._is_news(subject, fact)}
            with ExitStack() as sent:
                go_with = {s: sent.enter_context(self._sending(s, traces.get(s, ""))) for s in news}
                await self._send_facts(news, go_with, causes)
            return len(news)

    async def event(self, event: Event) -> None:
        """Publishes one event; see `events`."""
        await self.events([event])

    async def events(self, events: Iterable[Event], traces: Mapping[str, str] = _NONE) -> None:
        """Publishes events and returns when the stream has them. The same id is stored once.

        Sent together are only events about different things: the next about the same is sent when the one before it
        was acknowledged.

        `traces` says per id in which trace an event arose, where it is not the current one.

        Raises:
            Retry: NATS did not take some of them in time; sending all of them again is right.
        """
        events = list(events)
        async with self._events_turn:
            deadline = monotonic() + self._patience_s
            with ExitStack() as sent:
                packed = []
                for event in events:
                    traceparent = sent.enter_context(self._sending(event_subject(event), traces.get(event.id, "")))
                    packed.append(pack_event(event, self._source, traceparent))
                for wave in _waves(events, packed):
                    waiting = wave
                    while waiting:
                        waiting = [m for m, got in await self._attempt(waiting, deadline) if isinstance(got, Retry)]
        for event in events:
            self._on_event(event)

    async def republish(self) -> int:
        """Says everything anew, after facts were lost. Returns how many facts that is.

        No source is said to be complete: the stream may hold things again that are gone. The next reading tells.
        """
        self.claim = None
        async with self._turn:
            for said in self._said.values():
                said.sequence = 0
            incomplete = {subject: _incomplete(said.fact) for subject, said in self._said.items()}
            await self._send_facts(incomplete, _NONE, _NONE)
            return len(self._said)

    def _stamped(self, fact: Fact) -> Fact:
        return fact if fact.epoch or not self._epoch else msgspec.structs.replace(fact, epoch=self._epoch)

    def _is_news(self, subject: str, fact: Fact) -> bool:
        said = self._said.get(subject)
        return said is None or said.news != _news(fact)

    async def _send_facts(self, facts: dict[str, Fact], traces: Mapping[str, str], causes: Mapping[str, str]) -> None:
        deadline = monotonic() + self._patience_s
        because = {subject: causes.get(subject) or self._cause(subject) for subject in facts}
        waiting = {s: pack_fact(fact, self._source, traces.get(s, ""), because[s]) for s, fact in facts.items()}
        while waiting:
            for subject, message in waiting.items():
                if (said := self._said.get(subject)) and said.sequence:
                    message.headers[EXPECTED_SEQUENCE] = str(said.sequence)
                else:
                    message.headers.pop(EXPECTED_SEQUENCE, None)
            for message, answer in await self._attempt(list(waiting.values()), deadline):
                subject = message.subject
                if isinstance(answer, int):
                    self._remember(subject, facts[subject], answer, because[subject])
                    del waiting[subject]
                elif _lost_race(answer) and await self._is_there(subject, facts[subject], because[subject]):
                    del waiting[subject]

    def _cause(self, subject: str) -> str:
        said = self._said.get(subject)
        return said.cause if said else ""

    def _remember(self, subject: str, fact: Fact, sequence: int, cause: str) -> None:
        if self.claim is None or sequence > self.claim.sequence:
            self.claim = Claim(subject, sequence, stands=not fact.gone)
        if fact.gone:
            self._said.pop(subject, None)
        else:
            self._said[subject] = _Said(fact, _news(fact), sequence, cause)

    async def _is_there(self, subject: str, fact: Fact, cause: str) -> bool:
        """Looks who wrote a subject since we did.

        It was we ourselves (the acknowledgement was lost): fine. It was a predecessor: we write over it. It was our
        successor: we are no longer the one who may.
        """
        try:
            answer = await self._connection.call(f"STREAM.MSG.GET.{FACTS.name}", {"last_by_subj": subject})
        except ApiError as e:
            if e.err_code != NO_MESSAGE:
                raise
            self._doubt(self._said.pop(subject, None), 0)
            return False
        there = unpack_fact(b64decode(answer["message"]["data"]))
        sequence = int(answer["message"]["seq"])
        self._doubt(self._said.get(subject), sequence)
        if isinstance(there, Unknown):
            there = fact
        if there.epoch > fact.epoch:
            raise Reject(f"{subject} is written by an instance with epoch {there.epoch}; ours is {fact.epoch}")
        if there == fact:
            self._remember(subject, fact, sequence, cause)
            return True
        self._said[subject] = _Said(there, _news(there), sequence, cause)
        return False

    def _doubt(self, said: _Said | None, there: int) -> None:
        """The stream has an older message than the one it acknowledged to us, or none."""
        if said is not None and there < said.sequence:
            self._on_doubt(f"message {said.sequence}, which was acknowledged, is missing")

    async def _attempt(self, messages: list[Message], deadline: float) -> list[tuple[Message, Answer]]:
        """Sends each message once; its sequence, or why it is to be sent again.

        Raises:
            Retry: some were not acknowledged, and the deadline is over.
            Reject: a message is larger than NATS takes, or we may not act.
        """
        if not self._may_act():
            raise Reject("nothing is published: the lease may have run out")
        for message in messages:
            if len(message.body) > self._connection.client.max_payload:
                raise Reject(f"{message.subject}: {len(message.body)} bytes are more than NATS takes")
        answers: list[Answer] = []
        try:
            await self._connection.wait_up(max(deadline - monotonic(), 0.01))
            for start in range(0, len(messages), WINDOW):
                answers += await self._acks.send(messages[start : start + WINDOW], ACK_WITHIN_S)
        except Retry:
            if monotonic() >= deadline:
                raise
        answers += [Retry("not sent")] * (len(messages) - len(answers))
        failures = [a for a in answers if isinstance(a, Retry) and not _lost_race(a)]
        self._note(messages, failures)
        if failures:
            if monotonic() >= deadline:
                raise failures[0]
            self._on_doubt("")
            await asyncio.sleep(AGAIN_AFTER_S)
        return list(zip(messages, answers, strict=True))

    def _note(self, messages: list[Message], failures: list[Retry]) -> None:
        """An outage of NATS itself does not count, unless it ends one of this kind: the server may be restarted."""
        kind = messages[0].subject.split(".")[1] if messages else ""
        is_away = not self._connection.up.is_set() and self.stuck_for_s < STUCK_AFTER_S
        if not failures or is_away:
            self._stuck_since.pop(kind, None)
        else:
            self._stuck_since.setdefault(kind, monotonic())


def _waves(events: Iterable[Event], messages: Iterable[Message]) -> list[list[Message]]:
    """The messages of the first event about each thing, then of the second about each, and so on."""
    waves: list[list[Message]] = []
    counts = Counter[tuple[str, str]]()
    for event, message in zip(events, messages, strict=True):
        about = (event.scope, event.identity)
        if counts[about] == len(waves):
            waves.append([])
        waves[counts[about]].append(message)
        counts[about] += 1
    return waves


def _incomplete(fact: Fact) -> Fact:
    return msgspec.structs.replace(fact, complete_as_of=None) if isinstance(fact, SourceHealth) else fact


def _lost_race(answer: Retry) -> bool:
    """The subject holds another message than the one we wrote last."""
    return isinstance(answer, ApiError) and answer.err_code == WRONG_LAST_SEQUENCE


def _news(fact: Fact) -> Fact:
    """What makes a fact worth sending."""
    return msgspec.structs.replace(fact, epoch=0, read_at=None)
