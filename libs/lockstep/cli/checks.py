"""What `lockstep doctor` finds, and how it judges what it read. Pure."""

import base64
import binascii
from collections.abc import Mapping, Sequence
from datetime import datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Any

import msgspec

from lockstep.base.clock import from_epoch
from lockstep.cli.output import span
from lockstep.kube import keys
from lockstep.kube.wire import Pdb, Pod, Selector

MAX_SKEW_S = 2.0
SOON_S = 3600.0
"""A token that expires within this time is a warning."""
OLDEST_SLURM = (24, 11)
OLDEST_KUBERNETES = (1, 29)
OWNER_SINCE = (1, 36)
"""The release in which the policy that writes a Hold's owner is stable."""


class Level(StrEnum):
    """How bad it is."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the answer."""

    level: Level
    area: str
    found: str
    do: str = ""
    """What to do about it."""


def ok(area: str, found: str) -> Check:
    """All is well."""
    return Check(level=Level.OK, area=area, found=found)


def warn(area: str, found: str, do: str) -> Check:
    """It works, and may not for long or not in every case."""
    return Check(level=Level.WARN, area=area, found=found, do=do)


def fail(area: str, found: str, do: str) -> Check:
    """It does not work."""
    return Check(level=Level.FAIL, area=area, found=found, do=do)


def skew(area: str, theirs: datetime | None, sent: datetime, answered: datetime) -> Check:
    """Another clock against ours. It told its time, cut to whole seconds, between `sent` and `answered`."""
    if theirs is None:
        return ok(area, "does not tell its time")
    low, high = (theirs - answered).total_seconds(), (theirs - sent).total_seconds() + 1.0
    off = 0.0 if low <= 0.0 <= high else min(abs(low), abs(high))
    if off <= MAX_SKEW_S:
        return ok(area, "clock agrees with this machine's")
    way = "behind" if high < 0 else "ahead of"
    return warn(area, f"clock is {span(off)} {way} this machine's", "let all machines follow one time server (NTP)")


def date_of(header: str) -> datetime | None:
    """The time in an HTTP `Date` header; None if there is none that can be read."""
    try:
        return parsedate_to_datetime(header)
    except ValueError:
        return None


def token(area: str, text: str, now: datetime) -> Check | None:
    """When a bearer token expires; None for one that does not say."""
    expires = expiry_of(text)
    if expires is None:
        return None
    left = (expires - now).total_seconds()
    if left <= 0:
        return fail(area, f"token has expired {span(-left)} ago", "renew it; a service reads the file anew by itself")
    if left < SOON_S:
        return warn(area, f"token expires in {span(left)}", "see that something renews it")
    return ok(area, f"token is good for {span(left)}")


def expiry_of(text: str) -> datetime | None:
    """The `exp` of a JWT, unverified; None if it is none or has none."""
    parts = text.strip().removeprefix("Bearer ").removeprefix("SLURM_JWT=").split(".")
    if len(parts) != 3:
        return None
    try:
        claims: Any = msgspec.json.decode(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return from_epoch(float(claims["exp"]))
    except (msgspec.DecodeError, binascii.Error, KeyError, TypeError, ValueError, OverflowError):
        return None


def slurm_version(area: str, version: str, parser: str) -> Check:
    """Whether the Slurm release is one that Lockstep speaks."""
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
    if len(numbers) == 2 and numbers < OLDEST_SLURM:
        return fail(area, f"Slurm {version}, data parser {parser}", "Lockstep needs Slurm 24.11 or later")
    return ok(area, f"Slurm {version or 'of unknown version'}, data parser {parser}")


def kubernetes_version(major: int, minor: int, text: str) -> Check:
    """Whether the Kubernetes release is one that Lockstep speaks, and can tell who created a Hold."""
    if (major, minor) < OLDEST_KUBERNETES:
        return fail("kubernetes", f"version {text}", f"Lockstep needs {'.'.join(map(str, OLDEST_KUBERNETES))} or later")
    if (major, minor) < OWNER_SINCE:
        hint = "update to 1.36 where owners matter; until then a Hold's owner is the client's name"
        return warn("kubernetes", f"version {text} cannot write a Hold's owner", hint)
    return ok("kubernetes", f"version {text}")


def budgets(pods: Sequence[Pod], pdbs: Sequence[Pdb]) -> list[Check]:
    """Pods over which two disruption budgets lie: the eviction API then answers 500, and `kubectl drain` hangs."""
    by_pair: dict[str, int] = {}
    for pod in pods:
        over = [p.metadata.name for p in pdbs if p.metadata.namespace == pod.metadata.namespace and covers(p, pod)]
        if len(over) > 1:
            names = " and ".join(sorted(over))
            by_pair[names] = by_pair.get(names, 0) + 1
    hint = "delete one of them: with two, the eviction API answers 500 and kubectl drain never ends"
    found = [fail("budgets", f"{names} both lie over {count} worker pods", hint) for names, count in by_pair.items()]
    return found or [ok("budgets", f"no worker pod is under two disruption budgets ({len(pods)} pods)")]


def covers(pdb: Pdb, pod: Pod) -> bool:
    """Whether a budget is for this pod; the label `pod-protect` is taken as set, for it comes and goes."""
    labels = {**pod.metadata.labels, keys.POD_PROTECT: keys.TRUE}
    return pdb.spec.selector is not None and matches(pdb.spec.selector, labels)


def matches(selector: Selector, labels: Mapping[str, str]) -> bool:
    """Whether labels fit a selector, as Kubernetes decides it; an empty selector fits everything."""
    for key, operator, values in selector.requirements():
        value = labels.get(key)
        fits = {
            "In": value in values,
            "NotIn": value not in values,
            "Exists": value is not None,
            "DoesNotExist": value is None,
        }.get(operator, False)
        if not fits:
            return False
    return True
