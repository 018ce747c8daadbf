"""What crosses the border, for people who do not use Python: an AsyncAPI document, JSON Schemas, a table. Pure.

`python -m lockstep.contracts.asyncapi proto docs/events.md` writes them from the types; see `document`.
"""

import json
from collections.abc import Mapping
from typing import Any

from lockstep.contracts.asyncapi.docstrings import summary, type_said
from lockstep.contracts.asyncapi.messages import EVENT, FACT, REQUEST, About, messages
from lockstep.contracts.asyncapi.schemas import Schema, components, schema_of
from lockstep.contracts.events import RequestEvent
from lockstep.contracts.requests import Request
from lockstep.contracts.subjects import STREAMS, Stream

VERSION = "0.1.0"
"""Of the contracts: the minor number counts what is new, the major number what breaks a reader."""
_ABOUT = """\
Lockstep keeps Slurm and Kubernetes in step on GPU fleets. It says what happened (events, a week of them are kept),
what is so now (facts, the last of each subject is kept) and takes requests, all over NATS JetStream.

Tokens of subjects are names in which all but letters, digits and dashes is written `_xx` (hex, UTF-8)."""


def files(examples: Mapping[str, Any]) -> dict[str, str]:
    """The files of `proto/` that are made from the types, by their path in it. `examples` are put into the document."""
    made = {f"schemas/{about.name}.json": text(schema_of(about)) for about in messages()}
    return {"asyncapi.json": text(document(examples)), **made}


def text(value: Any) -> str:
    """JSON as it is committed."""
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def document(examples: Mapping[str, Any]) -> Schema:
    """The AsyncAPI 3.0 document. `examples` by the message's name: `subject`, `headers` and `body`."""
    all_messages = messages()
    kinds = [about.payload for about in all_messages] + [sort.headers for sort in (EVENT, FACT, REQUEST)]
    return {
        "asyncapi": "3.0.0",
        "id": "urn:lockstep",
        "info": {
            "title": "Lockstep",
            "version": VERSION,
            "description": _ABOUT,
            "license": {"name": "Apache-2.0"},
            "tags": [{"name": sort.word} for sort in (EVENT, FACT, REQUEST)],
        },
        "defaultContentType": "application/json",
        "servers": {
            "nats": {
                "host": "{host}",
                "protocol": "nats",
                "description": "Your NATS, with JetStream.",
                "variables": {"host": {"description": "Its address and port.", "default": "localhost:4222"}},
            }
        },
        "channels": {about.name: _channel(about) for about in all_messages},
        "operations": {f"{about.sort.action}-{about.name}": _operation(about) for about in all_messages},
        "components": {
            "messages": {about.name: _message(about, examples.get(about.name)) for about in all_messages},
            "schemas": components(kinds, "#/components/schemas/{name}"),
        },
        "x-jetstream": {stream.name: _stream(stream) for stream in STREAMS},
    }


def _channel(about: About) -> Schema:
    return {
        "address": about.address,
        "description": summary(about.payload),
        "parameters": {name: {"description": said} for name, said in about.parameters.items()},
        "messages": {about.name: {"$ref": f"#/components/messages/{about.name}"}},
        "x-jetstream": {"stream": about.sort.stream.name},
    }


def _operation(about: About) -> Schema:
    return {
        "action": about.sort.action,
        "channel": {"$ref": f"#/channels/{about.name}"},
        "summary": summary(about.payload),
        "messages": [{"$ref": f"#/channels/{about.name}/messages/{about.name}"}],
    }


def _message(about: About, example: Mapping[str, Any] | None) -> Schema:
    message: Schema = {
        "name": about.tag,
        "title": about.payload.__name__,
        "summary": summary(about.payload),
        "description": type_said(about.payload),
        "tags": [{"name": about.sort.word}, {"name": about.tag.split(".")[0]}],
        "headers": {"$ref": f"#/components/schemas/{about.sort.headers.__name__}"},
        "payload": {"$ref": f"#/components/schemas/{about.payload.__name__}"},
    }
    if issubclass(about.payload, Request | RequestEvent):
        field = "id" if issubclass(about.payload, Request) else "request"
        message["correlationId"] = {"description": "The request's id.", "location": f"$message.payload#/{field}"}
    if example:
        message["examples"] = [{"name": about.name, "headers": example["headers"], "payload": example["body"]}]
    return message


def _stream(stream: Stream) -> Schema:
    keeps = "the last message of each subject" if stream.last_only else "all"
    return {
        "subjects": stream.subjects,
        "keeps": "until handled" if stream.until_handled else keeps,
        "max_age_s": stream.max_age_s,
        "max_bytes": stream.max_bytes,
        "when_full": stream.when_full,
        "duplicate_window_s": stream.duplicate_window_s,
    }
