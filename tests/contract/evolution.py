"""What changed between yesterday's type and today's, and whether readers and messages of both go together."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect as look

ADVICE = (
    "Readers and messages of the frozen version are still in use. Take the change back, or make a new type beside the"
    " old one whose tag ends in the next number (v2); see proto/README.md, rules of evolution. Only a version that"
    " nobody runs yet may be frozen anew: `.venv/bin/python -m tests.contract.freeze`."
)


class Change(NamedTuple):
    """One difference, where it is, and whether it breaks somebody."""

    where: str
    what: str
    breaks: bool


def changes(old: type, new: type) -> list[Change]:
    """The differences of two Structs and of all that they are made of; each of a shared part once."""
    return list(dict.fromkeys(_differences(look.type_info(old), look.type_info(new), old.__name__)))


def _differences(old: look.Type, new: look.Type, where: str) -> Iterator[Change]:
    match old, new:
        case look.StructType(), look.StructType():
            yield from _of_structs(old, new)
        case look.EnumType(cls=before), look.EnumType(cls=after):
            values, now = {m.value for m in before}, {m.value for m in after}
            for value in sorted(values - now):
                yield Change(after.__name__, f"no longer has the value {value!r}", breaks=True)
            for value in sorted(now - values):
                yield Change(after.__name__, f"has the new value {value!r}, which old readers do not know", breaks=True)
        case look.ListType(item_type=before), look.ListType(item_type=after):
            yield from _differences(before, after, where)
        case look.DictType(), look.DictType():
            yield from _differences(old.key_type, new.key_type, where)
            yield from _differences(old.value_type, new.value_type, where)
        case look.UnionType(types=before), look.UnionType(types=after) if len(before) == len(after):
            for one, other in zip(before, after, strict=True):
                yield from _differences(one, other, where)
        case look.Metadata(type=before), look.Metadata(type=after):
            yield from _differences(before, after, where)
        case _ if old != new:
            yield Change(where, f"was {_shown(old)} and is {_shown(new)}", breaks=True)


def _of_structs(old: look.StructType, new: look.StructType) -> Iterator[Change]:
    name = new.cls.__name__
    if (old.tag_field, old.tag) != (new.tag_field, new.tag):
        yield Change(name, f"was told by {old.tag_field}={old.tag!r}", breaks=True)
    was = {field.encode_name: field for field in old.fields}
    now = {field.encode_name: field for field in new.fields}
    for field in was.keys() - now.keys():
        yield Change(f"{name}.{field}", "was removed or renamed", breaks=True)
    for field in now.keys() - was.keys():
        said = "is new and has no default" if now[field].required else "is new"
        yield Change(f"{name}.{field}", said, breaks=now[field].required)
    for field in was.keys() & now.keys():
        yield from _of_fields(was[field], now[field], f"{name}.{field}")


def _of_fields(old: look.Field, new: look.Field, where: str) -> Iterator[Change]:
    if old.required != new.required:
        yield Change(where, f"{'no longer' if old.required else 'now'} must be there", breaks=True)
    elif _default(old) != _default(new):
        yield Change(where, f"means {_default(new)!r} when it is not there, and meant {_default(old)!r}", breaks=True)
    yield from _differences(old.type, new.type, where)


def _default(field: look.Field) -> Any:
    value = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
    return msgspec.to_builtins(value) if value is not msgspec.NODEFAULT else None


def _shown(kind: look.Type) -> str:
    return str(kind) if not isinstance(kind, look.StructType) else kind.cls.__name__
