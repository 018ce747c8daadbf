"""`README.md` of the chart: what is written in `page.md`, and a table of all values, from the comments above them."""

import json
from collections.abc import Iterator
from pathlib import Path

import yaml

HERE = Path(__file__).parent


class Undocumented(ValueError):
    """A value has no comment; the text is its name."""


def page(values: str) -> str:
    """The whole page.

    Raises:
        Undocumented: a value of `values.yaml` says nothing of itself.
    """
    rows = [f"| `{name}` | {_code(default)} | {said} |" for name, default, said in rows_of(values)]
    table = "\n".join(["| Value | Default | What it is for |", "|---|---|---|", *rows])
    return (HERE / "page.md").read_text(encoding="utf-8").replace("TABLE", table)


def rows_of(values: str) -> Iterator[tuple[str, object, str]]:
    """Name, default and comment of each value. What has a comment and none inside is one value, also if it is a map."""
    root = yaml.compose(values, Loader=yaml.SafeLoader)
    yield from _rows(root, "", values.splitlines())


def _rows(node: yaml.Node, prefix: str, lines: list[str]) -> Iterator[tuple[str, object, str]]:
    for key, value in node.value:
        name = f"{prefix}{key.value}"
        said = _comment_above(key.start_mark.line, lines)
        inner = value.value if isinstance(value, yaml.MappingNode) else []
        if inner and any(_comment_above(key.start_mark.line, lines) for key, _ in inner):
            yield from _rows(value, f"{name}.", lines)
        elif said:
            yield name, yaml.SafeLoader("").construct_document(value), said
        else:
            raise Undocumented(name)


def _comment_above(line: int, lines: list[str]) -> str:
    said: list[str] = []
    indent = len(lines[line]) - len(lines[line].lstrip())
    while line > 0 and lines[line - 1].startswith(f"{' ' * indent}#"):
        line -= 1
        said.insert(0, lines[line].strip().lstrip("# "))
    return " ".join(said).replace("|", "\\|")


def _code(default: object) -> str:
    return f"`{json.dumps(default)}`"
