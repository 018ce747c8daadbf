"""Files with secrets and certificates: whatever is wrong with one is an error that names it, and is tried again."""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import nats
import pytest

from lockstep.bus import client
from lockstep.bus.client import PatientClient, Secrets
from lockstep.bus.connection import connect
from tests.fakes.nats import handled

JWT = "eyJ0eXAiOiJKV1QifQ.e30.c2ln"
SEED = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"
CREDS = f"""-----BEGIN NATS USER JWT-----
{JWT}
------END NATS USER JWT------

************************* IMPORTANT *************************
-----BEGIN USER NKEY SEED-----
{SEED}
------END USER NKEY SEED------
"""


@pytest.mark.parametrize("content", [None, b"", b"\n", b"two\nlines", b"\xff\xfe\x00"])
def test_a_password_that_is_none_names_its_file(tmp_path: Path, content: bytes | None) -> None:
    """Missing, empty, more than one line, no text: the library knows what to do with our error, and tries again."""
    path = tmp_path / "password"
    if content is not None:
        path.write_bytes(content)
    options = PatientClient(Secrets(user="ops", password_file=str(path))).options_of()
    with pytest.raises(nats.errors.Error, match=f"nats.password_file {path}: .*; put the right content there"):
        options["password"]()
    path.write_text("secret\n")
    assert options["password"]() == "secret"


@pytest.mark.parametrize("content", ["", "garbage", CREDS.replace("NKEY", "KEY"), CREDS.replace(SEED, "SUAGARBAGE")])
def test_credentials_that_are_none_name_their_file(tmp_path: Path, content: str) -> None:
    """An empty file too: the library would look for its beginning for ever."""
    path = tmp_path / "creds"
    path.write_text(content)
    ask = PatientClient(Secrets(creds_file=str(path))).options_of()
    with pytest.raises(nats.errors.Error, match=f"nats.creds_file {path}: holds no"):
        ask["user_jwt_cb"](), ask["signature_cb"]("nonce")
    path.write_text(CREDS)
    assert ask["user_jwt_cb"]() == JWT.encode()
    assert len(ask["signature_cb"]("nonce")) == 88


def test_an_error_shows_no_secret(tmp_path: Path) -> None:
    """What stands in the file is not for logs."""
    path = tmp_path / "creds"
    path.write_text(CREDS.replace(SEED, "SUAGARBAGE"))
    with pytest.raises(nats.errors.Error) as error:
        PatientClient(Secrets(creds_file=str(path))).options_of()["signature_cb"]("nonce")
    assert "GARBAGE" not in str(error.value)


def test_certificates_are_read_at_each_handshake(tmp_path: Path) -> None:
    """A bundle that is missing or broken is an error that names it; once it is there it is used."""
    path, key = tmp_path / "ca.crt", tmp_path / "ca.key"
    client = PatientClient(Secrets(ca_file=str(path)))
    with pytest.raises(nats.errors.Error, match=f"nats.ca_file {path}: No such file"):
        client.ssl_context  # noqa: B018
    path.write_text("garbage")
    with pytest.raises(nats.errors.Error, match=f"nats.ca_file {path}: holds no certificate"):
        client.ssl_context  # noqa: B018
    made = (
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-subj",
        "/CN=test",
        "-keyout",
        str(key),
        "-out",
        str(path),
    )
    subprocess.run(["openssl", *made], check=True, capture_output=True)
    assert client.ssl_context.cert_store_stats()["x509_ca"] == 1
    own = PatientClient(Secrets(ca_file=str(path), cert_file=str(path), key_file=str(tmp_path / "none")))
    with pytest.raises(nats.errors.Error, match=f"nats.cert_file {path}: cannot be used"):
        own.ssl_context  # noqa: B018


class SlowServer:
    """Greets at once, and takes its time for each password; it goes on with one whose client has given up."""

    def __init__(self, takes_s: float, *, greets: bool = True, pings: bool = False) -> None:
        self._takes_s = takes_s
        self._greets = greets
        self._pings = pings
        self.tries = 0
        self.heard: list[bytes] = []
        self._one_at_a_time = asyncio.Lock()
        self._serving: list[tuple[asyncio.Task[object] | None, asyncio.StreamWriter]] = []

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Its address."""
        async with await asyncio.start_server(self._serve, "127.0.0.1", 0) as server:
            yield f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            for task, writer in self._serving:
                writer.close()
                if task is not None:
                    task.cancel()
            await asyncio.wait([task for task, _ in self._serving if task is not None])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.tries += 1
        self._serving.append((asyncio.current_task(), writer))
        info = {"server_id": "slow", "version": "2.15.1", "max_payload": 1 << 20, "auth_required": True}
        with suppress(ConnectionError, asyncio.CancelledError):
            if self._greets:
                writer.write(b"INFO " + json.dumps(info).encode() + b"\r\n")
            async with self._one_at_a_time:
                if self._pings:
                    writer.write(b"PING\r\n")
                await asyncio.sleep(self._takes_s)
            while line := await reader.readline():
                self.heard.append(line)
                if line == b"PING\r\n":
                    writer.write(b"PONG\r\n")


async def test_a_server_that_is_slow_to_check_passwords_is_given_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """All come at once, as after its restart, and each is in at its first try: none is given up and checked in vain."""
    monkeypatch.setattr(client, "ANSWER_S", 0.2)
    slow = SlowServer(takes_s=0.05)
    async with slow.serving() as url, asyncio.timeout(20):
        found = await asyncio.gather(*(connect(url, name=f"service-{i}") for i in range(20)))
        assert slow.tries == 20
        for connection in found:
            assert connection.client.options["connect_timeout"] == 0.2, "whether the next is there is known soon"
            await connection.close()


async def test_a_server_that_asks_for_a_sign_of_life_meanwhile_gets_one() -> None:
    """The library takes the ping for the answer, and is neither connected nor tries again."""
    slow = SlowServer(takes_s=0.05, pings=True)
    async with slow.serving() as url, asyncio.timeout(20):
        connection = await connect(url, name="service")
        assert connection.client.is_connected
        assert b"PONG\r\n" in slow.heard
        await connection.client.flush(timeout=30)
        await connection.close()


async def test_a_server_that_says_nothing_is_tried_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be cut off: waiting longer on a connection that is dead would delay the return."""
    monkeypatch.setattr(client, "ANSWER_S", 0.05)
    async with SlowServer(takes_s=60, greets=False).serving() as url:
        patient = PatientClient(Secrets())
        with pytest.raises(TimeoutError):
            await patient.connect([url], **patient.options_of(), allow_reconnect=False)
        assert patient.options["connect_timeout"] == 0.05


async def test_what_was_subscribed_before_is_at_the_server_before_the_ping() -> None:
    """Tests that publish elsewhere next rely on it; the library's own flush overtakes what was just written."""
    server = SlowServer(takes_s=0)
    async with server.serving() as url, asyncio.timeout(20):
        connection = await connect(url, name="test")
        server.heard.clear()
        await connection.client.subscribe("lockstep.event.>")
        await handled(connection.client)
        assert server.heard == [b"SUB lockstep.event.>  1\r\n", b"PING\r\n"]
        await connection.close()
