"""What tests ask of a list of events: which kinds, in which order, and what each came from."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

Event = dict[str, Any]


class Chains:
    """Events as `lockstep events -o json` writes them, in the stream's order."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.events = list(events)
        self._by_id: Mapping[str, Event] = {event["id"]: event for event in self.events}
        assert len(self._by_id) == len(self.events), "an event was told twice"

    def about(self, worker: str, host: str) -> list[Event]:
        """Those about a worker, the node under it, and the jobs on it."""
        return [e for e in self.events if _is_about(e, worker, host)]

    def causes(self, event: Event) -> list[str]:
        """The kinds from an event back to what began it all."""
        return [kind_of(each) for each in self._back(event)]

    def _back(self, event: Event | None) -> Iterator[Event]:
        while event is not None:
            yield event
            event = self._by_id.get(event.get("cause_id", ""))

    def check_order(self) -> None:
        """Fails where an event is told before the one that it came from, or came from one that nobody told."""
        told: set[str] = set()
        for event in self.events:
            assert event.get("cause_id", "") in told | {""}, event
            told.add(event["id"])


def kind_of(event: Event) -> str:
    """Such as `drain.started`."""
    return str(event["type"]).removesuffix(".v1")


def named(events: Iterable[Event], *kinds: str) -> list[Event]:
    """Those of these kinds; `drain` is all of `drain.*`."""
    return [e for e in events if kind_of(e) in kinds or kind_of(e).split(".")[0] in kinds]


def only(events: Iterable[Event], kinds: Collection[str]) -> list[str]:
    """The kinds of these events that are among `kinds`, in order."""
    return [kind_of(event) for event in events if kind_of(event) in kinds]


def turns(events: Iterable[Event]) -> list[str]:
    """From the first `before` through every `after`; each event must take up where the one before has left off."""
    found: list[str] = []
    for event in events:
        found = found or [event["before"]]
        assert event["before"] == found[-1], (found, event)
        found.append(event["after"])
    return found


def _is_about(event: Event, worker: str, host: str) -> bool:
    return worker in (event.get("worker", {}).get("name"), *event.get("nodes", [])) or event.get("node") == host


CORDONED = ("drain.started", "hold.placed", "node.cordoned")
UNCORDONED = ("drain.ended", "hold.released", "node.uncordoned")


def check_cordon_and_uncordon(chains: Chains, events: list[Event], job: int) -> None:
    """Fails unless these tell of one cordon, of one job that was cancelled then, and of one uncordon.

    Each step once, with before and after, and back to a person. The pod is let go on the reconciler's own proof, which
    may be told a moment before the drain's.
    """
    steps = [
        *("node.cordoned", "hold.placed", "drain.started", "worker.drain-set", "job.ended", "drain.drained"),
        *("node.uncordoned", "hold.released", "drain.ended", "worker.protected", "worker.drain-lifted"),
    ]
    assert only(events, steps) == steps
    let_go = ["job.ended", "worker.unprotected", "node.uncordoned"]
    assert only(events, let_go) == let_go
    assert turns(named(events, "slurm-node.phase-changed")) == ["busy", "draining", "drained", "idle"]
    states = turns(named(events, "slurm-node.state-changed"))
    assert ("DRAIN" in states[0], "DRAIN" in states[1], "DRAIN" in states[-1]) == (False, True, False)
    reasons = turns(named(events, "slurm-node.reason-changed"))
    assert [bool(reason) for reason in reasons] == [False, True, False]
    drain = turns(e for e in named(events, "drain") if e["before"] != e["after"])
    assert (drain[0], drain[-2:]) == ("none", ["drained", "none"])
    (ended,) = named(events, "job")
    assert (kind_of(ended), ended["job_id"], ended["node_count"], ended["states"][:1]) == (
        *("job.ended", job, 1),
        ["CANCELLED"],
    )
    _check_causes(chains, events)


def _check_causes(chains: Chains, events: list[Event]) -> None:
    (drain_set,), (drained,), (let_go,), (lifted,) = (
        named(events, kind)
        for kind in ("worker.drain-set", "drain.drained", "worker.unprotected", "worker.drain-lifted")
    )
    assert chains.causes(drain_set) == ["worker.drain-set", *CORDONED]
    until = events.index(drained)
    shown = named(events[:until], "slurm-node.state-changed", "slurm-node.reason-changed", "slurm-node.phase-changed")
    for event in shown:
        assert chains.causes(event)[-3:] == list(CORDONED), event
    assert chains.causes(shown[-1])[1:] == ["worker.drain-set", *CORDONED]
    assert chains.causes(drained)[1:] == ["slurm-node.state-changed", "worker.drain-set", *CORDONED]
    assert chains.causes(let_go)[-3:] == list(CORDONED)
    assert chains.causes(lifted) == ["worker.drain-lifted", *UNCORDONED]
    for event in named(events, "slurm-node.state-changed", "slurm-node.phase-changed")[-1:]:
        assert chains.causes(event)[1:] == ["worker.drain-lifted", *UNCORDONED], event
