"""Which events are posted, how, and what an answer means."""

import base64
import hashlib
import hmac
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import msgspec
import pytest

from lockstep.bus.envelope import pack_event
from lockstep.bus.ordered import Received
from lockstep.contracts.common import WorkerRef
from lockstep.contracts.events import DrainDone, Event, HoldPlaced, NodeRebooted
from lockstep.contracts.facts import Progress
from lockstep.forward.decide import headers_of, item_of, later, post_of, secret_of, signed, verdict, wants
from lockstep.forward.model import Again, Dead, Item, Off, Post, Taken
from lockstep.runtime.settings import ForwardSettings
from tests.builders import NOW, a_view

REF = WorkerRef(cluster="main", name="gpu-7", kube_node="host-7")
DONE = DrainDone(id="e 1", at=NOW, worker=REF, before=Progress.DRAINING, after=Progress.DRAINED)
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def endpoint(**fields: Any) -> ForwardSettings:
    """An endpoint's settings."""
    return ForwardSettings(name="argo", url="http://127.0.0.1:1/", **fields)


def item(event: Event, trace: str = "") -> Item:
    """An event as the stream gives it."""
    subject, headers, body = pack_event(event, "drain", trace)
    found = item_of(Received(subject, body, headers, 7, NOW))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("filters", "wanted"),
    [
        ({}, True),
        ({"events": ["drain.drained"]}, True),
        ({"events": ["drain.drained.v1"]}, True),
        ({"events": ["drain.*"]}, True),
        ({"events": ["hold.*"]}, False),
        ({"clusters": ["main"]}, True),
        ({"clusters": ["other"]}, False),
        ({"workers": ["gpu-[1-8]"]}, True),
        ({"workers": ["gpu-8"]}, False),
    ],
)
def test_only_what_all_filters_let_through_is_posted(filters: dict[str, list[str]], wanted: bool) -> None:
    """Types by pattern, clusters by name, workers by name."""
    names = {"gpu-[1-8]": {f"gpu-{i}" for i in range(1, 9)}, "gpu-8": {"gpu-8"}}
    workers = frozenset(name for text in filters.get("workers", []) for name in names[text])
    assert wants(endpoint(**filters), workers, item(DONE)) is wanted


def test_what_belongs_to_no_cluster_is_posted_unless_clusters_are_named() -> None:
    """A Kubernetes node is no cluster's."""
    rebooted = item(NodeRebooted(id="1", at=NOW, node="host.7", before="a", after="b"))
    assert (rebooted.scope, rebooted.identity) == ("_site", "host.7")
    assert wants(endpoint(), frozenset(), rebooted)
    assert not wants(endpoint(clusters=["main"]), frozenset(), rebooted)


def test_in_binary_mode_the_headers_are_cloudevents_and_the_body_is_the_event() -> None:
    """As its binding for HTTP says, with the trace."""
    post = post_of(endpoint(), item(DONE, TRACE))
    assert msgspec.json.decode(post.body)["type"] == "drain.drained.v1"
    assert post.headers["content-type"] == "application/json"
    assert post.headers["ce-type"] == "drain.drained.v1"
    assert post.headers["ce-id"] == "e%201"
    assert post.headers["traceparent"] == TRACE
    assert not any(name.lower().startswith("nats-") for name in post.headers)


def test_in_structured_mode_the_body_holds_both() -> None:
    """Values are plain there, not percent-encoded."""
    post = post_of(endpoint(format="cloudevents-structured"), item(DONE, TRACE))
    body = msgspec.json.decode(post.body)
    assert post.headers["content-type"] == "application/cloudevents+json"
    assert (body["specversion"], body["id"], body["subject"]) == ("1.0", "e 1", "main/gpu-7")
    assert body["data"]["worker"]["name"] == "gpu-7"
    assert body["traceparent"] == TRACE


def test_a_chat_gets_one_line_that_cannot_mention_or_link() -> None:
    """A reason is text from outside."""
    hold = a_view(reason="<!channel> & <http://evil|click>")
    post = post_of(endpoint(format="slack"), item(HoldPlaced(id="1", at=NOW, worker=REF, hold=hold)))
    (text,) = msgspec.json.decode(post.body).values()
    assert "main/gpu-7" in text
    assert "<" not in text
    assert "&lt;!channel&gt; &amp;" in text


