"""Which parser is spoken, and what happens when Slurm has another one from now on."""

import json

import pytest
from structlog.testing import capture_logs

from lockstep.slurm.client import SlurmRest
from lockstep.slurm.errors import Refused, Unreachable, Unsupported
from tests.fakes.slurm import NEW, OLD, Release
from tests.fakes.slurm_faults import Fault
from tests.fakes.slurmrestd import FakeSlurmrestd, fake_slurm
from tests.unit.slurm.conftest import WORDS, client_of

PLUGIN = json.dumps({"errors": [{"error_number": 8002, "error": "Plugin not supported"}]})


def parsers(*names: str) -> Release:
    """A new Slurm that speaks these."""
    return Release(name="26.11.0", parsers=names, refused=422, undrain_clears_reason=True, stamp_works=True)


@pytest.mark.parametrize(
    ("offered", "spoken"),
    [
        (("v0.0.42", "v0.0.43", "v0.0.44", "v0.0.45"), "v0.0.45"),
        (("v0.0.41", "v0.0.42", "v0.0.43", "v0.0.44"), "v0.0.44"),
        (("v0.0.40", "v0.0.41", "v0.0.42"), "v0.0.42"),
    ],
)
async def test_the_newest_parser_in_common_is_spoken(offered: tuple[str, ...], spoken: str) -> None:
    """Found by asking at its own address, once."""
    async with fake_slurm("gpu-1", release=parsers(*offered)) as fake:
        client = client_of(fake)
        assert (await client.ping()).parser == spoken
        await client.nodes()
        await client.nodes()
        assert fake.count("GET ping/") <= 5
        await client.close()


async def test_an_upgrade_of_slurm_while_we_run_goes_unnoticed() -> None:
    """The address is gone, another is found, the request is answered, and the change is told once."""
    async with fake_slurm("gpu-1", release=parsers("v0.0.41", "v0.0.42", "v0.0.43")) as fake:
        client = client_of(fake)
        assert (await client.ping()).parser == "v0.0.43"
        fake.release = parsers("v0.0.44", "v0.0.45")
        with capture_logs() as logs:
            assert (await client.drain(["gpu-1"], WORDS)).done == ["gpu-1"]
            assert await client.nodes() is not None
        assert [(entry["parser"], entry["was"]) for entry in logs] == [("v0.0.45", "v0.0.43")]
        await client.close()


async def test_no_parser_in_common_is_said_and_heals() -> None:
    """Unsupported until Slurm is one of ours, with no restart of anything."""
    async with fake_slurm("gpu-1", release=parsers("v0.0.46", "v0.0.47")) as fake:
        client = client_of(fake)
        with pytest.raises(Unsupported, match=r"v0\.0\.45"):
            await client.nodes()
        fake.release = NEW
        assert await client.nodes() is not None
        await client.close()


@pytest.mark.parametrize("where", ["GET nodes/", "GET ping/"])
async def test_an_odd_plugin_error_is_asked_again(fake: FakeSlurmrestd, slurm: SlurmRest, where: str) -> None:
    """A daemon that has just started may deny what it has: twice wrong, then right, is right."""
    fake.fail(Fault(on=where, times=2, status=500, body=PLUGIN))
    assert await slurm.nodes() is not None


async def test_a_lasting_plugin_error_is_said_and_heals(fake: FakeSlurmrestd, slurm: SlurmRest) -> None:
    """Bounded tries, then Unsupported; later it works again by itself."""
    fake.fail(Fault(on="GET nodes/", times=3, status=500, body=PLUGIN))
    with pytest.raises(Unsupported):
        await slurm.nodes()
    assert fake.count("GET nodes/") == 3
    assert await slurm.nodes() is not None


async def test_a_write_to_an_address_that_is_gone_is_said_again(fake: FakeSlurmrestd, slurm: SlurmRest) -> None:
    """It was not carried out, so it is no lost answer."""
    fake.fail(Fault(on="POST nodes/", status=404, body="Unable to find requested URL", content_type="text/plain"))
    assert (await slurm.drain(["gpu-1"], WORDS)).done == ["gpu-1"]


async def test_requeue_is_refused_by_a_parser_without_it() -> None:
    """Nothing is sent that Slurm would take for something else."""
    async with fake_slurm("gpu-1", release=OLD) as fake:
        client = client_of(fake)
        with pytest.raises(Refused, match="cannot requeue"):
            await client.requeue(fake.start_job(["gpu-1"]))
        assert not any(call.startswith("POST") for call in fake.calls)
        await client.close()


async def test_after_an_outage_the_parser_is_looked_for_again(fake: FakeSlurmrestd, slurm: SlurmRest) -> None:
    """A restart may have been an upgrade, to a better one too."""
    fake.release = parsers("v0.0.43")
    assert (await slurm.ping()).parser == "v0.0.43"
    fake.release = NEW
    fake.fail(Fault(on="GET nodes/", cut=True))
    with pytest.raises(Unreachable):
        await slurm.nodes()
    assert (await slurm.ping()).parser == "v0.0.45"
