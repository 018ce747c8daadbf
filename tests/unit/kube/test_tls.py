"""Whom the client trusts."""

import ssl
from pathlib import Path

import pytest
from aiohttp import ClientSession, web

from lockstep.kube.server import Server
from lockstep.kube.session import tls_of
from tests.lab.pki import Pki


async def test_an_authority_without_a_key_usage_is_trusted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Many clusters have one; Python is strict about it from 3.13 on, and so in our image."""
    pki = Pki(tmp_path)
    pki.create(nodes=0)
    monkeypatch.setattr(ssl, "create_default_context", _strict)
    server = Server(host="https://127.0.0.1", authority=pki.file("ca.crt").read_bytes())
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(pki.file("apiserver.crt"), pki.file("apiserver.key"))
    runner = web.AppRunner(web.Application())
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=served).start()
        url = f"https://127.0.0.1:{runner.addresses[0][1]}"
        async with ClientSession() as http, http.get(url, ssl=tls_of(server)) as answer:
            assert answer.status == 404
    finally:
        await runner.cleanup()


def _strict(cadata: str) -> ssl.SSLContext:
    """What `ssl.create_default_context` gives from Python 3.13 on."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.load_verify_locations(cadata=cadata)
    tls.verify_flags |= ssl.VERIFY_X509_STRICT
    return tls
