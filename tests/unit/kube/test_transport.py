"""Credentials that change, servers that refuse, and how hard we lean on them."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from lockstep.base.errors import BadInput, Reject, Retry
from lockstep.kube.access import read_access
from lockstep.kube.client import KubeClient
from lockstep.kube.errors import (
    AlreadyExists,
    Busy,
    Conflict,
    Denied,
    Expired,
    Invalid,
    KubeError,
    NotFound,
    Unreachable,
)
from lockstep.kube.resources import route_of
from lockstep.kube.settings import KubeClientSettings
from lockstep.kube.transport import failure
from lockstep.runtime.tracing import calling, span
from tests.fakes.kube import FakeKube
from tests.spans import header_of, is_child, kept_spans
from tests.unit.kube.conftest import MakeClient


async def test_a_rotated_token_is_read_again_without_a_failed_call(
    api: FakeKube, make_client: MakeClient, tmp_path: Path
) -> None:
    """BR-128: the token file is replaced and the old token revoked; no caller sees anything of it."""
    token = tmp_path / "token"
    token.write_text("one\n")
    api.tokens = {"one"}
    api.put("nodes", "n")
    kube = await make_client(user={"tokenFile": str(token)})
    for rotation in ("two", "three", "four"):
        assert await kube.list_nodes()
        token.write_text(rotation)
        api.tokens = {rotation}
        answers = await asyncio.gather(*(kube.list_nodes() for _ in range(5)))
        assert all(answers)
    assert api.refused <= 3 * 5
    assert kube.counters.unauthorized == api.refused


async def test_one_reader_reads_the_new_token_for_all(api: FakeKube, make_client: MakeClient, tmp_path: Path) -> None:
    """BR-128: calls one after the other cost one 401 a rotation, not one each."""
    token = tmp_path / "token"
    token.write_text("one")
    api.tokens = {"one"}
    kube = await make_client(user={"tokenFile": str(token)})
    await kube.list_nodes()
    token.write_text("two")
    api.tokens = {"two"}
    for _ in range(10):
        await kube.list_nodes()
    assert api.refused == 1


async def test_a_token_is_read_again_when_it_is_old(api: FakeKube, make_client: MakeClient, tmp_path: Path) -> None:
    """BR-127: nothing has to wake up for it; each request looks at the age, and no 401 is needed."""
    token = tmp_path / "token"
    token.write_text("one")
    api.tokens = {"one", "two"}
    kube = await make_client(user={"tokenFile": str(token)}, reread_s=0.05)
    await kube.list_nodes()
    token.write_text("two")
    await asyncio.sleep(0.06)
    api.tokens = {"two"}
    await kube.list_nodes()
    assert api.refused == 0


async def test_a_token_file_in_mid_rotation_does_no_harm(
    api: FakeKube, make_client: MakeClient, tmp_path: Path
) -> None:
    """A file that is gone for a moment: the known token serves on; with a refused one the answer is try again."""
    token = tmp_path / "token"
    token.write_text("one")
    api.tokens = {"one"}
    kube = await make_client(user={"tokenFile": str(token)}, reread_s=0.01)
    await kube.list_nodes()
    token.unlink()
    await asyncio.sleep(0.02)
    assert await kube.list_nodes() == []
    api.tokens = {"two"}
    with pytest.raises(Unreachable):
        await kube.list_nodes()
    token.write_text("two")
    assert await kube.list_nodes() == []


async def test_a_token_that_stays_wrong_is_denied(api: FakeKube, make_client: MakeClient) -> None:
    """After one more try with what the file says; trying again later is right, dying is not."""
    api.tokens = {"other"}
    kube = await make_client(user={"token": "wrong"})
    with pytest.raises(Denied) as e:
        await kube.list_nodes()
    assert isinstance(e.value, Retry)
    assert e.value.after_s == 30
    assert api.refused == 2
    assert "wrong" not in str(e.value)


async def test_the_service_account_of_a_pod_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a cluster nothing needs to be configured, and the token is read anew each time."""
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    (tmp_path / "token").write_text("one\n")
    (tmp_path / "ca.crt").write_text("a certificate")
    settings = KubeClientSettings(service_account=str(tmp_path))
    access = await read_access(settings)
    assert (access.server.host, access.authorization, access.rereadable) == (
        "https://[fd00::1]:443",
        "Bearer one",
        True,
    )
    (tmp_path / "token").write_text("two")
    again = await read_access(settings)
    assert again.authorization == "Bearer two"
    assert again.server == access.server
    (tmp_path / "ca.crt").write_text("another certificate")
    assert (await read_access(settings)).server != access.server


