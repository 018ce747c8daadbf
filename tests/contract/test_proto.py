"""What `proto/` and `docs/events.md` promise to strangers is what the types are and what is sent."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_binary
from cloudevents.core.formats.json import JSONFormat
from jsonschema import Draft202012Validator, ValidationError

from lockstep.bus.envelope import Message, pack_event, pack_fact
from lockstep.contracts.asyncapi import VERSION, document, files
from lockstep.contracts.asyncapi.docstrings import type_said
from lockstep.contracts.asyncapi.messages import EVENT, FACT, REQUEST, About, messages
from lockstep.contracts.asyncapi.schemas import schema_of
from lockstep.contracts.asyncapi.table import with_tables
from lockstep.contracts.events import Event, GapFound
from lockstep.contracts.facts import Fact
from lockstep.contracts.headers import EventHeaders, FactHeaders
from lockstep.contracts.requests import Request
from lockstep.contracts.subjects import STREAMS, Stream, request_subject, scope_token, token

ROOT = Path(__file__).resolve().parents[2]
PROTO = ROOT / "proto"
EXAMPLES: dict[str, dict[str, Any]] = {p.stem: json.loads(p.read_text("utf-8")) for p in PROTO.glob("examples/*.json")}
DO = "the types and what is committed of them differ: run `make contracts`, and commit what it writes"
DOCUMENT = document(EXAMPLES)
AT = datetime(2026, 12, 1, 9, 0, tzinfo=UTC)


def of_each_message() -> pytest.MarkDecorator:
    """Runs a test once for each message."""
    return pytest.mark.parametrize("about", messages(), ids=lambda about: about.name)


def example_of(about: About) -> dict[str, Any]:
    """The example, or a word on what to write."""
    assert about.name in EXAMPLES, f"write proto/examples/{about.name}.json: subject, headers and body"
    return EXAMPLES[about.name]


def decoded(about: About) -> Event | Fact | Request:
    """The example's body as its type."""
    return msgspec.json.decode(msgspec.json.encode(example_of(about)["body"]), type=about.payload)


def as_sent(about: About) -> Message:
    """What Lockstep sends for an example: its headers say by whom and in which trace."""
    headers, what = example_of(about)["headers"], decoded(about)
    source, trace = headers["ce-source"].removeprefix("lockstep/"), headers.get("traceparent", "")
    return pack_fact(what, source, trace) if isinstance(what, Fact) else pack_event(what, source, trace)  # type: ignore[arg-type]


def validator(schema: dict[str, Any]) -> Draft202012Validator:
    """One that knows the schema to be a schema."""
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def test_what_is_committed_is_what_the_types_say() -> None:
    """Byte for byte, and no schema of a type that is no more."""
    made = files(EXAMPLES)
    there = {str(path.relative_to(PROTO)) for path in [PROTO / "asyncapi.json", *PROTO.glob("schemas/*")]}
    differing = [name for name in made if name in there and (PROTO / name).read_text("utf-8") != made[name]]

    assert (there ^ made.keys(), differing) == (set(), []), DO


def test_the_tables_of_the_page_are_those_of_the_types() -> None:
    """Three of them, each between its comments."""
    page = (ROOT / "docs/events.md").read_text("utf-8")

    assert page.count("<!-- end of table -->") == 3
    assert with_tables(page) == page, DO


@pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: stream.name)
def test_the_page_says_what_each_stream_keeps(stream: Stream) -> None:
    """Its subjects, for how long, and how many bytes."""
    page = (ROOT / "docs/events.md").read_text("utf-8")
    (row,) = re.findall(rf"^\| `{stream.name}` \|.*$", page, re.MULTILINE)
    size = f"{stream.max_bytes >> 30} GiB" if stream.max_bytes >> 30 else f"{stream.max_bytes >> 20} MiB"
    ages = {0: "", 1: "at most a day", 7: "a week", 30: "30 days"}

    assert f"| `{stream.subjects[0]}` |" in row
    assert size in row
    assert ages[stream.max_age_s // (24 * 3600)] in row


@of_each_message()
def test_a_filter_with_wildcards_goes_on_working(about: About) -> None:
    """`lockstep.event.*.*.*.main.gpu-7` finds all about a worker as long as each type has as many tokens as today."""
    assert len(about.tag.split(".")) == {"event": 3, "fact": 2, "request": 2}[about.sort.word]


def test_each_example_is_of_a_message() -> None:
    """An example of what is no more misleads."""
    assert sorted(EXAMPLES.keys() - {about.name for about in messages()}) == []


@of_each_message()
def test_an_example_says_the_same_after_it_was_read(about: About) -> None:
    """So every field in it is known, and none says what its absence says already."""
    assert msgspec.to_builtins(decoded(about)) == example_of(about)["body"]


@of_each_message()
def test_an_example_is_valid_by_its_schema_and_less_is_not(about: About) -> None:
    """The schema that is committed; without a field that must be there it says no."""
    schema = json.loads((PROTO / f"schemas/{about.name}.json").read_text("utf-8"))
    body = example_of(about)["body"]
    validator(schema).validate(body)
    for required in schema["required"]:
        with pytest.raises(ValidationError, match=f"'{required}' is a required property"):
            validator(schema).validate({key: value for key, value in body.items() if key != required})


@of_each_message()
def test_an_example_is_what_lockstep_sends(about: About) -> None:
    """Subject and headers, the id of a fact's content included; a request is what `subjects` says."""
    example = example_of(about)
    if about.sort is REQUEST:
        asked = decoded(about)
        assert isinstance(asked, Request)
        assert example["subject"] == request_subject(asked, user="ops")
        assert example["headers"]["Nats-Msg-Id"] == example["subject"]
    else:
        sent = as_sent(about)
        assert (example["subject"], example["headers"]) == (sent.subject, sent.headers)


@of_each_message()
def test_the_address_in_the_document_is_the_subject(about: About) -> None:
    """With the parameters put in as tokens."""
    what = decoded(about)
    tokens = {"scope": scope_token(what.scope), "identity": token(what.identity), "user": "ops"}

    assert about.address.format(**tokens) == example_of(about)["subject"]


@of_each_message()
def test_headers_are_those_that_are_described(about: About) -> None:
    """No header comes or goes without its line in `contracts/headers.py`."""
    headers = msgspec.convert(example_of(about)["headers"], about.sort.headers)
    schema = DOCUMENT["components"]["schemas"][about.sort.headers.__name__]
    validator(schema).validate(example_of(about)["headers"])
    if about.sort is not REQUEST:
        assert msgspec.to_builtins(msgspec.convert(as_sent(about).headers, about.sort.headers)) == msgspec.to_builtins(
            headers
        )


def test_a_header_that_nobody_described_is_found() -> None:
    """The check can fail."""
    headers = {**pack_event(GapFound(id="g", at=AT, where="x"), "drain").headers, "colour": "red"}
    for kind in (EventHeaders, FactHeaders):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(headers, kind)


@of_each_message()
def test_a_type_says_when_it_comes_about(about: About) -> None:
    """In words of its own: a docstring that a stranger reads in the table."""
    assert len(type_said(about.payload).split()) > 3
    assert type_said(about.payload) != type_said(about.payload.__mro__[1])
    assert all(parameter.endswith(".") for parameter in about.parameters.values())


@of_each_message()
def test_a_schema_means_the_same_in_both_dialects(about: About) -> None:
    """AsyncAPI's is draft 7: no tuples of fixed length, nothing beside a `$ref`; and moments say their format."""

    def walk(schema: Any) -> None:
        match schema:
            case dict():
                assert "prefixItems" not in schema
                assert "discriminator" not in schema
                assert "$ref" not in schema or len(schema) == 1
                for each in schema.values():
                    walk(each)
            case list():
                for each in schema:
                    walk(each)
            case _:
                pass

    schema = schema_of(about)
    walk(schema)
    if about.sort is EVENT:
        assert schema["properties"]["at"]["format"] == "date-time"


def test_docstrings_of_fields_and_of_members_reach_the_schema() -> None:
    """msgspec alone forgets them."""
    schemas = DOCUMENT["components"]["schemas"]

    assert schemas["RequestAccepted"]["properties"]["hold"]["description"].startswith("`namespace/name` of the Hold")
    assert schemas["RequestAccepted"]["properties"]["cause_id"]["description"].startswith("The event or request")
    assert "- `waiting`: Held, and Slurm has not shown the DRAIN yet." in schemas["Progress"]["description"]
    assert schemas["HoldClass"]["enum"][0] == "slurm"


@of_each_message()
def test_a_stranger_reads_a_cloud_event(about: About) -> None:
    """CloudEvents' own library finds in the headers what is in the body."""
    if about.sort is REQUEST:
        return
    what, sent = decoded(about), as_sent(about)
    event = from_binary(HTTPMessage(sent.headers, sent.body), JSONFormat())

    assert event.get_specversion() == "1.0"
    assert event.get_type() == about.tag
    assert event.get_source() == sent.headers["ce-source"]
    assert event.get_subject() == f"{what.scope}/{what.identity}"
    assert event.get_time() == (what.read_at if isinstance(what, Fact) else what.at)  # type: ignore[union-attr]
    assert event.get_datacontenttype() == "application/json"
    assert event.get_data() == example_of(about)["body"]
    if isinstance(what, Event):
        assert event.get_id() == what.id
        assert sent.headers["Nats-Msg-Id"] == sent.headers["ce-id"]


@pytest.mark.parametrize("name", ["Euro € 😀", "100%", 'say "no"', "a b", "%41", "zürich/gpu-7", "plain"])
def test_any_name_arrives_as_it_was_sent(name: str) -> None:
    """CloudEvents' binding for NATS, section 3.1.3.2: spaces, double quotes, percent signs and all beyond ASCII."""
    sent = pack_event(GapFound(id=name, at=AT, where=name), "drain")
    event = from_binary(HTTPMessage(sent.headers, sent.body), JSONFormat())

    assert (event.get_id(), event.get_subject()) == (name, f"_site/{name}")
    assert all(0x21 <= ord(c) <= 0x7E and c != '"' for c in sent.headers["ce-id"] + sent.headers["ce-subject"])


def test_the_specifications_own_example_is_encoded_as_it_says() -> None:
    """The one in the text of the binding."""
    sent = pack_event(GapFound(id="Euro € 😀", at=AT, where="x"), "drain")

    assert sent.headers["ce-id"] == "Euro%20%E2%82%AC%20%F0%9F%98%80"


def test_the_document_has_every_message_and_no_host_of_anybody() -> None:
    """One channel, one operation and one message each; the address of the server is the reader's."""
    names = {about.name for about in messages()}

    assert DOCUMENT["channels"].keys() == DOCUMENT["components"]["messages"].keys() == names
    assert {o["channel"]["$ref"].removeprefix("#/channels/") for o in DOCUMENT["operations"].values()} == names
    assert {about.sort.word for about in messages()} == {sort.word for sort in (EVENT, FACT, REQUEST)}
    assert DOCUMENT["servers"]["nats"]["host"] == "{host}"
    assert DOCUMENT["info"]["version"] == VERSION
