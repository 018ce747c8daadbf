"""One writer per field: who makes a fact or an event is who the table in ARCHITECTURE.md says."""

import ast
import re
from fnmatch import fnmatch
from pathlib import Path
from typing import get_args

import pytest

from lockstep.contracts.events import EVENT_TYPES
from lockstep.contracts.facts import AnyFact
from lockstep.contracts.permissions import WRITES
from lockstep.contracts.subjects import tag_of

ROOT = Path(__file__).resolve().parents[2]
PARTS = {
    **{path.name: path for path in (ROOT / "services/lockstep").iterdir() if path.is_dir()},
    "cli": ROOT / "libs/lockstep/cli",
}
KINDS = {kind.__name__: tag_of(kind).removesuffix(".v1") for kind in (*get_args(AnyFact), *EVENT_TYPES)}


def owners() -> list[tuple[set[str], set[str], set[str]]]:
    """Of each row: the kinds it gives, the kinds it leaves out, and the parts that may write them."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    table = text[text.index("| Field | Alone written by |") :].split("\n\n")[0]
    rows = []
    for line in table.splitlines()[2:]:
        what, who = line.strip("| ").split(" | ")
        kept, _, left_out = what.partition("(but ")
        inside, _, rest = left_out.partition(")")
        named = set(re.findall(r"`([a-z-]+\.[a-z*-]+)`", kept + rest))
        rows.append((named, set(re.findall(r"`([a-z-]+\.[a-z-]+)`", inside)), set(re.findall(r"`([a-z_]+)`", who))))
    return rows


def may_write(kind: str) -> set[str]:
    """The parts that the table allows to write this kind."""
    found = set()
    for named, left_out, who in owners():
        if kind not in left_out and any(fnmatch(kind, pattern) for pattern in named):
            found |= who
    return found


def made_by(part: Path) -> set[str]:
    """The kinds of facts and events that the code of a part makes: calls, or hands on to be called."""
    nodes = (node for path in part.rglob("*.py") for node in ast.walk(ast.parse(path.read_text())))
    return {
        KINDS[name.id] for node in nodes for name in handed(node) if isinstance(name, ast.Name) and name.id in KINDS
    }


def handed(node: ast.AST) -> list[ast.expr]:
    """The names in a node that stand for what is made there."""
    match node:
        case ast.Call(func=func):
            return [func]
        case ast.IfExp(body=body, orelse=orelse):
            return [body, orelse]
        case ast.List(elts=values) | ast.Dict(values=values):
            return values
        case ast.Return(value=ast.expr() as value):
            return [value]
        case _:
            return []


@pytest.mark.parametrize("part", sorted(PARTS))
def test_a_part_writes_only_what_the_table_gives_it(part: str) -> None:
    """Two writers of one thing would sooner or later disagree. The command's facts are for its eyes only."""
    facts = {tag_of(kind) for kind in get_args(AnyFact)} if part == "cli" else set()
    assert sorted(kind for kind in made_by(PARTS[part]) - facts if part not in may_write(kind)) == []


def test_somebody_makes_every_kind_of_event() -> None:
    """What is declared and never told would be waited for in vain. What the bus finds out, it tells from `runtime`."""
    places = [*PARTS.values(), ROOT / "libs/lockstep/runtime", ROOT / "libs/lockstep/bus"]
    made = {kind for place in places for kind in made_by(place)}
    assert sorted({tag_of(kind).removesuffix(".v1") for kind in EVENT_TYPES} - made) == []


@pytest.mark.parametrize("service", WRITES)
def test_nats_lets_a_service_write_what_the_table_gives_it(service: str) -> None:
    """Neither more nor less. What is told of the streams themselves, and of each source, is not in question here."""
    part = service.replace("-", "_")
    theirs = {tag_of(kind).removesuffix(".v1") for kind in WRITES[service]}
    given = {kind for kind in KINDS.values() if part in may_write(kind) and not kind.startswith("source.")}
    assert theirs == given


def test_the_table_is_read() -> None:
    """A row that is not understood would allow nothing, or everything."""
    assert may_write("kube.node") == {"pod_watcher"}
    assert may_write("hold.placed") == {"drain"}
    assert may_write("hold.reasserted") == {"reconciler"}
    assert made_by(PARTS["reconciler"]) >= {
        "reconciler.wrote",
        "worker.drain-set",
        "worker.unprotected",
        "hold.reasserted",
    }
