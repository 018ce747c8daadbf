"""Where the token of a request comes from. It is made or read anew for each, so that a rotation interrupts nothing."""

import base64
import hmac
from hashlib import sha256
from pathlib import Path
from typing import Protocol

import msgspec

from lockstep.base import clock
from lockstep.slurm.errors import Denied

USER_HEADER = "X-SLURM-USER-NAME"
TOKEN_HEADER = "X-SLURM-USER-TOKEN"  # noqa: S105 - the header's name

_HINT = "put the key or token there; it is read at each try"


class Tokens(Protocol):
    """A source of tokens."""

    where: str
    """What it is made from, and where that lies, for who must mend it."""

    def headers(self) -> dict[str, str]:
        """The headers that say who asks.

        Raises:
            Denied: there is no key or token; the text says which file.
        """
        ...


class KeyTokens:
    """Mints tokens with Slurm's own key (auth/jwt, HS256) for one of its users."""

    def __init__(self, key_file: Path | str, user: str = "slurm", lifetime_s: int = 300) -> None:
        """`lifetime_s` need only outlast one request and the difference of two clocks."""
        self._key_file = Path(key_file)
        self.where = f"the key in {key_file}"
        self._user = user
        self._lifetime_s = lifetime_s

    def headers(self) -> dict[str, str]:
        """A fresh token. The key file is read each time."""
        issued = int(clock.now().timestamp())
        claims: dict[str, str | int] = {"iat": issued, "exp": issued + self._lifetime_s, "sun": self._user}
        token = mint(_read(self._key_file), claims)
        return {USER_HEADER: self._user, TOKEN_HEADER: token}


class FileTokens:
    """Reads the token that somebody else keeps fresh in a file."""

    def __init__(self, path: Path | str, user: str = "") -> None:
        """`user` only where the token serves several (Slurm's own service tokens)."""
        self._path = Path(path)
        self.where = f"the token in {path}"
        self._user = user

    def headers(self) -> dict[str, str]:
        """The token that is in the file now."""
        token = _read(self._path).decode("ascii", "replace").strip().removeprefix("SLURM_JWT=")
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise Denied(f"{self._path} holds no token; {_HINT}")
        return {TOKEN_HEADER: token} | ({USER_HEADER: self._user} if self._user else {})


def mint(key: bytes, claims: dict[str, str | int]) -> str:
    """A JSON Web Token with these claims, signed HS256."""
    parts = [_encode(msgspec.json.encode(part)) for part in ({"alg": "HS256", "typ": "JWT"}, claims)]
    signed = b".".join(parts)
    return b".".join([signed, _encode(hmac.digest(key, signed, sha256))]).decode("ascii")


def _encode(raw: bytes) -> bytes:
    return base64.urlsafe_b64encode(raw).rstrip(b"=")


def _read(path: Path) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise Denied(f"cannot read {path}: {error.strerror}; {_HINT}") from error
    if not content.strip():
        raise Denied(f"{path} is empty; {_HINT}")
    return content
