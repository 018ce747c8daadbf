"""What a client tells of each request that it sends, so that somebody may time it or make it a part of a trace."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import NamedTuple, Protocol


class Request(NamedTuple):
    """A request over HTTP, without its query, headers and body."""

    method: str
    url: str
    """The server's, such as `https://api:6443`."""
    path: str
    route: str
    """The path with names left out: one of few."""


class Call(Protocol):
    """One request while it is under way."""

    @property
    def headers(self) -> Mapping[str, str]:
        """What is to be sent along."""

    def answered(self, status: int) -> None:
        """The server has answered."""


Calling = Callable[[Request], AbstractContextManager[Call]]
"""Around each request; an error that passes says that there was no answer, or not the one that was wanted."""


class Untold:
    """A call that nobody wants to know of."""

    headers: Mapping[str, str] = MappingProxyType({})

    def answered(self, status: int) -> None:
        """Nothing."""


_UNTOLD = nullcontext(Untold())


def untold(_: Request) -> AbstractContextManager[Call]:
    """Tells nobody."""
    return _UNTOLD
