"""A key or token that is exchanged under a client, or is wrong."""

from pathlib import Path

import pytest

from lockstep.slurm.client import SlurmRest
from lockstep.slurm.errors import Denied
from lockstep.slurm.tokens import FileTokens, mint
from lockstep.slurm.transport import Transport
from tests.fakes.slurmrestd import FakeSlurmrestd


async def test_an_exchanged_key_interrupts_nothing(fake: FakeSlurmrestd, slurm: SlurmRest) -> None:
    """The next token is made with what is in the file then."""
    await slurm.nodes()
    fake.key = b"another key that is as long as it has to be"
    fake.tokens()
    assert await slurm.nodes() is not None


async def test_a_token_exchanged_during_the_request_is_read_once_more(fake: FakeSlurmrestd, tmp_path: Path) -> None:
    """One denial, the new token, and the caller sees nothing; with the old token still there it is denied at once."""
    path = tmp_path / "token"
    good = fake.tokens().headers()["X-SLURM-USER-TOKEN"]

    class Exchanged(FileTokens):
        """The file is exchanged after the first look at it."""

        def headers(self) -> dict[str, str]:
            seen = super().headers()
            path.write_text(good)
            return seen

    path.write_text(mint(b"the old key of that cluster, long gone", {"sun": "slurm", "exp": 9_999_999_999}))
    client = SlurmRest(Transport(fake.url, Exchanged(path)), cluster="main")
    await client.ping()
    path.write_text(mint(b"the old key of that cluster, long gone", {"sun": "slurm", "exp": 9_999_999_999}))
    fake.calls.clear()
    assert await client.nodes() is not None
    assert fake.calls == ["GET nodes/", "GET nodes/"]
    await client.close()


async def test_a_token_that_stays_wrong_is_denied_at_once(fake: FakeSlurmrestd, tmp_path: Path) -> None:
    """It is not tried again and again, and it is in no text."""
    path = tmp_path / "token"
    path.write_text(token := mint(b"wrong", {"sun": "slurm", "exp": 9_999_999_999}))
    client = SlurmRest(Transport(fake.url, FileTokens(path)), cluster="main")
    with pytest.raises(Denied) as caught:
        await client.nodes()
    assert fake.count("GET nodes/") == 1
    assert token not in repr(caught.value)
    path.write_text(fake.tokens().headers()["X-SLURM-USER-TOKEN"])
    assert await client.nodes() is not None
    await client.close()
