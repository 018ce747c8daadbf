"""The proxy in front of slurmrestd must fail exactly as it is told to, and otherwise not be noticed."""

import http.client
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.lab.proxy import Fault, Proxy

CHECKOUT = Path(__file__).parents[3]
BIG = b"x" * 3_000_000


class Slurmrestd(BaseHTTPRequestHandler):
    """Answers as slurmrestd frames its answers, and remembers what was written."""

    protocol_version = "HTTP/1.1"
    written: ClassVar[list[bytes]] = []

    def do_GET(self) -> None:
        """The big list, or 304."""
        self._answer(304 if "update_time" in self.path else 200, BIG)

    def do_POST(self) -> None:
        """A write: done, then answered."""
        self.written.append(self.rfile.read(int(self.headers["Content-Length"])))
        self._answer(200, b"{}")

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", "0" if status == 304 else str(len(body)))
        self.end_headers()
        if status != 304:
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


class Site:
    """A proxy with a slurmrestd behind it."""

    def __init__(self, proxy: Proxy, port: int, written: list[bytes]) -> None:
        self.proxy, self.port, self.written = proxy, port, written

    def connect(self, timeout_s: float = 5) -> http.client.HTTPConnection:
        """A client's connection."""
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)

    def ask(self, method: str = "GET", path: str = "/nodes/", body: bytes | None = None) -> tuple[int, bytes]:
        """One request on a connection of its own: status and body."""
        connection = self.connect()
        try:
            connection.request(method, path, body)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One proxy process for all tests."""
    behind = ThreadingHTTPServer(("127.0.0.1", 0), Slurmrestd)
    threading.Thread(target=behind.serve_forever, daemon=True).start()
    control = tmp_path_factory.mktemp("proxy") / "control.sock"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ports = ["--port", str(port), "--upstream-port", str(behind.server_port)]
    argv = ["-m", "tests.lab.proxy_server", "--listen", "127.0.0.1", *ports, "--control", str(control)]
    process = subprocess.Popen([sys.executable, *argv], cwd=CHECKOUT)
    try:
        deadline = time.monotonic() + 10
        while not control.exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield Site(Proxy(control), port, Slurmrestd.written)
    finally:
        process.kill()
        process.wait()
        behind.shutdown()
        behind.server_close()


@pytest.fixture
def site(running: Site) -> Site:
    """The proxy without faults and memories."""
    running.proxy.clear()
    running.proxy.forget()
    running.written.clear()
    return running


def test_passes_a_big_answer_on_unchanged(site: Site) -> None:
    """Without a fault the client gets what slurmrestd sent, to the last byte."""
    assert site.ask() == (200, BIG)


def test_passes_writes_and_answers_without_a_body_on_the_same_connection(site: Site) -> None:
    """A 304 has no body, and what follows it on the connection is still understood."""
    connection = site.connect()
    seen = []
    for method, path in (("GET", "/nodes/?update_time=1"), ("POST", "/node/gpu-1"), ("GET", "/nodes/")):
        connection.request(method, path, b'{"state":"DRAIN"}' if method == "POST" else None)
        answer = connection.getresponse()
        seen.append((answer.status, len(answer.read())))
    connection.close()

    assert seen == [(304, 0), (200, 2), (200, len(BIG))]
    assert site.written == [b'{"state":"DRAIN"}']


def test_counts_requests_by_method_and_path(site: Site) -> None:
    """The query is no part of the path, and forgetting starts from zero."""
    site.ask("GET", "/nodes/?update_time=1")
    site.ask("GET", "/nodes/")
    site.ask("POST", "/node/gpu-1", b"{}")

    assert site.proxy.requests() == {"GET /nodes/": 2, "POST /node/gpu-1": 1}
    site.proxy.forget()
    assert site.proxy.requests() == {}


def test_remembers_what_was_passed_on_and_when(site: Site) -> None:
    """In the order of the answers; what was not passed on is not among them."""
    began = time.time()  # noqa: TID251  the clock of another process
    site.ask("POST", "/nodes/?a=b", b'{"name": ["gpu-1"]}')
    site.proxy.set("status", code=503, times=1)
    site.ask("POST", "/nodes/", b"refused")
    site.ask("GET", "/node/gpu-1")

    write, read = site.proxy.passed()[-2:]
    assert (write.method, write.path, write.body) == ("POST", "/nodes/", '{"name": ["gpu-1"]}')
    assert (read.method, read.path, read.body) == ("GET", "/node/gpu-1", "")
    assert began <= write.began <= write.ended <= read.began <= read.ended


@pytest.mark.parametrize("code", [401, 429, 500, 502, 503, 504, 511])
def test_answers_with_a_status_without_asking_slurmrestd(site: Site, code: int) -> None:
    """A status is the proxy's own answer; the write is not done."""
    site.proxy.set("status", code=code)

    status, body = site.ask("POST", "/node/gpu-1", b"{}")

    assert (status, site.written) == (code, [])
    assert body