def test_a_signature_covers_id_time_and_body() -> None:
    """After Standard Webhooks: HMAC-SHA256 over `id.time.body` with the secret behind `whsec_`."""
    secret = b"\x00secret\xff"
    text = f"whsec_{base64.b64encode(secret).decode()}\n"
    post = signed(Post({"a": "b"}, b"{}"), "msg-1", secret_of(text), 1_700_000_000)
    expected = base64.b64encode(hmac.new(secret, b"msg-1.1700000000.{}", hashlib.sha256).digest()).decode()
    assert post.headers == {
        "a": "b",
        "webhook-id": "msg-1",
        "webhook-timestamp": "1700000000",
        "webhook-signature": f"v1,{expected}",
    }


@pytest.mark.parametrize("text", ["", "  \n", "whsec_!!!"])
def test_a_secret_that_is_none_is_not_used(text: str) -> None:
    """An empty key would sign for everybody."""
    with pytest.raises(ValueError, match=r"empty|base64|alphabet"):
        secret_of(text)


def test_headers_come_from_a_file_and_cannot_pretend_to_be_the_events() -> None:
    """The error names the line and not the value, which may be a secret."""
    assert headers_of("Authorization: Bearer x\n\nX-Team: gpu\n") == {"Authorization": "Bearer x", "X-Team": "gpu"}
    for text in ("no colon secret", "ce-id: 1", "webhook-signature: 1", "Host: x", "a b: 1"):
        with pytest.raises(ValueError, match="line 1") as caught:
            headers_of(text)
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "age_s", "kind"),
    [
        (200, 0, Taken),
        (204, 0, Taken),
        (0, 0, Again),
        (408, 0, Again),
        (425, 0, Again),
        (429, 0, Again),
        (500, 0, Again),
        (503, 59, Again),
        (503, 60, Dead),
        (0, 61, Dead),
        (301, 0, Dead),
        (400, 0, Dead),
        (404, 0, Dead),
        (410, 0, Off),
    ],
)
def test_an_answer_says_taken_again_dead_or_off(status: int, age_s: float, kind: type) -> None:
    """What says *later* is tried for `retry_for_s`; what says *no* is not tried again."""
    assert isinstance(verdict(status, {"error": "refused"}, 3, age_s, endpoint(retry_for_s=60)), kind)


def test_tries_grow_rarer_up_to_a_minute() -> None:
    """With jitter, so that a thousand do not come back at once."""
    waits = [verdict(500, {}, attempt, 0, endpoint()) for attempt in range(1, 12)]
    seconds = [each.after_s for each in waits if isinstance(each, Again)]
    assert seconds == [0.5, 1, 2, 4, 8, 16, 32, 60, 60, 60, 60]
    each = {later(Again(8, ""), {}, NOW, Random(i)) for i in range(50)}
    assert len(each) > 10
    assert all(4 <= wait <= 8 for wait in each)


@pytest.mark.parametrize(
    ("said", "seconds"),
    [("7", 7), ("999999999", 3600), ("Tue, 01 Dec 2026 12:00:30 GMT", 30), ("soon", 8), ("-5", 8), ("", 8)],
)
def test_an_endpoint_may_say_when(said: str, seconds: float) -> None:
    """Seconds or a date; at most an hour; nonsense is ignored."""
    now = datetime(2026, 12, 1, 12, tzinfo=UTC)
    wait = later(Again(8, ""), {"Retry-After": said} if said else {}, now, Random(1))
    assert wait == seconds if seconds != 8 else 4 <= wait <= 8
    assert timedelta(seconds=wait) <= timedelta(hours=1)


@pytest.mark.parametrize(
    "subject", ["", "lockstep.fact.kube.node._site.a", "lockstep.event.a.b.v1.main", "x.event.a.b.v1.main.a"]
)
def test_other_subjects_are_no_events(subject: str) -> None:
    """Nothing is guessed."""
    assert item_of(Received(subject, b"", {}, 1, None)) is None
