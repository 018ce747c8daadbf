"""What Lockstep did to a worker, and what it found amiss."""

from lockstep.contracts.events.base import WorkerEvent


class DrainSet(WorkerEvent, frozen=True, kw_only=True, omit_defaults=True, tag="worker.drain-set.v1"):
    """Slurm acknowledged our DRAIN of the worker; its jobs may still run, see `drain.*`."""

    words: str
    """The reason that we set."""


class DrainLifted(WorkerEvent, frozen=True, kw_only=True, omit_defaults=True, tag="worker.drain-lifted.v1"):
    """Slurm acknowledged our UNDRAIN of the worker; `words` was the reason."""

    words: str = ""
    """The reason that stood."""


class ProtectionOn(WorkerEvent, frozen=True, kw_only=True, omit_defaults=True, tag="worker.protected.v1"):
    """The worker's pod is now protected from eviction."""

    why: str = ""
    """Why it has to be."""


class ProtectionOff(WorkerEvent, frozen=True, kw_only=True, omit_defaults=True, tag="worker.unprotected.v1"):
    """The worker's pod may now be evicted."""

    why: str = ""
    """Why it need not be."""


class WriteRefused(WorkerEvent, frozen=True, kw_only=True, omit_defaults=True, tag="worker.write-refused.v1"):
    """Slurm or Kubernetes refused a write on the worker; it is tried again."""

    write: str
    """What was to be written."""
    error: str
    """What the answer was."""


class DriftFound(WorkerEvent, frozen=True, kw_only=True, omit_defaults=True, tag="worker.drift-found.v1"):
    """The two systems disagree in a way that should not last; says which rule is broken."""

    rule: str
    """The rule that is broken."""
    detail: str = ""
    """By what."""
