"""Readers and messages of past versions, kept in `frozen/`, go together with those of today."""

import importlib
import json
import re
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args

import msgspec
import pytest

from lockstep.contracts.asyncapi import VERSION
from lockstep.contracts.asyncapi.messages import messages
from lockstep.contracts.subjects import event_subject, fact_subject, request_subject
from tests.contract.evolution import ADVICE, changes
from tests.contract.freeze import FROZEN, freeze

ROOT = Path(__file__).resolve().parents[2]
TODAY = {about.name: about for about in messages()}
EXAMPLES = {p.stem: json.loads(p.read_text("utf-8")) for p in (ROOT / "proto/examples").glob("*.json")}
VERSIONS = sorted(path.name for path in FROZEN.iterdir() if (path / "examples.json").exists())
CHANGELOG = (ROOT / "proto/CHANGELOG.md").read_text("utf-8")


class Frozen(NamedTuple):
    """A past version: its types by the message's name, its unions, and its examples."""

    types: dict[str, Any]
    unions: dict[str, Any]
    examples: dict[str, Any]


@cache
def frozen(version: str) -> Frozen:
    """What was kept of a version."""
    home = f"tests.contract.frozen.{version}"
    unions = {
        "event": importlib.import_module(f"{home}.events").AnyEvent,
        "fact": importlib.import_module(f"{home}.facts").AnyFact,
        "request": importlib.import_module(f"{home}.requests").AnyRequest,
    }
    types = {f"{w}.{t.__struct_config__.tag}": t for w, union in unions.items() for t in get_args(union)}
    return Frozen(types, unions, json.loads((FROZEN / version / "examples.json").read_text("utf-8")))


def of_each(what: str) -> pytest.MarkDecorator:
    """Runs a test for each frozen version and each of its types or of its examples."""
    cases = [(version, name) for version in VERSIONS for name in getattr(frozen(version), what)]
    return pytest.mark.parametrize(("version", "name"), cases)


def body_of(example: dict[str, Any]) -> bytes:
    """The body as it is sent."""
    return msgspec.json.encode(example["body"])


@of_each("types")
def test_no_type_changed_so_that_somebody_cannot_read_it(version: str, name: str) -> None:
    """Fields are only added, with defaults; everything else is a new type."""
    assert name in TODAY, f"{name} is no more. {ADVICE}"
    broken = [f"{c.where} {c.what}" for c in changes(frozen(version).types[name], TODAY[name].payload) if c.breaks]

    assert broken == [], ADVICE


@of_each("examples")
def test_yesterdays_message_means_the_same_today(version: str, name: str) -> None:
    """Same content, same subject: who is asleep for a release misses nothing."""
    example, about = frozen(version).examples[name], TODAY[name]
    what: Any = msgspec.json.decode(body_of(example), type=about.payload)
    subject = {"event": event_subject, "fact": fact_subject, "request": lambda r: request_subject(r, "ops")}

    assert msgspec.to_builtins(what) == example["body"], ADVICE
    assert subject[about.sort.word](what) == example["subject"], ADVICE


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_yesterdays_reader_reads_todays_message(version: str, name: str) -> None:
    """New fields are ignored, what is left means the same; of a new type the tag says that it is one."""
    past, body = frozen(version), EXAMPLES[name]["body"]
    union = past.unions[name.partition(".")[0]]
    if name not in past.types:
        with pytest.raises(msgspec.ValidationError, match="Invalid value"):
            msgspec.json.decode(body_of(EXAMPLES[name]), type=union)
        return
    read = msgspec.to_builtins(msgspec.json.decode(body_of(EXAMPLES[name]), type=union))

    assert is_part_of(read, body), ADVICE


def is_part_of(part: Any, whole: Any) -> bool:
    """Whether all that a reader kept is in the message as it was sent."""
    match part, whole:
        case dict(), dict():
            return all(key in whole and is_part_of(value, whole[key]) for key, value in part.items())
        case list(), list():
            return len(part) == len(whole) and all(map(is_part_of, part, whole))
        case _:
            return bool(part == whole)


def test_what_is_new_is_in_the_changelog() -> None:
    """Above the newest frozen version: each new type by its tag, each new field as `Type.field`."""
    past = frozen(VERSIONS[-1])
    heading = f"## {VERSIONS[-1].removeprefix('v').replace('_', '.')}"
    assert heading in CHANGELOG
    news = CHANGELOG.split(heading)[0]
    new = [about.tag for name, about in TODAY.items() if name not in past.types]
    for name, old in past.types.items():
        new += [change.where for change in changes(old, TODAY[name].payload) if not change.breaks]

    missing = sorted({each for each in new if f"`{each}`" not in news})
    assert missing == [], "name these in proto/CHANGELOG.md under Unreleased, each in backticks"


