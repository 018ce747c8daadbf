"""What is written of types and of their fields in the source: Python keeps the former only."""

import ast
import inspect
from functools import cache
from textwrap import dedent


@cache
def fields_said(kind: type) -> dict[str, str]:
    """The docstrings below the fields of a Struct, or below the members of an enumeration, bases included."""
    said: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("lockstep."):
            said |= _of_one(base)
    return said


def type_said(kind: type) -> str:
    """The docstring of a type, without its indentation."""
    return inspect.cleandoc(kind.__doc__ or "")


def summary(kind: type) -> str:
    """The first paragraph of a type's docstring, on one line."""
    return " ".join(type_said(kind).split("\n\n")[0].split())


@cache
def property_said(kind: type, name: str) -> str:
    """The docstring of a property."""
    return inspect.cleandoc(getattr(kind, name).__doc__ or "")


def _of_one(kind: type) -> dict[str, str]:
    (tree,) = ast.parse(dedent(inspect.getsource(kind))).body
    said: dict[str, str] = {}
    name = ""
    for node in tree.body if isinstance(tree, ast.ClassDef) else []:
        match node:
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
                pass
            case ast.Expr(value=ast.Constant(value=str(text))) if name:
                said[name] = inspect.cleandoc(text)
                name = ""
            case _:
                name = ""
    return said
