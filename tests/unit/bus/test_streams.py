"""Streams are made by whoever comes first; the others find them."""

from typing import Any, cast

import pytest

from lockstep.base.errors import Fatal
from lockstep.bus.connection import STREAM_NOT_FOUND, ApiError, Connection
from lockstep.bus.streams import _config, ensure
from lockstep.contracts.subjects import FACTS

NO_SPACE = ApiError(500, 10047, "insufficient storage resources available")


class FullStore:
    """JetStream's API, which refuses each new stream for want of space; another process makes it meanwhile, or not."""

    def __init__(self, *, somebody_makes_it: bool) -> None:
        self.somebody_makes_it = somebody_makes_it
        self.asked: list[str] = []

    async def call(self, verb: str, body: Any = None) -> dict[str, Any]:
        """One request."""
        self.asked.append(verb.rpartition(".")[0])
        if "STREAM.CREATE" in self.asked and verb.startswith("STREAM.INFO") and self.somebody_makes_it:
            return {"config": _config(FACTS)}
        if verb.startswith("STREAM.CREATE"):
            raise NO_SPACE
        raise ApiError(404, STREAM_NOT_FOUND, "stream not found")


async def test_a_stream_that_another_process_makes_in_the_same_moment_is_used() -> None:
    """The server counts the space of both and refuses one; that is not the end of the process."""
    store = FullStore(somebody_makes_it=True)
    await ensure(cast("Connection", store), [FACTS])
    assert store.asked == ["STREAM.INFO", "STREAM.CREATE", "STREAM.INFO"]


async def test_a_store_that_is_really_too_small_is_said_to_be_so() -> None:
    """The error is the server's first one."""
    with pytest.raises(Fatal, match="insufficient storage"):
        await ensure(cast("Connection", FullStore(somebody_makes_it=False)), [FACTS])
