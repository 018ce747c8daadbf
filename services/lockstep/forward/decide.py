"""Which events an endpoint wants, how they look on HTTP, and what its answers mean. Pure."""

import hmac
from base64 import b64decode, b64encode
from collections.abc import Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from fnmatch import fnmatchcase
from hashlib import sha256
from random import Random
from urllib.parse import unquote

import msgspec

from lockstep.base.backoff import backoff
from lockstep.base.text import one_line
from lockstep.bus.envelope import TRACEPARENT, Unknown, unpack_event
from lockstep.bus.ordered import Received
from lockstep.contracts.subjects import ROOT, name_of
from lockstep.fleet.happened import line
from lockstep.forward.model import Again, Dead, Item, Off, Post, Taken, Verdict
from lockstep.runtime.settings import ForwardSettings

LIMIT_S = 60.0
"""The longest wait between two tries, unless the endpoint asks for more."""
SECRET_PREFIX = "whsec_"  # noqa: S105  what a secret begins with is none
_BUSY = {408, 425, 429}
_GONE = 410
_REDIRECTS = range(300, 400)


def item_of(received: Received) -> Item | None:
    """Reads a subject; None when it is not one of an event."""
    parts = received.subject.split(".")
    if len(parts) != 7 or parts[:2] != [ROOT, "event"]:
        return None
    scope = parts[5] if parts[5].startswith("_") else name_of(parts[5])
    return Item(received, ".".join(parts[2:5]), scope, name_of(parts[6]))


def wants(endpoint: ForwardSettings, workers: frozenset[str], item: Item) -> bool:
    """Whether the endpoint's filters let the event through; `workers` is its host list, expanded (empty: all)."""
    name = item.kind.rpartition(".")[0]
    if endpoint.events and not any(fnmatchcase(name, one) or fnmatchcase(item.kind, one) for one in endpoint.events):
        return False
    if endpoint.clusters and item.scope not in endpoint.clusters:
        return False
    return not workers or item.identity in workers


def post_of(endpoint: ForwardSettings, item: Item) -> Post:
    """The event in the endpoint's format, unsigned: CloudEvents 1.0 over HTTP, or a line for a chat.

    Binary mode passes the `ce-` headers on as they are: NATS' binding and HTTP's encode values alike.
    """
    headers = item.received.headers
    traced = {TRACEPARENT: headers[TRACEPARENT]} if headers.get(TRACEPARENT) else {}
    match endpoint.format:
        case "cloudevents-binary":
            event = {k: v for k, v in headers.items() if k.startswith("ce-") and k != "ce-datacontenttype"}
            return Post({**event, **traced, "content-type": "application/json"}, item.received.body)
        case "cloudevents-structured":
            named = {k.removeprefix("ce-"): unquote(v) for k, v in headers.items() if k.startswith("ce-")}
            body = msgspec.json.encode({**named, **traced, "data": msgspec.Raw(item.received.body)})
            return Post({**traced, "content-type": "application/cloudevents+json"}, body)
        case "slack":
            return Post({"content-type": "application/json"}, msgspec.json.encode({"text": _escaped(_said(item))}))


def signed(post: Post, ident: str, secret: bytes, at: int) -> Post:
    """With the headers of Standard Webhooks: `ident`, the time (seconds), and an HMAC-SHA256 over both and the body."""
    digest = hmac.new(secret, f"{ident}.{at}.".encode() + post.body, sha256).digest()
    marks = {"webhook-id": ident, "webhook-timestamp": str(at), "webhook-signature": f"v1,{b64encode(digest).decode()}"}
    return post._replace(headers={**post.headers, **marks})


def secret_of(text: str) -> bytes:
    """The key in a secret file: `whsec_` and base64, as Standard Webhooks writes it, or any other text as it is.

    Raises:
        ValueError: it is empty, or what follows `whsec_` is no base64.
    """
    text = text.strip()
    if not text:
        raise ValueError("the file is empty")
    if not text.startswith(SECRET_PREFIX):
        return text.encode()
    return b64decode(text.removeprefix(SECRET_PREFIX), validate=True)


def headers_of(text: str) -> dict[str, str]:
    """The headers in a file, one `Name: value` a line.

    Raises:
        ValueError: a line is none, or a header is one that belongs to the event; names the line, not its value.
    """
    found = {}
    for number, row in enumerate(text.splitlines(), 1):
        name, colon, value = row.partition(":")
        if not row.strip():
            continue
        if not colon or not name.strip().replace("-", "").isalnum() or not value.strip().isprintable():
            raise ValueError(f"line {number}: want Name: value")
        if name.strip().lower().startswith(("ce-", "webhook-")) or name.strip().lower() in {"host", "content-length"}:
            raise ValueError(f"line {number}: {name.strip()} is not to be set")
        found[name.strip()] = value.strip()
    return found


def verdict(status: int, headers: Mapping[str, str], attempt: int, age_s: float, endpoint: ForwardSettings) -> Verdict:
    """What an answer means; status 0 is none (`headers` then has the reason under `error`).

    Tried again: no answer, 5xx, and those 4xx that say *later*; for `retry_for_s` since the first try.
    """
    if 200 <= status < 300:
        return Taken()
    why = f"HTTP {status}" if status else one_line(headers.get("error", "no answer"), limit=200)
    if status == _GONE:
        return Off(why)
    if status and status < 500 and status not in _BUSY:
        return Dead(f"{why}: redirects are not followed" if status in _REDIRECTS else why)
    if age_s >= endpoint.retry_for_s:
        return Dead(f"{why}, for {age_s:.0f} s in {attempt} tries")
    return Again(backoff(attempt - 1, first_s=0.5, limit_s=LIMIT_S), why)


def later(again: Again, headers: Mapping[str, str], now: datetime, jitter: Random) -> float:
    """Seconds until the next try: what `Retry-After` asks for (at most an hour), else with jitter what was decided."""
    said = headers.get("Retry-After", "")
    asked = 0.0
    if said.isdecimal():
        asked = float(said[:6])
    elif said:
        try:
            asked = (parsedate_to_datetime(said) - now).total_seconds()
        except (ValueError, TypeError):
            asked = 0.0
    return min(asked, 3600.0) if asked > 0 else again.after_s * (0.5 + jitter.random() / 2)


def _said(item: Item) -> str:
    event = unpack_event(item.received.body)
    return f"{item.scope}/{item.identity}: {item.kind}" if isinstance(event, Unknown) else line(event)


def _escaped(text: str) -> str:
    """Chats of Slack's kind read these three as markup (links, mentions)."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
