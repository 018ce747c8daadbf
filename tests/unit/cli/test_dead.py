"""`lockstep dead`: what a letter looks like to people and scripts, whatever is in it."""

import json
from typing import Any

import pytest

from lockstep.base.errors import BadInput
from lockstep.bus.dead import Letter, letter_of, pack_letter
from lockstep.bus.ordered import Received
from lockstep.cli import dead
from tests.builders import NOW
from tests.unit.cli.seen import args

SUBJECT = "lockstep.request.hold.v1.ops.main.r-1"


def a_letter(**fields: Any) -> Letter:
    """A letter of the drain service."""
    known: dict[str, Any] = {"sequence": 3, "at": NOW, "reader": "drain", "subject": SUBJECT, "headers": {"a": "b"}}
    known |= {"body": b'{"id":"r-1"}', "why": "a bug", "attempts": 5, "origin": 17, "cut_from": 0}
    return Letter(**(known | fields))


def test_a_letter_is_shown_with_its_headers_and_its_body() -> None:
    """A body that is JSON is laid out."""
    text = dead.shown(a_letter(), "table")
    assert text.splitlines()[:4] == ["sequence: 3", f"at: {NOW}", "reader: drain", f"subject: {SUBJECT}"]
    assert 'headers:\n  a: b\nbody: 12 bytes\n{\n  "id": "r-1"\n}\n' in text
    assert json.loads(dead.shown(a_letter(), "json"))["body"] == {"id": "r-1"}


@pytest.mark.parametrize("body", [b"\x1b[31mred\x00\xff", b"{no json\x07", b"x" * 100_000])
def test_a_body_that_is_anything_is_shown_as_text(body: bytes) -> None:
    """No control character reaches the terminal, and there is a limit."""
    text = dead.shown(a_letter(body=body, headers={"x\x1b": "y\ny"}), "table")
    assert [c for c in text if not c.isprintable() and c != "\n"] == []
    assert len(text) < dead.MAX_BODY + 1000
    json.loads(dead.shown(a_letter(body=body), "json"))


def test_a_letter_that_was_cut_says_so() -> None:
    """It cannot be sent again."""
    assert "body: 12 bytes (cut from 2000000 bytes)" in dead.shown(a_letter(cut_from=2_000_000), "table")


def test_a_letter_is_read_as_it_was_written() -> None:
    """Whatever was in the headers; what is no number is none."""
    headers = {"a": "b", "Nats-Msg-Id": "m"}
    packed = pack_letter("forward-a.b", SUBJECT, headers, b"x", why="no\nway ü", attempts=2, origin=9, room=1 << 20)
    read = letter_of(Received(packed.subject, packed.body, packed.headers, 4, NOW))
    assert (read.reader, read.subject, read.body, read.attempts, read.origin) == ("forward-a.b", SUBJECT, b"x", 2, 9)
    assert (read.headers, read.why) == ({"a": "b", "Nats-Msg-Id": "m"}, "no way \\xfc")
    odd = letter_of(Received("lockstep.dead.drain.x", b"", {"lockstep-dead-attempts": "-1e9"}, 1, NOW))
    assert (odd.attempts, odd.origin, odd.why, odd.at) == (0, 0, "", NOW)


@pytest.mark.parametrize(
    ("words", "said"),
    [(["list", "1"], "list shows all"), (["show"], "show needs one"), (["replay"], "replay needs one")],
)
async def test_numbers_that_are_missing_or_too_many_are_named(words: list[str], said: str) -> None:
    """Before anything is connected."""
    with pytest.raises(BadInput, match=said):
        await dead.run(args("dead", *words))
