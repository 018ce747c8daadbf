"""Files with secrets and certificates: whatever is wrong with one is an error that names it, and is tried again."""

import subprocess
from pathlib import Path

import nats
import pytest

from lockstep.bus.client import PatientClient, Secrets

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
    client = PatientClient(Secrets(user="ops", password_file=str(path)))
    with pytest.raises(nats.errors.Error, match=f"nats.password_file {path}: .*; put the right content there"):
        client.options_of()["password"]()
    path.write_text("secret\n")
    assert client.options_of()["password"]() == "secret"


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
