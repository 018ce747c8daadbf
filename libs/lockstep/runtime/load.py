"""Reads the settings from a YAML file and the environment, and tells every fault at once."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin

import msgspec
import yaml

from lockstep.base.errors import BadInput
from lockstep.contracts.policy import Policy, signal_of
from lockstep.runtime.settings import Settings

PREFIX = "LOCKSTEP_"
CONFIG = "LOCKSTEP_CONFIG"
_NOT_OURS = re.compile(r"LOCKSTEP_(CONFIG$|LAB_|.*_SERVICE_(HOST|PORT)|.*_PORT(_\d+_(TCP|UDP)(_\w+)?)?$)")
"""The file's own variable, the lab's, and those that Kubernetes makes of a Service called lockstep-something."""

S = TypeVar("S", bound=msgspec.Struct)


def load(path: str | Path | None = None, env: Mapping[str, str] | None = None) -> Settings:
    """The settings from the file at `path` (or `LOCKSTEP_CONFIG`), with the environment's `LOCKSTEP_<PATH>` laid over.

    `LOCKSTEP_NATS_URL` sets `nats.url`, `LOCKSTEP_CLUSTERS_0_USER` the first cluster's `user`; lists are YAML.

    Raises:
        BadInput: with every fault: the path or variable, the value, and what is allowed.
    """
    env = os.environ if env is None else env
    path = path or env.get(CONFIG)
    tree = _read(Path(path)) if path else {}
    origin: dict[str, str] = {}
    faults = _overlay(tree, env, origin)
    settings = _build(Settings, tree, "", origin, faults)
    if settings is None or faults:
        raise BadInput(faults)
    return settings


def _read(path: Path) -> dict[str, Any]:
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise BadInput([f"{path}: cannot be read: {e.strerror}"]) from e
    except (yaml.YAMLError, UnicodeDecodeError) as e:
        raise BadInput([f"{path}: is no YAML: {' '.join(str(e).split())}"]) from e
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise BadInput([f"{path}: want a mapping, got {type(tree).__name__}"])
    return tree


def _overlay(tree: dict[str, Any], env: Mapping[str, str], origin: dict[str, str]) -> list[str]:
    faults = []
    for name in sorted(env):
        if not name.startswith(PREFIX):
            continue
        place = _place_of(Settings, name.removeprefix(PREFIX).lower())
        if place is None:
            if not _NOT_OURS.match(name):
                faults.append(f"{name}: there is no such setting")
            continue
        if name.endswith("_PORT") and env[name].startswith(("tcp://", "udp://")):
            continue
        path, leaf = place
        try:
            value = env[name] if leaf is str else yaml.safe_load(env[name])
        except yaml.YAMLError:
            faults.append(f"{name}: {env[name]!r} is no YAML")
            continue
        _put(tree, path, value)
        origin[_text(path)] = name
    return faults


def _place_of(kind: type[msgspec.Struct], words: str) -> tuple[list[str | int], Any] | None:
    """Where `nats_url` is in the tree, and its bare type; None if nowhere."""
    for field in msgspec.structs.fields(kind):
        name, bare = field.encode_name, _bare(field.type)
        if words == name and not _is_struct(bare):
            return [name], bare
        if not words.startswith(name + "_"):
            continue
        rest = words[len(name) + 1 :]
        if _is_struct(bare) and (inner := _place_of(bare, rest)):
            return [name, *inner[0]], inner[1]
        if get_origin(bare) is list and _is_struct(item := get_args(bare)[0]):
            number, _, rest = rest.partition("_")
            if number.isdecimal() and len(number) <= 2 and (inner := _place_of(item, rest)):
                return [name, int(number), *inner[0]], inner[1]
    return None


def _put(tree: Any, path: list[str | int], value: Any) -> None:
    """Sets one value deep in the tree, making mappings and list items on the way; foreign shapes are replaced."""
    for step, after in zip(path, [*path[1:], None], strict=True):
        if isinstance(step, int):
            tree.extend({} for _ in range(step + 1 - len(tree)))
        if after is None:
            tree[step] = value
            return
        wanted: type = list if isinstance(after, int) else dict
        have = tree[step] if isinstance(step, int) else tree.get(step)
        if not isinstance(have, wanted):
            tree[step] = wanted()
        tree = tree[step]


def _build(kind: type[S], value: Any, path: str, origin: Mapping[str, str], faults: list[str]) -> S | None:
    """One Struct from a mapping; every fault in it goes to `faults`, and then the answer may be None."""
    if not isinstance(value, dict):
        faults.append(f"{path or 'settings'}: want a mapping, got {_shown(value)}")
        return None
    before = len(faults)
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    allowed = ", ".join(fields)
    unknown = [_join(path, str(key)) for key in value if key not in fields]
    faults.extend(f"{key}: there is no such setting; allowed: {allowed}" for key in unknown)
    made: dict[str, Any] = {}
    for name, field in fields.items():
        here = _join(path, name)
        if name in value:
            made[field.name] = _part(field.type, value[name], here, origin, faults)
        elif field.required:
            faults.append(f"{here}: is missing")
    if len(faults) > before:
        return None
    built = kind(**made)
    faults.extend(f"{path}: {fault}" if path else fault for fault in _faults_of(built))
    return built


def _part(kind: Any, value: Any, path: str, origin: Mapping[str, str], faults: list[str]) -> Any:
    bare = _bare(kind)
    if _is_struct(bare):
        return _build(bare, {} if value is None else value, path, origin, faults)
    if get_origin(bare) is list and _is_struct(item := get_args(bare)[0]) and isinstance(value, list) and value:
        return [_build(item, one, f"{path}[{i}]", origin, faults) for i, one in enumerate(value)]
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as e:
        faults.append(f"{origin.get(path, path)}: {_shown(value)}: {e}")
        return None


def _faults_of(built: msgspec.Struct) -> Iterator[str]:
    """What no single field can tell."""
    if isinstance(built, Policy):
        for text in built.node_conditions:
            try:
                signal_of(text)
            except ValueError as e:
                yield f"node_conditions: {e}"
    elif hasattr(built, "faults"):
        yield from built.faults()


def _bare(kind: Any) -> Any:
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _text(path: list[str | int]) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:79] + "…"
