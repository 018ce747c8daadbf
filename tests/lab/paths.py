"""Where the lab keeps things. Nothing lies in the checkout.

* cache: what was built or bootstrapped, keyed by version; survives ``down``; safe to delete while the lab is down.
* state: the running lab's data and secrets (certificates, etcd, containerd's stores, process records); mode 0700.
* run: sockets. logs: one file for each process, kept after ``down``.

Labs side by side (see ``apart``) have a name each, and so have their folders; they share the cache.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CACHE = Path(os.environ.get("LOCKSTEP_LAB_CACHE") or Path.home() / ".cache" / "lockstep-lab")
LAB = "-".join(filter(None, ["lockstep-lab", os.environ.get("LOCKSTEP_LAB_NAME")]))
STATE = Path("/var/lib", LAB)
RUN = Path("/run", LAB)
LOGS = Path("/var/log", LAB)
LOCK = Path("/run", f"{LAB}.lock")
MACHINE = Path("/run/lockstep-lab.machine")
"""How the machine was before the labs that are on it; see ``machine``."""

HERE = Path(__file__).resolve().parent
"""The folder of this package."""

CHECKOUT = HERE.parent.parent
"""The checkout this lab was started from; named in the lock so that another one is recognised."""


def prepare() -> None:
    """Create the folders of a running lab. Needs root."""
    for folder, mode in ((STATE, 0o711), (RUN, 0o755), (LOGS, 0o755)):
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(mode)


def write(path: Path, text: str | bytes, *, mode: int = 0o644) -> Path:
    """Write a file so that a reader sees the old content or the new one, never a part; create its folder.

    ``mode`` holds from the first byte on, so that a secret is never readable by others.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as out:
        out.write(text.encode() if isinstance(text, str) else text)
    draft.chmod(mode)
    draft.replace(path)
    return path


@contextmanager
def one_builder(of: Path) -> Iterator[None]:
    """Wait until nobody else on the machine builds the same; the lock is a file beside what is built.

    Afterwards it may be there: look again.
    """
    of.parent.mkdir(parents=True, exist_ok=True)
    with of.with_name(f"{of.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
