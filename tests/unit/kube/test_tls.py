"""Whom the client trusts."""

import ssl
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import ClientError, ClientSession, web

from lockstep.kube.server import Server
from lockstep.kube.session import tls_of
from tests.lab.pki import Pki


@pytest.fixture(name="pki")
def _pki(tmp_path: Path) -> Pki:
    """Certificates as a cluster has them."""
    pki = Pki(tmp_path)
    pki.create(nodes=0)
    return pki


async def test_an_authority_without_a_key_usage_is_trusted(monkeypatch: pytest.MonkeyPatch, pki: Pki) -> None:
    """Many clusters have one; Python is strict about it from 3.13 on, and so in our image."""
    monkeypatch.setattr(ssl, "create_default_context", _strict)
    async with serving(pki) as url, ClientSession() as http, http.get(url, ssl=tls_of(server_of(pki))) as answer:
        assert answer.status == 404


async def test_our_certificate_is_shown_and_its_key_stays_nowhere(
    monkeypatch: pytest.MonkeyPatch, pki: Pki, tmp_path: Path
) -> None:
    """A server that asks for one takes it, and refuses whoever has none."""
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(empty))
    certificate, key = (pki.file(f"kubelet-client.{kind}").read_bytes() for kind in ("crt", "key"))
    async with serving(pki, asks=True) as url, ClientSession() as http:
        async with http.get(url, ssl=tls_of(server_of(pki, certificate=certificate, key=key))) as answer:
            assert answer.status == 404
        with pytest.raises(ClientError):
            await http.get(url, ssl=tls_of(server_of(pki)))
    assert list(empty.iterdir()) == []


def server_of(pki: Pki, **ours: bytes) -> Server:
    """The API server, as we know it."""
    return Server(host="https://127.0.0.1", authority=pki.file("ca.crt").read_bytes(), **ours)


@asynccontextmanager
async def serving(pki: Pki, *, asks: bool = False) -> AsyncIterator[str]:
    """An API server that has nothing; its address. `asks` for a certificate of the same authority."""
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(pki.file("apiserver.crt"), pki.file("apiserver.key"))
    if asks:
        served.verify_mode = ssl.CERT_REQUIRED
        served.load_verify_locations(pki.file("ca.crt"))
    runner = web.AppRunner(web.Application())
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=served).start()
        yield f"https://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def _strict(cadata: str) -> ssl.SSLContext:
    """What `ssl.create_default_context` gives from Python 3.13 on."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.load_verify_locations(cadata=cadata)
    tls.verify_flags |= ssl.VERIFY_X509_STRICT
    return tls
