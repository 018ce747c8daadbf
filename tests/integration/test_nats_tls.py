"""NATS with TLS of an authority of our own, and secrets that change or are missing, on a real nats-server."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from lockstep.bus.connection import Connection, connect
from lockstep.runtime.embedded import HOST
from tests.fakes.nats import NatsServer, nats_server
from tests.integration.test_gaps import eventually


def authority(folder: Path, name: str) -> Path:
    """An authority and a server's certificate signed by it; its own certificate."""

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], check=True, capture_output=True, cwd=folder)

    folder.mkdir(parents=True, exist_ok=True)
    openssl(
        "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-keyout", "ca.key", "-out", "ca.crt"
    )
    openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=nats", "-keyout", "tls.key", "-out", "tls.csr")
    (folder / "more").write_text(f"subjectAltName=IP:{HOST}\n")
    signed = ("x509", "-req", "-in", "tls.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial")
    openssl(*signed, "-extfile", "more", "-out", "tls.crt")
    return folder / "ca.crt"


class TlsNats(NatsServer):
    """With a certificate from the folder `pki` beside its own, if there is one; asks clients for theirs."""

    VERIFY = False

    @property
    def pki(self) -> Path:
        """Where its certificate lies."""
        return self._dir.parent / "pki"

    def _write_files(self) -> None:
        super()._write_files()
        files = [f'{name}_file: "{self.pki / file}"' for name, file in (("cert", "tls.crt"), ("key", "tls.key"))]
        if self.VERIFY:
            files += [f'ca_file: "{self.pki / "ca.crt"}"', "verify: true"]
        with (self._dir / "nats.conf").open("a") as config:
            config.write(f"tls {{ {', '.join(files)} }}\n")


class VerifyingNats(TlsNats):
    """Lets in only clients with a certificate of the authority."""

    VERIFY = True


class Opening:
    """A connection that is being opened, and what was said against it so far."""

    def __init__(self, server: NatsServer, group: asyncio.TaskGroup, **files: str) -> None:
        self.errors: list[str] = []
        self.lost: list[str] = []
        address = server.address
        more = {"user": address.user, "password_file": address.password_file} | files
        self._opening = connect(address.url, name="t", on_error=self.errors.append, on_lost=self.lost.append, **more)
        self.task: asyncio.Task[Connection] = group.create_task(self._opening)  # type: ignore[arg-type]

    async def says(self, text: str) -> None:
        """Waits until that is the newest error."""

        async def said() -> bool:
            return bool(self.errors) and text in self.errors[-1]

        await eventually(said)

    async def opened(self) -> Connection:
        """The connection, at last."""
        async with asyncio.timeout(30):
            return await self.task


async def test_our_own_authority_is_trusted_and_no_other(tmp_path: Path) -> None:
    """Another one is refused for as long as it is in the file; a rotation of the file is enough."""
    ours, theirs = authority(tmp_path / "pki", "ours"), authority(tmp_path / "other", "theirs")
    trusted = tmp_path / "ca.crt"
    trusted.write_bytes(theirs.read_bytes())
    async with nats_server(tmp_path / "nats", TlsNats) as server, asyncio.TaskGroup() as group:
        opening = Opening(server, group, ca_file=str(trusted))
        await opening.says("certificate verify failed")
        assert len(opening.lost) == 1
        trusted.write_bytes(ours.read_bytes())
        connection = await opening.opened()
        trusted.unlink()
        await server.kill()
        await server.again()
        await opening.says(f"nats.ca_file {trusted}: No such file")
        trusted.write_bytes(ours.read_bytes())
        await connection.wait_up(10)
        await connection.close()


async def test_a_server_that_asks_for_our_certificate_gets_it(tmp_path: Path) -> None:
    """Without one it is not opened; the file is looked for at each try."""
    ours = authority(tmp_path / "pki", "ours")
    cert, key = tmp_path / "client.crt", tmp_path / "pki" / "tls.key"
    async with nats_server(tmp_path / "nats", VerifyingNats) as server, asyncio.TaskGroup() as group:
        opening = Opening(server, group, ca_file=str(ours), cert_file=str(cert), key_file=str(key))
        await opening.says(f"nats.cert_file {cert}: cannot be used")
        cert.write_bytes((tmp_path / "pki" / "tls.crt").read_bytes())
        await (await opening.opened()).close()


@pytest.mark.parametrize("ask", [lambda url: (url.replace("nats:", "tls:"), ""), lambda url: (url, "ca.crt")])
async def test_no_password_goes_to_a_server_without_tls(tmp_path: Path, ask: Callable[[str], tuple[str, str]]) -> None:
    """Who asks for TLS by the address or by an authority gets it or nothing."""
    authority(tmp_path, "ours")
    async with nats_server(tmp_path / "nats") as server, asyncio.TaskGroup() as group:
        url, ca = ask(server.address.url)
        errors: list[str] = []
        ca_file = str(tmp_path / ca) if ca else ""
        user, secret = server.address.user, server.address.password_file
        opening = group.create_task(
            connect(url, name="t", user=user, password_file=secret, ca_file=ca_file, on_error=errors.append)
        )
        await asyncio.sleep(1)
        assert errors
        assert {e for e in errors if "does not require TLS" not in e} == set()
        assert not opening.done()
        opening.cancel()


async def test_a_missing_or_wrong_password_is_waited_for(tmp_path: Path) -> None:
    """At the start, and after the server was given another one while we were connected."""
    async with nats_server(tmp_path / "nats") as server, asyncio.TaskGroup() as group:
        secret = tmp_path / "password"
        opening = Opening(server, group, password_file=str(secret))
        await opening.says(f"nats.password_file {secret}: No such file")
        secret.write_text("wrong")
        await opening.says("Authorization Violation")
        secret.write_text(Path(server.address.password_file).read_text())
        connection = await opening.opened()
        watch = group.create_task(connection.run())
        config = tmp_path / "nats" / "nats.conf"
        config.write_text(config.read_text().replace(secret.read_text(), "another"))
        assert server.pid is not None
        opening.errors.clear()
        os.kill(server.pid, signal.SIGHUP)
        await opening.says("Authorization Violation")
        assert not connection.up.is_set()
        secret.write_text("another")
        await connection.wait_up(10)
        assert len(opening.lost) == 2
        watch.cancel()
        await connection.close()
