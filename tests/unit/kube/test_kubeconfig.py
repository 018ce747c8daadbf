"""What we read ourselves of a kubeconfig is what the library reads."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from lockstep.base.errors import BadInput
from lockstep.kube import access
from lockstep.kube.access import Access, read_access
from lockstep.kube.settings import KubeClientSettings

DATA = "QSBjZXJ0aWZpY2F0ZQo="
FILES = {"pki/ca.crt": "an authority\n", "pki/me.crt": "me\n", "pki/me.key": "my key\n", "token": "of a file\n"}
CLUSTERS: dict[str, dict[str, Any]] = {
    "an authority in a file": {"certificate-authority": "pki/ca.crt"},
    "an authority within": {"certificate-authority-data": DATA, "certificate-authority": "not/read"},
    "the machine's authorities": {},
    "nobody is checked": {"insecure-skip-tls-verify": True},
    "another name": {"certificate-authority-data": DATA, "tls-server-name": "kubernetes"},
    "a proxy": {"proxy-url": "http://127.0.0.1:3128", "disable-compression": True},
    "minikube's": {"certificate-authority": "pki/ca.crt", "extensions": [{"name": "cluster_info", "extension": {}}]},
    "a path behind the host": {"server": "https://127.0.0.1:6443/k8s/clusters/c-1/"},
}
USERS: dict[str, dict[str, Any]] = {
    "a certificate in files": {"client-certificate": "pki/me.crt", "client-key": "pki/me.key"},
    "a certificate within": {"client-certificate-data": DATA, "client-key-data": DATA},
    "a token": {"token": "abc"},
    "a token in a file": {"tokenFile": "token"},
    "nothing": {},
}
LOGIN = {"apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "interactiveMode": "Never"}
STATUS = '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"of a program"}}'


def kubeconfig(folder: Path, cluster: dict[str, Any], user: dict[str, Any]) -> Path:
    """A file with what it names beside it, and with a context that is not the current one."""
    for name, content in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(content)
    main = {"cluster": "main", "user": "me", "namespace": "slurm"}
    other = {"cluster": "other", "user": "program"}
    said = {
        "apiVersion": "v1",
        "kind": "Config",
        "preferences": {},
        "current-context": "main",
        "contexts": [{"name": "other", "context": other}, {"name": "main", "context": main}],
        "clusters": [
            {"name": "main", "cluster": {"server": "https://127.0.0.1:6443", **cluster}},
            {"name": "other", "cluster": {"server": "https://127.0.0.2:6443"}},
        ],
        "users": [
            {"name": "program", "user": {"exec": {**LOGIN, "args": ["-c", f"echo '{STATUS}'"]}}},
            {"name": "me", "user": user},
        ],
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.dump(said))
    return path


async def read(path: Path | str, context: str = "") -> Access:
    """As a client does."""
    return await read_access(KubeClientSettings(kubeconfig=str(path), context=context))


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("cluster", CLUSTERS)
async def test_both_read_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cluster: str, user: str) -> None:
    """Server, certificates and token, whatever way they are given."""
    path = kubeconfig(tmp_path, CLUSTERS[cluster], USERS[user])
    with monkeypatch.context() as without:
        without.setattr(access, "_by_library", None)
        ours = await read(path)
    monkeypatch.setattr(access, "read_plain", lambda *_: None)
    library = await read(path)
    assert (ours.server, ours.authorization, ours.rereadable) == (
        library.server,
        library.authorization,
        library.rereadable,
    )


async def test_a_login_program_is_run_by_the_library(tmp_path: Path) -> None:
    """In another context of the same file; and not again and again."""
    found = await read(kubeconfig(tmp_path, {}, USERS["a token"]), "other")
    assert (found.server.host, found.authorization) == ("https://127.0.0.2:6443", "Bearer of a program")
    assert not found.rereadable


async def test_a_password_is_read_by_the_library(tmp_path: Path) -> None:
    """What we do not read ourselves is not left out."""
    found = await read(kubeconfig(tmp_path, {}, {"username": "ops", "password": "secret"}))
    assert found.authorization.startswith("Basic ")


async def test_several_files_are_one(tmp_path: Path) -> None:
    """As KUBECONFIG names them, with colons; the first may be missing."""
    path = kubeconfig(tmp_path, {}, USERS["a token"])
    assert (await read(f"{tmp_path}/missing:{path}")).authorization == "Bearer abc"


@pytest.mark.parametrize("name", ["pki/ca.crt", "pki/me.key"])
@pytest.mark.parametrize("content", [None, "", "\n"])
async def test_a_file_that_is_missing_or_empty_is_named(tmp_path: Path, name: str, content: str | None) -> None:
    """An empty authority would otherwise mean the machine's."""
    path = kubeconfig(tmp_path, CLUSTERS["an authority in a file"], USERS["a certificate in files"])
    (tmp_path / name).unlink()
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(BadInput, match=name):
        await read(path)


async def test_a_context_that_is_not_there_is_named(tmp_path: Path) -> None:
    """By the library, which says it well."""
    with pytest.raises(BadInput, match="third"):
        await read(kubeconfig(tmp_path, {}, USERS["a token"]), "third")


async def test_a_command_loads_no_model_of_kubernetes(tmp_path: Path) -> None:
    """They are more than half of the time that it takes to start."""
    path = kubeconfig(tmp_path, CLUSTERS["an authority within"], USERS["a certificate within"])
    program = f"""
import asyncio, sys
from lockstep.kube.access import read_access
from lockstep.kube.settings import KubeClientSettings
asyncio.run(read_access(KubeClientSettings(kubeconfig={str(path)!r})))
print(*(name for name in sys.modules if name.startswith("kubernetes_asyncio.client")))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
