"""What the labs of one machine share: the kernel's switches and mount points. The last of them puts it back."""

import contextlib
import fcntl
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from . import paths

_SWITCHES = (
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
)
"""What kubelets set, below /proc/sys."""


@dataclass
class Notes:
    """How the machine was before the first of these labs."""

    labs: list[str] = field(default_factory=list)
    switches: dict[str, str] = field(default_factory=dict)
    made: list[str] = field(default_factory=list)
    """Mount points that were made, the parent first."""


def prepare(places: Iterable[str]) -> None:
    """Count this lab; note the switches, and make the mount points that the machine does not have."""
    wanted = {folder for place in places for folder in (Path(place), *Path(place).parents)}
    with _notes() as notes:
        notes.labs = sorted({*notes.labs, paths.LAB})
        notes.switches = read_switches(_SWITCHES) | notes.switches
        notes.made = sorted({*notes.made, *(str(folder) for folder in wanted if not folder.exists())})
        for folder in sorted(wanted):
            folder.mkdir(exist_ok=True)


def restore() -> None:
    """Count this lab no more; the last one puts back what was noted."""
    with _notes() as notes:
        notes.labs = [name for name in notes.labs if name != paths.LAB]
        if notes.labs:
            return
        write_switches(notes.switches)
        for place in reversed(notes.made):
            with contextlib.suppress(OSError):
                Path(place).rmdir()
        notes.switches, notes.made = {}, []


def left() -> list[str]:
    """What is not yet as it was though no lab needs it, a line each."""
    with _notes() as notes:
        return [] if notes.labs else [f"mount point {place}" for place in notes.made]


def read_switches(names: Iterable[str]) -> dict[str, str]:
    """The values of those switches that this kernel has."""
    return {name: switch.read_text().strip() for name in names if (switch := Path("/proc/sys", name)).exists()}


def write_switches(values: dict[str, str]) -> None:
    """Set what is set otherwise."""
    for name, value in values.items():
        if read_switches([name]).get(name, value) != value:
            Path("/proc/sys", name).write_text(value)


@contextmanager
def _notes() -> Iterator[Notes]:
    """The notes, while no other lab reads or changes them; written back when nothing went wrong."""
    with paths.MACHINE.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        notes = Notes(**json.loads(file.read() or "{}"))
        yield notes
        file.truncate(0)
        file.write(json.dumps(asdict(notes), indent=1))
