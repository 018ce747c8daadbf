"""The conditions Lockstep shows on pods and nodes. Pure: the same state gives the same list, and then no write."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import lru_cache

import msgspec

from lockstep.base.text import one_line
from lockstep.contracts.facts import Desired
from lockstep.contracts.hold import Condition
from lockstep.kube import keys

MAX_MESSAGE = 1024
"""Characters of a condition's message; Slurm's reasons are far shorter."""

SHOWN_FLAGS = frozenset(
    {"COMPLETING", "DRAIN", "FAIL", "INVALID", "INVALID_REG", "MAINTENANCE", "NOT_RESPONDING", "UNDRAIN"}
)
"""Flags that slurm-operator shows as conditions."""

SILENT_FLAGS = frozenset(
    {
        "BLOCKED", "CLOUD", "DYNAMIC_FUTURE", "DYNAMIC_NORM", "EXTERNAL", "PLANNED", "RESERVED", "RESUME",
        "POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "POWER_DOWN", "POWER_DRAIN", "POWER_UP",
        "REBOOT_CANCELED", "REBOOT_ISSUED", "REBOOT_REQUESTED",
    }
)  # fmt: skip
"""Flags that slurm-operator knows and does not show."""


def slurm_conditions(base: str, flags: Iterable[str], reason: str) -> list[Condition]:
    """The conditions of a pod whose Slurm node has this base state and these flags, sorted by type.

    Named as slurm-operator names them: `SlurmNodeState` and the word in CamelCase (`SlurmNodeStateNotResponding`),
    status True, the Slurm reason as message. A state that does not hold has no condition; there is never a False.
    `SILENT_FLAGS` are left out as slurm-operator leaves them out; a word that neither list knows (a newer Slurm's) is
    shown, so that nobody takes the node for a plain one.
    """
    shown = {w for w in flags if w not in SILENT_FLAGS} | {base}
    message = one_line(reason, limit=MAX_MESSAGE)
    names = sorted(keys.SLURM_STATE_PREFIX + camel(w) for w in shown if camel(w))
    return [Condition(type=n, status="True", message=message) for n in names]


def in_service(desired: Desired) -> Condition:
    """The node's condition `lockstep.sh/InService`: why its worker is in or out of service, in the words Slurm shows.

    The reason is the class of the hold named first (`ScaleIn`), or `InService`.
    """
    if desired.in_service:
        return Condition(type=keys.IN_SERVICE, status="True", reason="InService")
    reason = camel(desired.holds[0].hold_class) if desired.holds else "Held"
    return Condition(
        type=keys.IN_SERVICE, status="False", reason=reason, message=one_line(desired.words, limit=MAX_MESSAGE)
    )


def merge(
    existing: Sequence[Condition], wanted: Sequence[Condition], prefix: str, now: datetime
) -> list[Condition] | None:
    """The list that shows `wanted` as all conditions with this prefix; None if `existing` already does.

    Foreign conditions stay where they are. A condition whose status stays keeps its `lastTransitionTime`; a new or
    turned one gets `now`, in whole seconds as Kubernetes keeps it.
    """
    before = {c.type: c for c in existing if c.type.startswith(prefix)}
    dated = {c.type: _dated(before.get(c.type), c, now) for c in wanted}
    if dated == before:
        return None
    kept = [dated.get(c.type, c) for c in existing if c.type in dated or not c.type.startswith(prefix)]
    there = {c.type for c in kept}
    return kept + [c for name, c in sorted(dated.items()) if name not in there]


@lru_cache(maxsize=256)
def camel(words: str) -> str:
    """`NOT_RESPONDING` and `not-responding` are `NotResponding`; only letters and digits are left."""
    parts = "".join(c if c.isascii() and c.isalnum() else " " for c in words).split()
    return "".join(p.capitalize() for p in parts)[:64]


def _dated(before: Condition | None, wanted: Condition, now: datetime) -> Condition:
    """`wanted` with the time of its last change of status."""
    same = before is not None and before.status == wanted.status
    since = before.last_transition_time if same and before else None
    return msgspec.structs.replace(wanted, last_transition_time=since or now.replace(microsecond=0))
