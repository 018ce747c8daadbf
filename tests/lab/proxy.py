"""A small HTTP proxy in front of slurmrestd that can be told to misbehave, and that counts what was asked.

It is a process of its own (``python -m tests.lab.proxy``); :class:`Proxy` tells it what to do over a unix socket.
Without a fault it passes requests on as they are, one connection behind each connection in front, so that what the
client sees is slurmrestd itself.

>>> proxy = Proxy(Path("/run/…/proxy.sock"))
>>> proxy.set("status", code=503, times=2)        # the next two requests
>>> proxy.set("drop_answer", method="POST", times=1)
>>> proxy.clear(); proxy.requests()["POST /slurm/v0.0.45/nodes/"]
"""

import json
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

Mode = Literal["pass", "delay", "status", "errors", "half_body", "hang", "refuse", "flaky", "drop_answer"]
"""What is done to a request.

* pass: nothing.
* delay: passed on `ms` later.
* status: answered with `code` and the body slurmrestd or a load balancer would send; not passed on.
* errors: answered 200 with `errors[]` and no data, as slurmrestd does for what it refuses; not passed on.
* half_body: passed on; the answer breaks off in the middle of its body.
* hang: never answered, not passed on.
* refuse: the port is closed and all connections are reset.
* flaky: every `every`-th is answered with `code`.
* drop_answer: passed on and done; the connection is reset instead of the answer.
"""

CODES = (401, 429, 500, 502, 503, 504, 511)
"""What `status` and `flaky` can answer. 511 is how slurmrestd calls a bad token, 504 that slurmctld does not answer."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A mode, its numbers, and which requests it is for."""

    mode: Mode = "pass"
    ms: float = 0
    code: int = 503
    every: int = 2
    method: str = ""
    """Only requests of this method; empty: all."""
    path: str = ""
    """Only requests whose path contains this; empty: all."""
    times: int = 0
    """Only the first so many of them; 0: until cleared."""

    def __post_init__(self) -> None:
        """Refuse what would silently do nothing."""
        if self.mode not in get_args(Mode):
            raise ValueError(f"mode is {self.mode!r}, allowed are {', '.join(get_args(Mode))}")
        if self.mode in {"status", "flaky"} and self.code not in CODES:
            raise ValueError(f"code is {self.code}, allowed are {', '.join(map(str, CODES))}")
        if self.every < 1:
            raise ValueError(f"every is {self.every}, at least 1 is allowed")
        if self.mode == "refuse" and (self.method or self.path or self.times):
            raise ValueError("refuse closes the port: it cannot be for some requests only")


class Passed(NamedTuple):
    """A request that was passed on, from when it came to when its answer was handed back, by the machine's clock."""

    began: float
    ended: float
    method: str
    path: str
    body: str


class Proxy:
    """The proxy as a test sees it."""

    def __init__(self, control: Path) -> None:
        self._control = control

    def set(self, mode: Mode, **numbers: Any) -> None:
        """From now on do this; `numbers` are the fields of :class:`Fault`. Replaces what was set before."""
        self._tell({"do": "set", "fault": asdict(Fault(mode=mode, **numbers))})

    def clear(self) -> None:
        """Pass everything on again. What hangs goes on hanging until its client gives up."""
        self._tell({"do": "set", "fault": asdict(Fault())})

    def requests(self) -> dict[str, int]:
        """How often was asked, by method and path without the query, since the start or :meth:`forget`."""
        return dict(self._tell({"do": "requests"}))

    def passed(self) -> list[Passed]:
        """The last thousands of requests that were answered, in the order of their answers."""
        return [Passed(*each) for each in self._tell({"do": "passed"})]

    def forget(self) -> None:
        """Count from zero again."""
        self._tell({"do": "forget"})

    def _tell(self, order: dict[str, Any]) -> Any:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(10)
            connection.connect(str(self._control))
            connection.sendall(json.dumps(order).encode() + b"\n")
            with connection.makefile("rb") as answer:
                return json.loads(answer.readline())
