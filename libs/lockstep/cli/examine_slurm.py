"""What `lockstep doctor` asks of one Slurm cluster."""

from pathlib import Path

import msgspec

from lockstep.base.clock import from_epoch, now
from lockstep.cli import checks
from lockstep.cli.checks import Check, fail, ok, warn
from lockstep.cli.connect import Reach
from lockstep.runtime.settings import ClusterSettings
from lockstep.slurm import wire
from lockstep.slurm.answers import check
from lockstep.slurm.errors import Denied, SlurmError
from lockstep.slurm.port import SlurmApi
from lockstep.slurm.tokens import FileTokens, KeyTokens, Tokens
from lockstep.slurm.transport import Transport


async def cluster(reach: Reach, wanted: ClusterSettings) -> list[Check]:
    """Key or token, version, whether its nodes can be read, and its clock."""
    area = f"slurm {wanted.name}"
    found = secret(area, wanted)
    if any(line.level is checks.Level.FAIL for line in found):
        return found
    slurm = await reach.slurm(wanted.name)
    ping = await slurm.ping()
    found.append(checks.slurm_version(area, ping.version, ping.parser))
    if ping.controllers_up == 0:
        await _denied(slurm)
        found.append(fail(area, "slurmrestd answers, but no slurmctld does", "start slurmctld"))
        return found
    nodes = await slurm.nodes()
    count = len(nodes.nodes) if nodes else 0
    if count:
        found.append(ok(area, f"{count} nodes can be read at {wanted.url}"))
    else:
        found.append(warn(area, "it has no nodes", "is it the right cluster, and have the slurmds registered?"))
    found.append(await _clock(area, wanted, ping.parser))
    return found


async def _denied(slurm: SlurmApi) -> None:
    """To a ping, a wrong key looks like a slurmctld that is away; to a question it does not.

    Raises:
        Denied: it is the key or token.
    """
    try:
        await slurm.nodes()
    except Denied:
        raise
    except SlurmError:
        return


class _Statistics(msgspec.Struct, frozen=True):
    req_time: wire.Number | int | None = None


class _Diag(wire.Reply):
    statistics: _Statistics = _Statistics()


def _tokens(wanted: ClusterSettings) -> Tokens:
    if wanted.key_file:
        return KeyTokens(Path(wanted.key_file).expanduser(), wanted.user)
    return FileTokens(wanted.token_file, wanted.user)


async def _clock(area: str, wanted: ClusterSettings, parser: str) -> Check:
    """slurmctld's clock: `diag` says when it was asked. slurmrestd's answers have no Date header (Slurm 26.05)."""
    transport = Transport(wanted.url, _tokens(wanted))
    sent = now()
    try:
        reply = check(await transport.send("GET", parser, "diag/", transport.who()), _Diag)
    except SlurmError as e:
        return ok(area, f"does not tell its time: {e}")
    finally:
        await transport.close()
    at = wire.number(reply.statistics.req_time) if reply else None
    return checks.skew(area, from_epoch(at or 0), sent, now())


def secret(area: str, wanted: ClusterSettings) -> list[Check]:
    """The file with the key or token: readable, only by us, and not expired. Never shows what is in it."""
    path = Path(wanted.key_file or wanted.token_file).expanduser()
    field = "key_file" if wanted.key_file else "token_file"
    try:
        content = path.read_bytes()
        mode = path.stat().st_mode
    except OSError as e:
        return [fail(area, f"{field} {path}: {e.strerror}", "give the file, and the right to read it")]
    if not content.strip():
        return [fail(area, f"{field} {path}: is empty", "put the key or token there")]
    found = []
    if mode & 0o007:
        found.append(warn(area, f"{field} {path}: everybody on this machine can use it", f"chmod o= {path}"))
    expiry = checks.token(area, content.decode("ascii", "replace"), now()) if wanted.token_file else None
    return [*found, expiry] if expiry else found
