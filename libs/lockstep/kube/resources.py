"""The kinds we read, list and watch: where they live, and how their bytes become our types."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

import msgspec

from lockstep.contracts.hold import GROUP, VERSION
from lockstep.kube.errors import Invalid
from lockstep.kube.wire import Deployment, Hold, ListMeta, Node, Page, Pod, RawHold, hold_from

T = TypeVar("T")


class Resource(Generic[T]):
    """One kind of object: its path, and its decoders."""

    def __init__(self, root: str, plural: str, wire: type[Any], finish: Callable[[Any], T]) -> None:
        self._root, self._plural, self._finish = root, plural, finish
        self._one = msgspec.json.Decoder(wire)
        self._page: msgspec.json.Decoder[Any] = msgspec.json.Decoder(Page[wire])  # type: ignore[valid-type]
        self._raw_page = msgspec.json.Decoder(Page[msgspec.Raw])

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str = "") -> str:
        """The path of all of them, of a namespace's, or of one."""
        where = f"/namespaces/{segment(namespace)}" if namespace is not None else ""
        which = f"/{segment(name)}" if name is not None else ""
        return f"{self._root}{where}/{self._plural}{which}{subresource}"

    def one(self, data: bytes | msgspec.Raw) -> T:
        """One object.

        Raises:
            msgspec.DecodeError: it is none.
        """
        return self._finish(self._one.decode(data))

    def page(self, data: bytes) -> tuple[ListMeta, list[T], int]:
        """One page of a list, and how many of its items could not be read: one bad item never hides the others.

        Raises:
            msgspec.DecodeError: it is no list.
        """
        try:
            page = self._page.decode(data)
        except msgspec.ValidationError:
            return self._page_one_by_one(data)
        return page.metadata, [self._finish(item) for item in page.items], 0

    def _page_one_by_one(self, data: bytes) -> tuple[ListMeta, list[T], int]:
        page, items, bad = self._raw_page.decode(data), [], 0
        for raw in page.items:
            try:
                items.append(self.one(raw))
            except msgspec.ValidationError:
                bad += 1
        return page.metadata, items, bad


def route_of(path: str) -> str:
    """The path with the names of a namespace and an object left out: `/api/v1/namespaces/{namespace}/pods/{name}`."""
    parts = path.split("/")
    at = 4 if path.startswith("/apis/") else 3
    if parts[at : at + 1] == ["namespaces"] and len(parts) > at + 2:
        parts[at + 1] = "{namespace}"
        at += 2
    if len(parts) > at + 1:
        parts[at + 1] = "{name}"
    return "/".join(parts)


def segment(name: str) -> str:
    """A name as a part of a path; names come from outside.

    Raises:
        Invalid: no Kubernetes name looks like that (`IsValidPathSegmentName` of apimachinery).
    """
    if name in {"", ".", ".."} or any(c in "/%?#" or not c.isprintable() for c in name):
        raise Invalid(f"name {name[:64]!r}: cannot be part of a path")
    return name


NODES: Resource[Node] = Resource("/api/v1", "nodes", Node, lambda o: cast(Node, o))
PODS: Resource[Pod] = Resource("/api/v1", "pods", Pod, lambda o: cast(Pod, o))
DEPLOYMENTS: Resource[Deployment] = Resource("/apis/apps/v1", "deployments", Deployment, lambda o: cast(Deployment, o))
HOLDS: Resource[Hold] = Resource(f"/apis/{GROUP}/{VERSION}", "holds", RawHold, hold_from)

_BY_KIND: dict[type[Any], Resource[Any]] = {Node: NODES, Pod: PODS, Hold: HOLDS}


def resource_of(kind: type[T]) -> Resource[T]:
    """How a kind is reached."""
    return _BY_KIND[kind]