@pytest.mark.parametrize("missing", ["token", "ca.crt", "KUBERNETES_SERVICE_HOST"])
async def test_a_pod_without_its_account_says_what_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    """A file that is there and empty, or an address that nobody told."""
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1" if missing != "KUBERNETES_SERVICE_HOST" else "")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    for name in ("token", "ca.crt"):
        (tmp_path / name).write_text("" if name == missing else "content")
    with pytest.raises(BadInput, match=missing):
        await read_access(KubeClientSettings(service_account=str(tmp_path)))


async def test_a_pod_loads_no_model_of_kubernetes(tmp_path: Path) -> None:
    """They would take 35 MiB of every pod."""
    (tmp_path / "token").write_text("one")
    (tmp_path / "ca.crt").write_text("a certificate")
    program = f"""
import asyncio, sys
from lockstep.kube.access import read_access
from lockstep.kube.settings import KubeClientSettings
import lockstep.reconciler.main
asyncio.run(read_access(KubeClientSettings(service_account={str(tmp_path)!r})))
print(*(name for name in sys.modules if name.startswith("kubernetes_asyncio.client")))
"""
    environment = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


async def test_no_configuration_is_said_with_its_place(tmp_path: Path) -> None:
    """Whoever set it up must know where we looked."""
    for content in (None, "", "{}", "nonsense: ["):
        path = tmp_path / "kubeconfig"
        if content is not None:
            path.write_text(content)
        with pytest.raises(BadInput, match="kubeconfig"):
            await read_access(KubeClientSettings(kubeconfig=str(path)))


async def test_no_server_is_unreachable_and_says_so(api: FakeKube, make_client: MakeClient) -> None:
    """Connection refused is a wait, not an end."""
    kube = await make_client()
    await api.stop()
    with pytest.raises(Unreachable, match="GET /api/v1/nodes"):
        await kube.list_nodes()


@pytest.mark.parametrize(
    ("code", "body", "error"),
    [
        pytest.param(401, {}, Denied, id="who are you"),
        pytest.param(403, {"message": "forbidden"}, Denied, id="you may not"),
        pytest.param(404, {}, NotFound, id="no such object"),
        pytest.param(409, {"reason": "AlreadyExists"}, AlreadyExists, id="exists"),
        pytest.param(409, {"reason": "Conflict"}, Conflict, id="another version"),
        pytest.param(410, {"reason": "Expired"}, Expired, id="compacted"),
        pytest.param(422, {"details": {"causes": [{"field": "metadata.uid"}]}}, Conflict, id="another uid"),
        pytest.param(422, {"message": "spec.reason: too long"}, Invalid, id="bad content"),
        pytest.param(400, {}, Invalid, id="bad request"),
        pytest.param(429, {"details": {"retryAfterSeconds": 7}}, Busy, id="slow down"),
        pytest.param(500, {}, Unreachable, id="broken"),
        pytest.param(504, {"reason": "Timeout"}, Unreachable, id="etcd is slow"),
    ],
)
def test_each_answer_has_the_error_that_says_what_to_do(
    code: int, body: dict[str, object], error: type[KubeError]
) -> None:
    """One class per thing the caller can do; the class is also the verdict of the bus."""
    got = failure("GET /x", code, json.dumps(body).encode())
    assert type(got) is error
    assert isinstance(got, Retry) is (error not in {NotFound, AlreadyExists, Invalid})
    assert isinstance(got, Reject) is (error is Invalid)


