"""What is asked once more, and what is not."""

import asyncio
from collections.abc import Callable

import pytest

from lockstep.slurm import again
from lockstep.slurm.errors import Busy, Denied, NoSuchNode, Refused, SlurmError, Unreachable, Unsupported


class Server:
    """Fails so, in this order, and then answers."""

    def __init__(self, *errors: SlurmError, slow_s: float = 0.0) -> None:
        self._errors = list(errors)
        self._slow_s = slow_s
        self.asked = 0

    async def ask(self) -> str:
        """One request."""
        self.asked += 1
        await asyncio.sleep(self._slow_s)
        if self._errors:
            raise self._errors.pop(0)
        return "answer"


CUT, PAGE, BUSY = Unreachable("cut"), Unreachable("a page", status=502), Busy("busy", status=503, after_s=3.0)


@pytest.mark.parametrize("error", [CUT, PAGE, BUSY], ids=str)
async def test_a_reading_is_asked_for_once_more_and_no_more(error: SlurmError) -> None:
    """The path or that one server may have failed; what fails twice is an outage."""
    assert await again.read(Server(error).ask) == "answer"
    server = Server(error, error)
    with pytest.raises(type(error)):
        await again.read(server.ask)
    assert server.asked == 2


@pytest.mark.parametrize(
    "error",
    [
        Denied("no"),
        Refused(["no"]),
        NoSuchNode("gpu-9"),
        Unsupported("no"),
        Busy("too many", status=429),
        Busy("slurmctld is busy"),
    ],
    ids=str,
)
@pytest.mark.parametrize("ask", [again.read, again.write])
async def test_an_answer_is_an_answer(error: SlurmError, ask: Callable[..., object]) -> None:
    """What Slurm itself says, and that we ask too often, is taken at its word."""
    server = Server(error)
    with pytest.raises(type(error)):
        await ask(server.ask)  # type: ignore[misc]
    assert server.asked == 1


async def test_a_write_is_said_again_only_where_nothing_was_changed() -> None:
    """Without an answer it may have been done."""
    assert await again.write(Server(BUSY).ask) == "answer"
    for error in (CUT, PAGE):
        server = Server(error)
        with pytest.raises(Unreachable):
            await again.write(server.ask)
        assert server.asked == 1


async def test_what_failed_slowly_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A time-out twice would hide an outage for twice as long."""
    monkeypatch.setattr(again, "QUICK_S", 0.01)
    server = Server(CUT, slow_s=0.05)
    with pytest.raises(Unreachable):
        await again.read(server.ask)
    assert server.asked == 1