def test_each_frozen_version_is_in_the_changelog_and_the_newest_is_todays_or_older() -> None:
    """The document's version is one that the changelog tells of, or the next."""
    told = re.findall(r"^## (\d+\.\d+)$", CHANGELOG, re.MULTILINE)

    assert set(VERSIONS) <= {f"v{version.replace('.', '_')}" for version in told}
    assert numbers(VERSION)[:2] >= numbers(told[0])


def numbers(version: str) -> list[int]:
    """A version's parts, to be compared."""
    return [int(part) for part in version.split(".")]


def test_a_copy_is_what_was_copied(tmp_path: Path) -> None:
    """A freeze takes all types and all examples."""
    kept = freeze("0.0", tmp_path)
    union = (kept / "events/__init__.py").read_text("utf-8")

    assert "tests.contract.frozen.v0_0.events.base" in union
    assert "lockstep.contracts" not in "".join(p.read_text("utf-8") for p in kept.rglob("*.py"))
    assert json.loads((kept / "examples.json").read_text("utf-8")) == EXAMPLES


class Colour(StrEnum):
    """An enumeration before a change."""

    RED = "red"


class MoreColour(StrEnum):
    """The same with one more."""

    RED = "red"
    BLUE = "blue"


class Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part before a change."""

    size: int = 0


class OtherPart(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The same with a size of another type."""

    size: float = 0


class Thing(msgspec.Struct, kw_only=True, omit_defaults=True, tag="thing.v1"):
    """A type before a change."""

    name: str
    note: str = ""
    colour: Colour = Colour.RED
    parts: list[Part] = []
    many: dict[str, Part] | None = None
    short: Annotated[str, msgspec.Meta(max_length=9)] = ""


FIELDS: dict[str, tuple[Any, ...]] = {
    "name": (str,),
    "note": (str, ""),
    "colour": (Colour, Colour.RED),
    "parts": (list[Part], []),
    "many": (dict[str, Part] | None, None),
    "short": (Annotated[str, msgspec.Meta(max_length=9)], ""),
}


def changed(tag: str = "thing.v1", **fields: tuple[Any, ...] | None) -> type:
    """`Thing` after a change: a field as (type, default), or None to take it away."""
    now = [(name, *field) for name, field in {**FIELDS, **fields}.items() if field is not None]
    return msgspec.defstruct("Thing", now, kw_only=True, omit_defaults=True, tag=tag)  # type: ignore[arg-type]


def test_the_same_type_has_not_changed() -> None:
    """Whatever it is made of."""
    assert changes(Thing, changed()) == []


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"note": None}, "Thing.note was removed or renamed"),
        ({"note": None, "remark": (str, "")}, "Thing.note was removed or renamed"),
        ({"owner": (str,)}, "Thing.owner is new and has no default"),
        ({"note": (int, 0)}, "Thing.note was StrType"),
        ({"note": (str,)}, "Thing.note now must be there"),
        ({"name": (str, "")}, "Thing.name no longer must be there"),
        ({"note": (str, "none")}, "Thing.note means 'none' when it is not there"),
        ({"colour": (MoreColour, MoreColour.RED)}, "MoreColour has the new value 'blue'"),
        ({"parts": (list[OtherPart], [])}, "OtherPart.size was IntType"),
        ({"parts": (Part, Part())}, "Thing.parts was ListType"),
        ({"many": (dict[str, OtherPart] | None, None)}, "OtherPart.size was IntType"),
        ({"many": (dict[str, Part], {})}, "Thing.many was UnionType"),
        ({"short": (Annotated[str, msgspec.Meta(max_length=8)], "")}, "Thing.short was StrType"),
    ],
)
def test_a_change_that_breaks_somebody_is_named(fields: dict[str, Any], said: str) -> None:
    """Removed, renamed, retyped, newly required, no longer required, another default: here and in every part."""
    broken = [f"{c.where} {c.what}" for c in changes(Thing, changed(**fields)) if c.breaks]

    assert any(line.startswith(said) for line in broken), broken


def test_a_new_field_with_a_default_breaks_nobody_and_is_news() -> None:
    """It is for the changelog."""
    (news,) = changes(Thing, changed(owner=(str, "")))

    assert (news.where, news.what, news.breaks) == ("Thing.owner", "is new", False)


def test_another_tag_is_another_type() -> None:
    """A tag is never taken for something else."""
    assert [c.breaks for c in changes(Thing, changed(tag="thing.v2"))] == [True]