def test_answers_200_with_errors_and_no_data(site: Site) -> None:
    """Success by status, failure by content, as slurmrestd does it."""
    site.proxy.set("errors")

    status, body = site.ask()

    assert status == 200
    assert json.loads(body)["errors"][0]["error_number"]
    assert "nodes" not in json.loads(body)


def test_breaks_off_in_the_middle_of_a_body(site: Site) -> None:
    """The head promises more than comes."""
    site.proxy.set("half_body")

    with pytest.raises(http.client.IncompleteRead) as broken:
        site.ask()

    assert len(broken.value.partial) == len(BIG) // 2


def test_never_answers_while_it_hangs_and_answers_others_after(site: Site) -> None:
    """A hanging request stays without an answer; clearing lets new ones through."""
    site.proxy.set("hang")
    waiting = site.connect(timeout_s=0.2)
    waiting.request("GET", "/nodes/")
    with pytest.raises(TimeoutError):
        waiting.getresponse()
    site.proxy.clear()
    status, _ = site.ask()
    waiting.close()

    assert status == 200


def test_refuses_connections_and_resets_open_ones(site: Site) -> None:
    """A closed port for newcomers, a reset for who is connected; afterwards all is as before."""
    kept = site.connect()
    kept.request("GET", "/nodes/?update_time=1")
    kept.getresponse().read()
    site.proxy.set("refuse")

    with pytest.raises(ConnectionRefusedError):
        site.ask()
    with pytest.raises(ConnectionError):
        kept.sock.recv(1)
    kept.close()
    site.proxy.clear()
    assert site.ask()[0] == 200


def test_fails_every_third_request(site: Site) -> None:
    """Flaky is regular, so that a test can count on it."""
    site.proxy.set("flaky", every=3)

    assert [site.ask("POST", "/x", b"")[0] for _ in range(6)] == [200, 200, 503, 200, 200, 503]


def test_loses_the_answer_of_a_write_that_was_done(site: Site) -> None:
    """The next POST is done and its answer lost; reads before it and the write after it are untouched."""
    site.proxy.set("drop_answer", method="POST", times=1)

    assert site.ask("GET", "/nodes/")[0] == 200
    with pytest.raises((ConnectionError, http.client.RemoteDisconnected)):
        site.ask("POST", "/node/gpu-1", b"first")
    assert site.ask("POST", "/node/gpu-1", b"second")[0] == 200
    assert site.written == [b"first", b"second"]


def test_delays_only_the_path_it_is_told(site: Site) -> None:
    """A delay is on top of slurmrestd's own time."""
    site.proxy.set("delay", ms=200, path="/node/")

    begun = time.monotonic()
    site.ask("GET", "/nodes/?update_time=1")
    undelayed = time.monotonic() - begun
    begun = time.monotonic()
    site.ask("POST", "/node/gpu-1", b"{}")

    assert undelayed < 0.2 <= time.monotonic() - begun


@pytest.mark.parametrize(
    ("mode", "numbers"),
    [("hum", {}), ("status", {"code": 418}), ("flaky", {"every": 0}), ("refuse", {"method": "POST"})],
)
def test_a_fault_that_would_do_nothing_is_refused(mode: Any, numbers: dict[str, Any]) -> None:
    """A misspelt fault must not let a test pass."""
    with pytest.raises(ValueError, match=r"allowed|cannot"):
        Fault(mode=mode, **numbers)
