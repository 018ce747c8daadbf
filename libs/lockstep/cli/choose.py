"""Finds what the words on the command line mean, and refuses those that mean nothing. Pure."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import TypeVar

from lockstep.base.errors import BadInput
from lockstep.base.text import one_line
from lockstep.cli.exits import Exit, Stop
from lockstep.cli.view import Fleet
from lockstep.contracts.common import WorkerKey
from lockstep.slurm import hostlist

T = TypeVar("T")

_LABEL = r"[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?"
_VALUE = r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?"
_TERM = re.compile(rf"(?P<key>{_LABEL})\s*(?P<op>==|=|!=)\s*(?P<value>{_VALUE})|(?P<no>!?)(?P<lone>{_LABEL})")
MAX_WORD = 64


def clusters(fleet: Fleet, asked: str | None) -> list[str]:
    """The clusters that a command is about: the one asked for, or all.

    Raises:
        Stop: there is no such cluster; says which there are.
    """
    known = sorted({c.name for c in fleet.clusters} | {cluster for cluster, _ in fleet.table.workers()})
    if asked is None:
        return known
    if asked not in known:
        raise Stop(Exit.NOT_FOUND, f"cluster {quoted(asked)}: there is none of that name; {among(asked, known)}")
    return [asked]


def worker(fleet: Fleet, word: str, within: Collection[str]) -> WorkerKey:
    """The one worker called `word`, or `cluster/name`.

    Raises:
        Stop: there is none; says which names come closest.
        BadInput: there are several.
    """
    cluster, slash, name = word.partition("/")
    keys = [key for key in fleet.table.workers() if key[0] in within]
    if not slash:
        name = word
    found = sorted(key for key in keys if key[1] == name and (not slash or key[0] == cluster))
    if not found:
        names = sorted({key[1] for key in keys})
        raise Stop(Exit.NOT_FOUND, f"worker {quoted(word)}: there is none of that name; {among(name, names)}")
    if len(found) > 1:
        choices = ", ".join("/".join(key) for key in found)
        raise BadInput([f"worker {quoted(word)}: there are several, say which: {choices}"])
    return found[0]


def workers(fleet: Fleet, words: Iterable[str], within: Collection[str]) -> list[WorkerKey]:
    """The workers that the words name; each word may be a host list such as `gpu-[1-8]`.

    Raises:
        BadInput: a host list that cannot be read, or a name that several clusters have.
        Stop: a name that nobody has.
    """
    found: dict[WorkerKey, None] = {}
    for word in words:
        cluster, slash, names = word.rpartition("/")
        for name in expanded("worker", names):
            found[worker(fleet, f"{cluster}{slash}{name}", within)] = None
    return list(found)


def expanded(field: str, text: str) -> list[str]:
    """The names of a host list.

    Raises:
        BadInput: it cannot be read.
    """
    try:
        return hostlist.expand(text)
    except ValueError as e:
        raise BadInput([f"{field} {quoted(text)}: {e}"]) from e


def named(kind: str, items: Sequence[T], words: Sequence[str], names: Callable[[T], Collection[str]]) -> list[T]:
    """The items that carry one of the words as a name, all items if there are no words.

    Raises:
        Stop: a word that names nothing; says which names come closest.
    """
    known = sorted({name for item in items for name in names(item)})
    for word in words:
        if word not in known:
            raise Stop(Exit.NOT_FOUND, f"{kind} {quoted(word)}: there is none of that name; {among(word, known)}")
    return [item for item in items if not words or not set(words).isdisjoint(names(item))]


def selector(text: str) -> Callable[[Mapping[str, str]], bool]:
    """A test of labels: `a=b`, `a!=b`, `a`, `!a`, with commas between.

    Raises:
        BadInput: it is empty or cannot be read.
    """
    terms = [_TERM.fullmatch(part.strip()) for part in text.split(",")]
    if not all(terms):
        raise BadInput([f"-l {quoted(text)}: want key=value, key!=value, key or !key, with commas between"])

    def test(labels: Mapping[str, str]) -> bool:
        return all(term is None or _holds(term, labels) for term in terms)

    return test


def _holds(term: re.Match[str], labels: Mapping[str, str]) -> bool:
    if term["op"]:
        return (labels.get(term["key"]) == term["value"]) is (term["op"] != "!=")
    return (term["lone"] in labels) is not bool(term["no"])


def among(word: str, known: Sequence[str]) -> str:
    """Which names come closest, or, when there are few, all of them."""
    if not known:
        return "there are none at all"
    near = get_close_matches(word, known, n=3, cutoff=0.6) or (list(known) if len(known) <= 5 else [])
    return f"nearest: {', '.join(near)}" if near else f"{len(known)} others, see `lockstep get`"


def quoted(word: str) -> str:
    """Something typed, fit to be shown again."""
    return repr(one_line(word, limit=MAX_WORD))
