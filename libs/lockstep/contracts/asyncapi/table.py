"""The tables of messages in `docs/events.md`."""

import re

import msgspec

from lockstep.contracts.asyncapi.docstrings import summary
from lockstep.contracts.asyncapi.messages import EVENT, FACT, REQUEST, About, Sort, messages
from lockstep.contracts.facts import SITE

_PLACE = re.compile(r"(<!-- table of (\w+)s: .*? -->\n).*?(<!-- end of table -->)", re.DOTALL)
_SORTS = {sort.word: sort for sort in (EVENT, FACT, REQUEST)}


def with_tables(page: str) -> str:
    """A page whose tables, each between its two comments, are those of today's types."""
    return _PLACE.sub(lambda m: m[1] + table(_SORTS[m[2]]) + m[3], page)


def table(sort: Sort) -> str:
    """All messages of one sort, one a row."""
    when = "What it says" if sort is FACT else "What it asks for" if sort is REQUEST else "When"
    rows = [f"| Type | {when} | Subject ends in | Fields | |", "|---|---|---|---|---|"]
    return "\n".join(rows + [_row(about) for about in messages() if about.sort is sort]) + "\n"


def _row(about: About) -> str:
    common = {field.name for field in msgspec.structs.fields(about.sort.base)}
    fields = [f for f in msgspec.structs.fields(about.payload) if f.name not in common]
    shown = " ".join(f"`{f.encode_name}{'' if f.required else '?'}`" for f in fields)
    ends = ".".join(_token(about.parameters.get(p, "")) for p in about.sort.parameters if p != "user")
    links = " ".join(f"[{word}](../proto/{word}s/{about.name}.json)" for word in ("schema", "example"))
    return f"| `{about.tag}` | {summary(about.payload)} | `{ends}` | {shown} | {links} |"


def _token(said: str) -> str:
    return f"<{said.removeprefix('The ').rstrip('.').replace('`', '')}>" if said else SITE
