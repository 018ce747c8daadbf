"""The envelope: CloudEvents headers around a JSON body."""

from datetime import UTC, datetime

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from lockstep.bus.envelope import (
    MAX_CAUSE,
    Unknown,
    cause_of,
    pack_event,
    pack_fact,
    traceparent_of,
    unpack_event,
    unpack_fact,
)
from lockstep.contracts.events import GapFound
from lockstep.contracts.facts import SlurmNode

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_an_event_carries_its_id_and_the_trace() -> None:
    """The id is both CloudEvents' and NATS' own, so that the server stores it once."""
    message = pack_event(GapFound(id="g-1", at=AT, where="feed"), "drain", TRACE)
    assert message.subject == "lockstep.event.fleet.gap-found.v1._site.feed"
    assert message.headers == {
        "ce-specversion": "1.0",
        "ce-id": "g-1",
        "ce-type": "fleet.gap-found.v1",
        "ce-source": "lockstep/drain",
        "ce-subject": "_site/feed",
        "ce-time": "2026-01-02T03:04:05+00:00",
        "ce-datacontenttype": "application/json",
        "content-type": "application/json",
        "Nats-Msg-Id": "g-1",
        "traceparent": TRACE,
    }
    assert traceparent_of(message.headers) == TRACE
    assert unpack_event(message.body) == GapFound(id="g-1", at=AT, where="feed")


def test_a_fact_has_no_message_id_and_what_is_gone_ends_by_itself() -> None:
    """A state that comes back is news; a tombstone is not kept for ever."""
    fact = SlurmNode(cluster="main", name="gpu.1", base="IDLE", read_at=AT)
    message = pack_fact(fact, "slurm-poller")
    assert message.subject == "lockstep.fact.slurm.node.main.gpu_2e1"
    assert "Nats-Msg-Id" not in message.headers
    assert "Nats-TTL" not in message.headers
    gone = pack_fact(msgspec.structs.replace(fact, gone=True), "slurm-poller")
    assert gone.headers["Nats-TTL"] == "86400"
    assert unpack_fact(message.body) == fact


def test_a_fact_carries_the_event_because_of_which_it_is_so() -> None:
    """One line, whatever the event is about; nothing where it is not known."""
    fact = SlurmNode(cluster="main", name="a", base="IDLE")
    cause = "n-1:8:condition:Größe 100%"
    headers = pack_fact(fact, "pod-watcher", cause=cause).headers
    assert headers["lockstep-cause"].isascii()
    assert cause_of(headers) == cause
    assert "lockstep-cause" not in pack_fact(fact, "pod-watcher").headers
    assert (cause_of(None), cause_of({}), cause_of({"lockstep-cause": "a%0Ab"})) == ("", "", "a b")
    assert len(cause_of({"lockstep-cause": "x" * 9_000})) == MAX_CAUSE


def test_the_same_fact_has_the_same_id_and_another_has_another() -> None:
    """CloudEvents asks for it."""
    one = SlurmNode(cluster="main", name="a", base="IDLE")
    other = SlurmNode(cluster="main", name="a", base="DOWN")
    ids = [pack_fact(fact, "x").headers["ce-id"] for fact in (one, one, other)]
    assert ids[0] == ids[1] != ids[2]


@given(st.text(max_size=40))
def test_no_text_breaks_out_of_a_header(text: str) -> None:
    """Names and ids come from outside: what is not printable ASCII is percent-encoded."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return
    message = pack_event(GapFound(id=text, at=AT, where=text), "drain")
    for value in message.headers.values():
        assert value.isascii()
        assert value.isprintable()


def test_a_newer_kind_is_unknown_by_its_name() -> None:
    """So that it can be counted and told once."""
    assert unpack_fact(b'{"kind":"slurm.switch","name":"s"}') == Unknown("slurm.switch", "a newer kind")
    assert unpack_event(b'{"type":"hold.placed.v2"}') == Unknown("hold.placed.v2", "a newer kind")


def test_fields_of_a_newer_version_are_passed_over() -> None:
    """New fields have defaults; old readers ignore them."""
    body = b'{"kind":"slurm.node","cluster":"main","name":"a","base":"IDLE","colour":"red"}'
    assert unpack_fact(body) == SlurmNode(cluster="main", name="a", base="IDLE")


@given(st.binary(max_size=200))
def test_no_body_makes_the_reader_fail(body: bytes) -> None:
    """Whatever arrives is a message or unknown."""
    assert isinstance(unpack_fact(body), Unknown | SlurmNode)
    assert isinstance(unpack_event(body), Unknown | GapFound)


def test_a_broken_body_says_why_in_a_bounded_line() -> None:
    """The text is data."""
    unknown = unpack_fact(b'{"kind":"slurm.node","cluster":"main","name":7,"base":"IDLE"}')
    assert isinstance(unknown, Unknown)
    assert unknown.type == "slurm.node"
    assert "name" in unknown.why
    broken = unpack_fact(b'{"kind":"' + b"\\n" * 500 + b'"}')
    assert isinstance(broken, Unknown)
    assert len(broken.type) <= 80
    assert "\n" not in broken.type
