"""The NATS client, taught what it lacks: secrets read anew at each try, TLS that is insisted on, and no giving up."""

import base64
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import nats
import nkeys
from nats.aio.client import PING_PROTO, PONG_PROTO, Client

ANSWER_S = 2.0
"""How long a server may take to be there: to be reached, and to greet."""
PATIENCE_S = 30.0
"""How long one that has greeted may take for each further step; the chart lets the server take as long in all."""
PAUSE_S = 0.25
"""Between two tries."""
LONG_PAUSE_S = 2.0
"""And at most, when the server greets and then does not let us in."""
_PARTS = re.compile(r"-+BEGIN (NATS USER JWT|USER NKEY SEED)-+\s+(\S+)\s+-+END")


class Secrets(msgspec.Struct, frozen=True, kw_only=True):
    """How to prove who one is, and whom to trust. Names of files; empty for none."""

    user: str = ""
    password_file: str = ""
    creds_file: str = ""
    """Instead of user and password: a JWT and a seed."""
    ca_file: str = ""
    """Certificates to trust instead of the system's. With it, a server without TLS is not spoken to."""
    cert_file: str = ""
    """Our own certificate, for a server that asks for one."""
    key_file: str = ""


class PatientClient(Client):
    """Whatever is wrong with a file or with what the server thinks of it: that is said, and tried again.

    The library itself reads certificates once; looks for credentials in an empty file for ever, with the loop standing
    still; waits for the end of a failed handshake for ever; never reconnects after an error that it does not foresee;
    closes for good when a server no longer likes the password; sends that in clear to one without TLS; gives a server
    the same time at each try; and takes its ping for its answer. Seen with nats-py 2.16.
    """

    def __init__(self, secrets: Secrets) -> None:
        """Reads nothing yet."""
        super().__init__()
        self._secrets = secrets
        self._greeted = False

    def options_of(self) -> dict[str, Any]:
        """What `connect` needs to be given; it asks for the secrets themselves at each try."""
        options: dict[str, Any] = {"connect_timeout": ANSWER_S, "reconnect_time_wait": PAUSE_S}
        if self._secrets.creds_file:
            return options | {"user_jwt_cb": self._jwt, "signature_cb": self._sign}
        if self._secrets.user:
            return options | {"user": self._secrets.user, "password": self._password}
        return options

    @property
    def ssl_context(self) -> ssl.SSLContext:
        """Asked for by the library at each handshake.

        Raises:
            nats.errors.Error: a certificate cannot be used; names the file.
        """
        files = self._secrets
        try:
            context = ssl.create_default_context(cafile=files.ca_file or None)
        except ssl.SSLError as e:
            raise _unusable("ca_file", files.ca_file, "holds no certificate") from e
        except OSError as e:
            raise _unusable("ca_file", files.ca_file, e.strerror or "cannot be read") from e
        if files.cert_file:
            try:
                context.load_cert_chain(files.cert_file, files.key_file or None)
            except OSError as e:
                what = "cannot be used together with its key_file"
                raise _unusable("cert_file", files.cert_file, f"{what}: {e.strerror or e}") from e
        return context

    def _password(self) -> str:
        content = _read("password_file", self._secrets.password_file)
        if not content or not content.isprintable():
            raise _unusable("password_file", self._secrets.password_file, "holds no password")
        return content

    def _jwt(self) -> bytes:
        return self._part("NATS USER JWT").encode()

    def _sign(self, nonce: str) -> bytes:
        seed = self._part("USER NKEY SEED")
        try:
            return base64.b64encode(nkeys.from_seed(bytearray(seed.encode())).sign(nonce.encode()))
        except (nkeys.NkeysError, ValueError) as e:
            raise _unusable("creds_file", self._secrets.creds_file, "holds no seed that can be used") from e

    def _part(self, name: str) -> str:
        parts = dict(_PARTS.findall(_read("creds_file", self._secrets.creds_file)))
        if name not in parts:
            raise _unusable("creds_file", self._secrets.creds_file, f"holds no {name}")
        return str(parts[name])

    async def _process_connect_init(self) -> None:
        """The first exchange. A socket on which it failed is dropped: after half a handshake it never says its end.

        A server that has greeted is there, and busy: a password takes a while to check (bcrypt), and it goes on with
        those of tries that were given up. When all its clients come at once, as after its restart, and give up soon, it
        is never done. So it is given time; and one that will not have us is tried less often.
        """
        self._greeted = False
        try:
            with _answering_pings(self._transport):
                await super()._process_connect_init()
        except BaseException:
            writer = getattr(self._transport, "_io_writer", None)
            if writer is not None:
                writer.transport.abort()
                self._transport = None
            if self._greeted:
                pause = self.options["reconnect_time_wait"]
                self.options["reconnect_time_wait"] = min(2 * pause, LONG_PAUSE_S)
            raise
        finally:
            self.options["connect_timeout"] = ANSWER_S
        self.options["reconnect_time_wait"] = PAUSE_S

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        """The server's first words. The password follows, if it offers what was asked for."""
        scheme = self._current_server.uri.scheme if self._current_server else ""
        wanted = scheme == "tls" or (scheme == "nats" and self._secrets.ca_file)
        if initial_connection and wanted and not info.get("tls_required"):
            raise nats.errors.Error("the server does not require TLS, which nats.url or nats.ca_file asks for")
        if initial_connection:
            self.options["connect_timeout"], self._greeted = PATIENCE_S, True
        await super()._process_info(info, initial_connection)

    async def _process_err(self, err_msg: str) -> None:
        """What the server complains about while connected. It ends the connection then, but for missing permissions."""
        if "permissions violation" in err_msg.lower():
            await super()._process_err(err_msg)
        else:
            await self._process_op_err(nats.errors.Error(f"nats: {err_msg}"))


@contextmanager
def _answering_pings(transport: Any) -> Iterator[None]:
    """While the first exchange goes on, the server's pings are answered and not taken for its answer.

    A server that checks a password for long asks meanwhile whether the client lives (nats-server 2.15). The library
    would take that for the answer: it would be neither connected nor try again, for ever.
    """
    readline = transport.readline

    async def answer() -> bytes:
        while (line := bytes(await readline())) == PING_PROTO:
            transport.write(PONG_PROTO)
            await transport.drain()
        return line

    transport.readline = answer
    try:
        yield
    finally:
        del transport.readline


def _read(field: str, path: str) -> str:
    try:
        return Path(path).expanduser().read_text(encoding="utf-8").strip()
    except OSError as e:
        raise _unusable(field, path, e.strerror or "cannot be read") from e
    except UnicodeDecodeError as e:
        raise _unusable(field, path, "is no text") from e


def _unusable(field: str, path: str, why: str) -> nats.errors.Error:
    return nats.errors.Error(f"nats.{field} {path}: {why}; put the right content there, it is read at each try")
