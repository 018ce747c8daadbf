"""The connection to NATS: never given up, watched, and its silence noticed."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, NoReturn

import msgspec
import nats
from nats.aio.client import Client

from lockstep.base.clock import monotonic
from lockstep.base.errors import Fatal, Retry
from lockstep.base.text import one_line
from lockstep.bus.client import PatientClient, Secrets

API = "$JS.API"
STREAM_NOT_FOUND = 10059
NO_MESSAGE = 10037
WRONG_LAST_SEQUENCE = 10071
PING_EVERY_S = 2.0
PING_PATIENCE_S = 4.0
_FORBIDDEN = re.compile(r'permissions violation for publish to "([^"]+)"')


class ApiError(Retry):
    """JetStream refused. `code` is like HTTP's, `err_code` is JetStream's own number for the reason."""

    def __init__(self, code: int, err_code: int, why: str) -> None:
        super().__init__(one_line(why, limit=200))
        self.code = code
        self.err_code = err_code


class NotAllowed(Retry):
    """The server does not let this user ask that. It may tomorrow: permissions are reloaded without a restart."""


class Connection:
    """One connection. `run` must be running: it finds a server that no longer answers, and a client that is closed."""

    def __init__(self, client: Client, on_lost: Callable[[str], None], on_back: Callable[[float], None]) -> None:
        self.client = client
        self.up = asyncio.Event()
        self.listeners: list[Callable[[], None]] = []
        """Called after each reconnect: what was subscribed may have missed something."""
        self.insists = True
        """Readers wait until they may. False: that they may not is an error, as for a person who waits."""
        self._forbidden: set[str] = set()
        """Subjects, in small letters, that the server has refused to take anything for."""
        self._asking: list[tuple[str, asyncio.Timeout]] = []
        """What was sent to which subject, and how long an answer is waited for."""
        self._on_lost = on_lost
        self._on_back = on_back
        self._lost_at: float | None = None
        self._closing = False

    async def run(self) -> NoReturn:
        """Watches the connection for ever.

        Raises:
            Fatal: the client was closed for good.
        """
        while True:
            await asyncio.sleep(PING_EVERY_S)
            if self.client.is_closed and not self._closing:
                raise Fatal(f"the NATS client is closed: {one_line(str(self.client.last_error), limit=200)}")
            if not self.client.is_connected:
                continue
            try:
                async with asyncio.timeout(PING_PATIENCE_S):
                    with not_swallowed():
                        await self.client.rtt(timeout=PING_PATIENCE_S + 1)  # type: ignore[arg-type]
            except (TimeoutError, nats.errors.Error, OSError):
                self.abort()

    async def call(self, verb: str, body: Any = None, *, timeout_s: float = 5.0) -> dict[str, Any]:
        """One request to JetStream's API, such as `STREAM.INFO.LOCKSTEP_FACTS`.

        Raises:
            ApiError: JetStream refused.
            NotAllowed: the server did, before JetStream was asked.
            Retry: no answer.
        """
        subject = f"{API}.{verb}"
        payload = msgspec.json.encode(body) if body is not None else b""
        try:
            async with self.asking(subject, timeout_s):
                with not_swallowed():
                    answer = await self.client.request(subject, payload, timeout=timeout_s + 1)
        except nats.errors.NoRespondersError as e:
            raise Retry("NATS answers, but JetStream does not") from e
        except (TimeoutError, nats.errors.Error, OSError) as e:
            if subject.lower() in self._forbidden:
                raise NotAllowed(f"this user of NATS may not ask {subject}") from e
            raise Retry(f"JetStream gives no answer: {_text(e)}") from e
        content: dict[str, Any] = msgspec.json.decode(answer.data)
        if error := content.get("error"):
            raise ApiError(int(error.get("code", 0)), int(error.get("err_code", 0)), str(error.get("description", "")))
        return content

    async def wait_up(self, patience_s: float) -> None:
        """Returns at once while connected, else when it is back.

        Raises:
            Retry: not within `patience_s`.
        """
        try:
            async with asyncio.timeout(patience_s):
                await self.up.wait()
        except TimeoutError as e:
            raise Retry(f"NATS is away for {self.away_s():.0f} s") from e

    @asynccontextmanager
    async def asking(self, subject: str, timeout_s: float) -> AsyncIterator[None]:
        """Around a question: its time, which is over at once when the server does not let this user ask it.

        Raises:
            TimeoutError: there is no answer, or will be none.
        """
        key = subject.lower()
        self._forbidden.discard(key)
        async with asyncio.timeout(timeout_s) as patience:
            self._asking.append((key, patience))
            try:
                yield
            finally:
                self._asking.remove((key, patience))

    def complained(self, error: str) -> None:
        """The server tells, some time after a message was sent, that it did not take it."""
        found = set(_FORBIDDEN.findall(error.lower()))
        self._forbidden |= found
        for subject, patience in self._asking:
            if subject in found:
                with suppress(RuntimeError):  # its time is over already
                    patience.reschedule(0)

    def away_s(self) -> float:
        """Seconds since the connection was lost; 0 while connected."""
        return 0.0 if self._lost_at is None else monotonic() - self._lost_at

    async def close(self) -> None:
        """Sends what is still to be sent, and ends, also while the server is away or goes in that moment."""
        self._closing = True
        try:
            async with asyncio.timeout(2):
                await self.client.flush(timeout=1)
        except (TimeoutError, nats.errors.Error, OSError):
            self.abort()
        if not self.client.is_connected:
            self.abort()
        with suppress(nats.errors.Error, OSError):
            await self.client.close()

    async def lost(self, why: str = "") -> None:
        """The client tells us that the connection broke."""
        self.up.clear()
        if self._lost_at is None and not self._closing:
            self._lost_at = monotonic()
            self._on_lost(one_line(why or "connection lost", limit=200))

    async def back(self) -> None:
        """The client tells us that it is connected again."""
        away, self._lost_at = self.away_s(), None
        self.up.set()
        self._on_back(away)
        for listener in list(self.listeners):
            listener()

    def abort(self) -> None:
        """Drops the socket, if there is one, without a farewell; the client then connects anew.

        The client forgets the sockets of tries that failed half-way. And its own way of closing waits until the peer
        has acknowledged everything, which over a dead path takes a quarter of an hour. A transport that is not TCP has
        no such socket; then the client's own pings must do.
        """
        writer = getattr(getattr(self.client, "_transport", None), "_io_writer", None)
        if writer is not None:
            writer.transport.abort()


async def connect(
    url: str,
    *,
    name: str,
    creds_file: str = "",
    user: str = "",
    password_file: str = "",
    ca_file: str = "",
    cert_file: str = "",
    key_file: str = "",
    on_error: Callable[[str], None] = lambda _: None,
    on_lost: Callable[[str], None] = lambda _: None,
    on_back: Callable[[float], None] = lambda _: None,
) -> Connection:
    """Connects to one of the servers in `url` (commas between); waits as long as it takes.

    `on_lost` and `on_back` are called once an outage, with the error and the seconds it lasted; `on_error` with the
    error of each try. Files are read anew at each; see `client.Secrets` for what they hold.
    """
    secrets = Secrets(
        creds_file=creds_file,
        user=user,
        password_file=password_file,
        ca_file=ca_file,
        cert_file=cert_file,
        key_file=key_file,
    )
    client = PatientClient(secrets)
    connection = Connection(client, on_lost, on_back)

    async def tell(error: Exception) -> None:
        if client.is_connected:
            connection.complained(str(error))
        else:
            connection.abort()
            on_error(_text(error))
            await connection.lost(_text(error))

    await client.connect(
        [server.strip() for server in url.split(",")],
        name=name,
        error_cb=tell,
        disconnected_cb=connection.lost,
        reconnected_cb=connection.back,
        max_reconnect_attempts=-1,
        ping_interval=20,
        max_outstanding_pings=2,
        **client.options_of(),
    )
    if connection.away_s():
        await connection.back()
    connection.up.set()
    return connection


@contextmanager
def not_swallowed() -> Iterator[None]:
    """Around calls of the client: a cancellation in them ends the block, whatever becomes of the call.

    The client uses `asyncio.wait_for`, which on Python 3.11 forgets a cancellation that comes together with the answer;
    a loop around such a call would then never end.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task else 0
    try:
        yield
    finally:
        if task and task.cancelling() > before:
            raise asyncio.CancelledError


def _text(error: BaseException) -> str:
    return one_line(str(error) or type(error).__name__, limit=200)
