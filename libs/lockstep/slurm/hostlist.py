"""Slurm's host lists: `gpu-[01-03,7],login` and back.

A number written with leading zeros keeps its width; several brackets in one name multiply, the last one fastest.
What is malformed raises: a guess would drain the wrong node.
"""

import itertools
import re
from collections.abc import Iterable, Iterator

LIMIT = 65_536
"""How many names one list may stand for."""

_DIGITS = 18
_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?", re.ASCII)
_NAME = re.compile(r"[^\s,\[\]]+")
_LAST_NUMBER = re.compile(r"(.*?)(\d+)", re.ASCII | re.DOTALL)


def expand(text: str, *, limit: int = LIMIT) -> list[str]:
    """The names that `text` stands for, in its order, repeats kept.

    Raises:
        ValueError: malformed (says what and where), or more than `limit` names.
    """
    names: list[str] = []
    if not text.strip():
        return names
    for at, item in _items(text):
        parts = _parts(item, text, at, limit)
        size = 1
        for part in parts:
            size *= len(part)
        if len(names) + size > limit:
            raise ValueError(f"host list stands for more than {limit} names at character {at}: {_shown(text, at)}")
        names.extend("".join(choice) for choice in itertools.product(*parts))
    return names


def compress(names: Iterable[str]) -> str:
    """A short host list of that set, with at most one bracket a name: at the name's last number, if it ends in one.

    Raises:
        ValueError: a name that is empty or holds a space, a comma or a bracket.
    """
    numbered: dict[str, list[tuple[int, str]]] = {}
    for name in sorted(set(names)):
        if not _NAME.fullmatch(name):
            raise ValueError(f"not a host name: {name[:64]!r}")
        match = _LAST_NUMBER.fullmatch(name)
        prefix, digits = (match[1], match[2]) if match and len(match[2]) <= _DIGITS else (name, "")
        numbered.setdefault(prefix, []).append((int(digits) if digits else -1, digits))
    return ",".join(item for prefix, numbers in numbered.items() for item in _pack(prefix, sorted(numbers)))


def _items(text: str) -> Iterator[tuple[int, str]]:
    """The parts between top-level commas, each with where it starts."""
    start, inside = 0, False
    for at, char in enumerate(text):
        if char in "[]":
            if inside == (char == "["):
                raise ValueError(f"unexpected {char!r} at character {at}: {_shown(text, at)}")
            inside = not inside
        elif char == "," and not inside:
            yield start, text[start:at].strip()
            start = at + 1
    if inside:
        raise ValueError(f"bracket is not closed: {_shown(text, start)}")
    yield start, text[start:].strip()


def _parts(item: str, text: str, at: int, limit: int) -> list[list[str]]:
    """The choices for each piece of one item: fixed text has one, a bracket has many."""
    parts: list[list[str]] = []
    for index, piece in enumerate(re.split(r"[\[\]]", item)):
        if index % 2:
            parts.append([number for span in piece.split(",") for number in _span(span, text, at, limit)])
        elif piece and not _NAME.fullmatch(piece):
            raise ValueError(f"not a host name at character {at}: {_shown(text, at)}")
        else:
            parts.append([piece])
    if not item:
        raise ValueError(f"empty name at character {at}: {_shown(text, at)}")
    return parts


def _span(span: str, text: str, at: int, limit: int) -> Iterator[str]:
    match = _RANGE.fullmatch(span)
    if match is None:
        raise ValueError(f"not a number or range in the bracket of the name at character {at}: {_shown(text, at)}")
    low, high = match[1], match[2] or match[1]
    if int(high) < int(low) or int(high) - int(low) >= limit:
        raise ValueError(f"range {span} is backwards or too long: {_shown(text, at)}")
    return (f"{number:0{len(low)}d}" for number in range(int(low), int(high) + 1))


def _pack(prefix: str, numbers: list[tuple[int, str]]) -> Iterator[str]:
    if numbers[0][1] == "":
        yield prefix
        numbers = numbers[1:]
    spans: list[list[str]] = []
    for number, digits in numbers:
        if spans and digits == f"{int(spans[-1][-1]) + 1:0{len(spans[-1][0])}d}" and number >= 0:
            spans[-1][1:] = [digits]
        else:
            spans.append([digits])
    if len(spans) == 1 and len(spans[0]) == 1:
        yield prefix + spans[0][0]
    elif spans:
        yield f"{prefix}[{','.join('-'.join(span) for span in spans)}]"


def _shown(text: str, at: int) -> str:
    return repr(text[max(0, at - 8) : at + 56])
