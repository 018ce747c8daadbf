"""`lockstep dead`: what a service could not handle: list it, look at it, send it again."""

from argparse import Namespace
from typing import Any

import msgspec

from lockstep.base.clock import now
from lockstep.base.errors import BadInput, Reject
from lockstep.base.text import one_line
from lockstep.bus.dead import DeadLetters, Letter
from lockstep.cli.connect import Reach
from lockstep.cli.exits import Exit, Stop
from lockstep.cli.output import Out, ago, document, show

MAX_BODY = 64 * 1024
"""Bytes of a body that are shown."""


async def run(args: Namespace) -> int:
    """Does what was asked for."""
    if args.what == "list" and args.numbers:
        raise BadInput(["SEQ: is for show and replay; list shows all"])
    if args.what != "list" and not args.numbers:
        raise BadInput([f"SEQ: {args.what} needs one, as `lockstep dead list` shows it"])
    out = Out(form="json" if args.output == "json" else "text")
    async with Reach.of(args) as reach:
        dead = DeadLetters(await reach.bus())
        if args.what == "list":
            at = now()
            show(
                out,
                args.output,
                "DeadLetterList",
                [row(letter) for letter in await dead.all()],
                names=lambda item: str(item["sequence"]),
                columns=lambda item, _: {
                    "SEQ": str(item["sequence"]),
                    "AGE": ago(item["at"], at),
                    "READER": item["reader"],
                    "TRIES": str(item["attempts"]),
                    "SUBJECT": item["subject"],
                    "WHY": item["why"],
                },
            )
            return Exit.OK
        letters = [await _found(dead, number) for number in args.numbers]
        if args.what == "show":
            for letter in letters:
                out.raw(shown(letter, args.output))
            return Exit.OK
        return await _replay(dead, letters, out)


async def _found(dead: DeadLetters, number: int) -> Letter:
    letter = await dead.get(number)
    if letter is None:
        raise Stop(Exit.NOT_FOUND, f"{number}: there is no such dead letter; see `lockstep dead list`")
    return letter


async def _replay(dead: DeadLetters, letters: list[Letter], out: Out) -> Exit:
    """One after the other; one that fails stays, and the others are sent all the same."""
    code = Exit.OK
    for letter in letters:
        try:
            await dead.replay(letter)
        except Reject as e:
            out.note(f"{letter.sequence}: stays: {e}")
            code = Exit.NO
        else:
            text = f"{letter.sequence}: sent again: {one_line(letter.subject, limit=200)}"
            out.tell(text, {"sequence": letter.sequence, "subject": letter.subject})
    return code


def row(letter: Letter) -> dict[str, Any]:
    """A letter without its body."""
    return {
        "sequence": letter.sequence,
        "at": letter.at,
        "reader": letter.reader,
        "subject": one_line(letter.subject, limit=400),
        "why": letter.why,
        "attempts": letter.attempts,
        "origin": letter.origin,
    }


def shown(letter: Letter, form: str) -> str:
    """A letter with its headers and its body. What others wrote is shown as text, never as it came."""
    body = _body(letter)
    if form == "json":
        headers = {one_line(k, limit=100): one_line(v, limit=1024) for k, v in letter.headers.items()}
        return msgspec.json.encode(row(letter) | {"headers": headers, "body": body}).decode() + "\n"
    told = [f"{key}: {value}" for key, value in row(letter).items()]
    headers_told = [f"  {one_line(k, limit=100)}: {one_line(v, limit=1024)}" for k, v in letter.headers.items()]
    whole = f" (cut from {letter.cut_from} bytes)" if letter.cut_from else ""
    text = body if isinstance(body, str) else document(body, "json").rstrip("\n")
    return "\n".join([*told, "headers:", *headers_told, f"body: {len(letter.body)} bytes{whole}", text, ""])


def _body(letter: Letter) -> Any:
    """As JSON if it is; else as text with what is not printable escaped."""
    if len(letter.body) <= MAX_BODY:
        try:
            return msgspec.json.decode(letter.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
    return letter.body[:MAX_BODY].decode("utf-8", "backslashreplace").encode("unicode_escape").decode()