def test_an_answer_that_is_no_status_is_an_error_all_the_same() -> None:
    """A proxy's page, cut and on one line."""
    got = failure("GET /x", 502, b"<html>\n" + b"x" * 5000)
    assert isinstance(got, Unreachable)
    assert len(str(got)) < 400
    assert "\n" not in str(got)


def test_the_server_may_say_when_to_come_back() -> None:
    """In a header or in the Status."""
    header = failure("GET /x", 429, b"{}", "9")
    status = failure("GET /x", 503, b'{"details": {"retryAfterSeconds": 4}}')
    assert isinstance(header, Busy)
    assert isinstance(status, Unreachable)
    assert (header.after_s, status.after_s) == (9, 4)


async def test_requests_are_paced(api: FakeKube, make_client: MakeClient) -> None:
    """After the burst, `qps` requests a second and no more."""
    kube = await make_client(qps=100.0, burst=5)
    clock = asyncio.get_running_loop().time
    begun = clock()
    await asyncio.gather(*(kube.get_node("n") for _ in range(25)))
    assert clock() - begun >= 0.18


async def test_a_server_that_never_answers_is_left_after_the_time_out(api: FakeKube, make_client: MakeClient) -> None:
    """A request has an end, whatever the network does."""
    ended = asyncio.Event()

    async def say_nothing(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await ended.wait()
        writer.close()

    async with await asyncio.start_server(say_nothing, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        api.url = f"http://127.0.0.1:{port}"
        kube = await make_client(timeout_s=0.2)
        with pytest.raises(Unreachable):
            await kube.list_nodes()
        ended.set()
        await asyncio.sleep(0.01)


async def test_each_request_within_a_flow_is_a_span_and_tells_the_server(api: FakeKube, tmp_path: Path) -> None:
    """Its name has no names in it; a refused token is a request of its own; outside of a flow nothing is traced."""
    token = tmp_path / "token"
    token.write_text("old")
    api.put("pods", "gpu-1", "slurm")
    settings = KubeClientSettings(kubeconfig=api.kubeconfig(tmp_path, tokenFile=str(token)))
    with kept_spans() as spans:
        async with KubeClient(settings, calling=calling) as kube:
            await kube.list_nodes()
            token.write_text("new")
            api.tokens = {"new"}
            with span("show-state"):
                await kube.get_pod("slurm", "gpu-1")
    refused, taken = spans.named("GET /api/v1/namespaces/{namespace}/pods/{name}")
    assert [is_child(one, spans["show-state"]) for one in (refused, taken)] == [True, True]
    assert api.traces == ["", header_of(refused), header_of(taken)]
    shown = dict(taken.attributes or {})
    port = shown.pop("server.port")
    assert api.url == f"http://127.0.0.1:{port}"
    assert shown == {
        "http.request.method": "GET",
        "server.address": "127.0.0.1",
        "url.path": "/api/v1/namespaces/slurm/pods/gpu-1",
        "url.template": "/api/v1/namespaces/{namespace}/pods/{name}",
        "http.response.status_code": 200,
    }
    assert (refused.attributes or {})["http.response.status_code"] == 401


@pytest.mark.parametrize(
    ("path", "route"),
    [
        ("/api/v1/nodes", "/api/v1/nodes"),
        ("/api/v1/nodes/host-1/status", "/api/v1/nodes/{name}/status"),
        ("/api/v1/namespaces/slurm/pods", "/api/v1/namespaces/{namespace}/pods"),
        ("/api/v1/namespaces/slurm", "/api/v1/namespaces/{name}"),
        ("/apis/lockstep.sh/v1alpha1/holds", "/apis/lockstep.sh/v1alpha1/holds"),
        (
            "/apis/lockstep.sh/v1alpha1/namespaces/slurm/holds/dimm/status",
            "/apis/lockstep.sh/v1alpha1/namespaces/{namespace}/holds/{name}/status",
        ),
        ("/version", "/version"),
    ],
)
def test_a_route_has_no_names_in_it(path: str, route: str) -> None:
    """One of few, for names of spans and labels of metrics."""
    assert route_of(path) == route
