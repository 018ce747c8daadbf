"""Where the API server is, and whom to trust there."""

from pathlib import Path

import msgspec


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """Where the API server is, whom to trust there, and which certificate we show; what connections are made with."""

    host: str
    """With scheme and port."""
    authority: bytes | None = None
    """PEM, as are the others; None trusts whom the machine trusts."""
    certificate: bytes | None = None
    key: bytes | None = None
    verify: bool = True
    name: str | None = None
    """In the server's certificate, if not the host's."""
    proxy: str | None = None

    def __repr__(self) -> str:
        """Without the key."""
        return f"Server({self.host})"


def pem(path: str | Path) -> bytes:
    """The file's content. Raises ValueError when it is empty: nobody in particular would be trusted, or shown."""
    content = Path(path).read_bytes()
    if not content.strip():
        raise ValueError(f"{path}: empty")
    return content
