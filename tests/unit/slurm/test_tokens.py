import base64
import hmac
import json
from hashlib import sha256
from pathlib import Path

import pytest

from lockstep.base import clock
from lockstep.slurm.errors import Denied
from lockstep.slurm.tokens import TOKEN_HEADER, USER_HEADER, FileTokens, KeyTokens, mint


def _part(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def test_a_minted_token_is_signed_and_says_who_and_until_when(tmp_path: Path) -> None:
    """HS256 over header and claims, with exp, iat and sun, as auth/jwt wants it."""
    key = tmp_path / "key"
    key.write_bytes(b"\x00secret\xff\n")
    headers = KeyTokens(key, "slurm", lifetime_s=120).headers()
    head, claims, signature = headers[TOKEN_HEADER].split(".")
    assert json.loads(_part(head)) == {"alg": "HS256", "typ": "JWT"}
    said = json.loads(_part(claims))
    assert (said["sun"], said["exp"] - said["iat"]) == ("slurm", 120)
    assert abs(said["iat"] - clock.now().timestamp()) < 5
    assert _part(signature) == hmac.digest(b"\x00secret\xff\n", f"{head}.{claims}".encode(), sha256)
    assert headers[USER_HEADER] == "slurm"


def test_a_known_token_is_minted_to_the_letter() -> None:
    """The example that every description of JSON Web Tokens shows."""
    assert mint(b"your-256-bit-secret", {"sub": "1234567890", "name": "John Doe", "iat": 1516239022}) == (
        "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9"
        ".eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4gRG9lIiwiaWF0IjoxNTE2MjM5MDIyfQ"
        ".SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c"
    )


def test_an_exchanged_key_is_used_at_once(tmp_path: Path) -> None:
    """There is nothing to refresh and nothing that can miss its time."""
    key = tmp_path / "key"
    key.write_bytes(b"old")
    tokens = KeyTokens(key)
    old = tokens.headers()[TOKEN_HEADER]
    key.write_bytes(b"new")
    assert tokens.headers()[TOKEN_HEADER] != old


def test_a_token_file_is_read_at_each_use(tmp_path: Path) -> None:
    """A rotation is picked up by the next request."""
    path = tmp_path / "token"
    path.write_text("eyJ.a.b\n")
    tokens = FileTokens(path)
    assert tokens.headers() == {TOKEN_HEADER: "eyJ.a.b"}
    path.write_text("SLURM_JWT=eyJ.c.d\n")
    assert tokens.headers() == {TOKEN_HEADER: "eyJ.c.d"}
    assert FileTokens(path, "slurm").headers()[USER_HEADER] == "slurm"


@pytest.mark.parametrize("content", [b"", b"  \n", b"\xff\xfe", b"two words", b"a\nInjected: header"])
def test_a_file_without_a_token_is_denied_and_named(tmp_path: Path, content: bytes) -> None:
    """Empty or garbage: the text names the file and not what is in it."""
    path = tmp_path / "token"
    path.write_bytes(content)
    with pytest.raises(Denied, match=str(path)) as caught:
        FileTokens(path).headers()
    assert "words" not in str(caught.value)
    assert "Injected" not in str(caught.value)


def test_a_missing_file_is_denied_and_named_and_healed(tmp_path: Path) -> None:
    """Before the first installation is through there is no key; when it is there, all is well."""
    path = tmp_path / "key"
    for tokens in (KeyTokens(path), FileTokens(path)):
        with pytest.raises(Denied, match=str(path)):
            tokens.headers()
    path.write_text("eyJ.a.b")
    assert KeyTokens(path).headers()
    assert FileTokens(path).headers()


def test_an_empty_key_signs_nothing(tmp_path: Path) -> None:
    """Anybody could make such a token."""
    path = tmp_path / "key"
    path.write_bytes(b"")
    with pytest.raises(Denied, match="empty"):
        KeyTokens(path).headers()
