"""Certificates, keys and tokens of one lab; made anew by each ``up``, kept in the state folder, mode 0600."""

import json
import os
import secrets
import subprocess
from dataclasses import dataclass
from pathlib import Path

from . import paths, ports

_COMPONENTS = {
    "admin": "system:masters",
    "system:kube-controller-manager": "",
    "system:kube-scheduler": "",
    "system:kube-proxy": "",
    "coredns": "system:masters",
}
"""Users with a static token, and their group."""


@dataclass(frozen=True)
class Pki:
    """Paths of what ``create`` made."""

    folder: Path = paths.STATE / "pki"

    def file(self, name: str) -> Path:
        """Path of one file, such as ``ca.crt``, ``apiserver.key``, ``service-accounts.key`` or ``tokens.csv``."""
        return self.folder / name

    def create(self, nodes: int) -> None:
        """Make the authority, the API server's certificates, the service accounts' key and the static tokens."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._self_signed("ca", "/CN=lockstep-lab")
        names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"]
        addresses = [ports.LOOPBACK, ports.HOST, ports.KUBERNETES_SERVICE]
        alternatives = ",".join([*(f"DNS:{name}" for name in ["localhost", *names]), *(f"IP:{ip}" for ip in addresses)])
        self._signed("apiserver", "/CN=kube-apiserver", f"subjectAltName={alternatives}\nextendedKeyUsage=serverAuth\n")
        self._signed("kubelet-client", "/O=system:masters/CN=kube-apiserver", "extendedKeyUsage=clientAuth\n")
        _openssl("genrsa", "-out", self._key("service-accounts"), "2048")
        _openssl("rsa", "-in", self._key("service-accounts"), "-pubout", "-out", str(self.file("service-accounts.pub")))
        users = _COMPONENTS | {f"system:node:node-{number}": "system:nodes" for number in range(1, nodes + 1)}
        tokens = {user: secrets.token_hex(16) for user in users}
        rows = [f"{token},{user},{user}{f',{users[user]}' if users[user] else ''}" for user, token in tokens.items()]
        paths.write(self.file("tokens.csv"), "\n".join(rows) + "\n", mode=0o600)
        paths.write(self.file("tokens.json"), json.dumps(tokens), mode=0o600)

    def token(self, user: str) -> str:
        """Static token of a component or of the admin."""
        tokens: dict[str, str] = json.loads(self.file("tokens.json").read_text())
        return tokens[user]

    def kubeconfig(self, user: str, server: str, *, token: str | None = None) -> Path:
        """Write a kubeconfig for a user; the token is the user's static one unless given."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "lab",
            "clusters": [
                {"name": "lab", "cluster": {"server": server, "certificate-authority": str(self.file("ca.crt"))}}
            ],
            "users": [{"name": user, "user": {"token": token or self.token(user)}}],
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": user}}],
        }
        name = user.replace(":", "-")
        return paths.write(self.folder / f"{name}.kubeconfig", json.dumps(config, indent=1), mode=0o600)

    def _key(self, name: str) -> str:
        key = self.file(f"{name}.key")
        key.touch(mode=0o600)
        return str(key)

    def _self_signed(self, name: str, subject: str) -> None:
        curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
        out = ("-keyout", self._key(name), "-out", str(self.file(f"{name}.crt")))
        _openssl("req", "-x509", *curve, "-days", "30", "-subj", subject, *out)

    def _signed(self, name: str, subject: str, extensions: str) -> None:
        curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
        request = paths.write(self.file(f"{name}.ext"), extensions).with_suffix(".csr")
        _openssl("req", "-new", *curve, "-subj", subject, "-keyout", self._key(name), "-out", str(request))
        authority = ("-CA", str(self.file("ca.crt")), "-CAkey", str(self.file("ca.key")), "-CAcreateserial")
        files = ("-in", str(request), "-out", str(self.file(f"{name}.crt")), "-extfile", str(self.file(f"{name}.ext")))
        _openssl("x509", "-req", *files, *authority, "-days", "30")


def _openssl(*arguments: str) -> None:
    answer = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False, env=os.environ)
    if answer.returncode != 0:
        raise RuntimeError(f"openssl {arguments[0]}: {answer.stderr.strip()}")
