"""JSON Schemas of the messages: what msgspec says of a type, and what is written of its fields in the source.

They mean the same as draft 2020-12 and as AsyncAPI's own dialect (draft 7): so there are no tuples of fixed length,
and nothing stands beside a `$ref`.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any

import msgspec
from msgspec import inspect as look

from lockstep.contracts.asyncapi.docstrings import fields_said, type_said
from lockstep.contracts.asyncapi.messages import About

Schema = dict[str, Any]
DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema_of(message: About) -> Schema:
    """The schema of one message's body; it refers to nothing outside of it."""
    parts = components([message.payload], "#/$defs/{name}")
    own = parts.pop(message.payload.__name__)
    head = {"$schema": DIALECT, "$id": f"urn:lockstep:{message.name}"}
    return {**head, **own, **({"$defs": parts} if parts else {})}


def components(kinds: Sequence[type], ref_template: str) -> dict[str, Schema]:
    """The schemas of types and of all that they are made of, by name; `ref_template` says how one refers to another."""
    _, schemas = msgspec.json.schema_components(kinds, ref_template=ref_template)
    classes = {kind.__name__: kind for kind in parts_of(look.multi_type_info(kinds))}
    return {name: _described(schema, classes[name]) for name, schema in sorted(schemas.items())}


def parts_of(types: Iterable[look.Type]) -> Iterable[type[msgspec.Struct | Enum]]:
    """The Structs and enumerations that types are made of; some more than once."""
    for info in types:
        match info:
            case look.StructType(cls=cls, fields=fields):
                yield cls
                yield from parts_of(field.type for field in fields)
            case look.EnumType(cls=cls):
                yield cls
            case look.ListType(item_type=item):
                yield from parts_of([item])
            case look.DictType(key_type=key, value_type=value):
                yield from parts_of([key, value])
            case look.UnionType(types=several):
                yield from parts_of(several)
            case look.Metadata(type=inner):
                yield from parts_of([inner])
            case _:
                pass


def _described(schema: Schema, kind: type[msgspec.Struct | Enum]) -> Schema:
    said = fields_said(kind)
    if issubclass(kind, Enum):
        members = [f"- `{member.value}`: {said[member.name]}" for member in kind if member.name in said]
        description = "\n\n".join(filter(None, [type_said(kind), "\n".join(members)]))
        return {**schema, "description": description, "enum": [member.value for member in kind]}
    names = {field.encode_name: field.name for field in msgspec.structs.fields(kind)}
    properties = {name: _property(p, said.get(names.get(name, ""), "")) for name, p in schema["properties"].items()}
    return {**schema, "description": type_said(kind), "properties": properties}


def _property(schema: Mapping[str, Any], said: str) -> Schema:
    if len(schema.get("enum", ())) == 1:
        return {"const": schema["enum"][0]}
    rest = {"description": said} if said else {}
    if "$ref" in schema and (said or len(schema) > 1):
        others = {key: value for key, value in schema.items() if key != "$ref"}
        return {"allOf": [{"$ref": schema["$ref"]}], **rest, **others}
    return {**rest, **schema}
