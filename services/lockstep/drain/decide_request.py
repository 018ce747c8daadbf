"""Whether a request is carried out, and how. Pure: what came, what is known and the time in; a verdict out."""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from hashlib import blake2b
from typing import Any, Literal, NamedTuple

import msgspec

from lockstep.base.text import one_line
from lockstep.contracts.common import WorkerRef
from lockstep.contracts.facts import HoldView
from lockstep.contracts.hold import MAX_NAMES, MAX_REASON, HoldClass, HoldSpec, WorkerSelector
from lockstep.contracts.requests import (
    REQUEST_TYPES,
    AnyRequest,
    CancelDrainRequest,
    HoldRequest,
    ReleaseRequest,
    RequestId,
    owner_of,
)
from lockstep.contracts.subjects import ROOT, name_of, tag_of, token
from lockstep.drain.status import SELECTS_ALL
from lockstep.fleet.holds import faults_of, selects, standing
from lockstep.fleet.worker import Worker
from lockstep.kube import keys
from lockstep.kube.wire import Hold
from lockstep.runtime.settings import ALL, RequestSettings, Settings
from lockstep.slurm import hostlist

MAX_USER = 120
MAX_NAMED = 5
"""Names that a fault lists; more are counted."""
_CLUSTER = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?").fullmatch
_KINDS: dict[str, Any] = {tag_of(kind): kind for kind in REQUEST_TYPES}

Code = Literal["invalid", "denied", "not-found", "busy", "failed"]


class Address(NamedTuple):
    """Which request this is: the same address twice is the same request. All of it stands in the subject."""

    user: str
    cluster: str
    verb: str
    """Without its version: `hold`."""
    id: str

    @property
    def mark(self) -> str:
        """The address as text, for the ids of events."""
        return f"request/{self.cluster}/{self.user}/{self.verb}/{self.id}"

    @property
    def hold_name(self) -> str:
        """The name of the Hold that stands for it, where none was asked for."""
        return f"req-{blake2b(self.mark.encode(), digest_size=6).hexdigest()}"

    @property
    def annotations(self) -> dict[str, str]:
        """What the Hold that stands for it carries."""
        return {keys.REQUEST: self.id, keys.REQUESTED_BY: self.user}

    def is_of(self, hold: Hold) -> bool:
        """Whether this Hold stands for it."""
        return (hold.request, hold.requested_by) == (self.id, self.user)


class Fault(msgspec.Struct, frozen=True):
    """It is not carried out."""

    code: Code
    fault: str
    is_dead: bool = False
    """Nobody could read it; it is kept as a dead letter too."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A Hold is made."""

    namespace: str
    name: str
    spec: HoldSpec
    workers: int


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """A Hold that is ended. `overridden` are the workers of which it is told that somebody else's hold was ended."""

    namespace: str
    name: str
    uid: str
    view: HoldView
    overridden: list[WorkerRef] = []


class End(msgspec.Struct, frozen=True, kw_only=True):
    """Holds are ended."""

    holds: list[Ending]
    outcome: str
    workers: int
    by: str
    why: str = ""


Verdict = Fault | Place | End


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the request's cluster."""

    workers: Sequence[Worker] = ()
    """All of the cluster."""
    holds: Sequence[Hold] = ()
    """Those that may be ended, as Kubernetes has them now: the one that is named, or all of the namespace."""
    in_work: int = 0
    """How many requests for a hold are accepted and not done."""


def address_of(subject: str) -> Address | None:
    """What a request's subject says; None when it is not one of a request."""
    parts = subject.split(".")
    if len(parts) != 7 or parts[:2] != [ROOT, "request"] or f"{parts[2]}.{parts[3]}" not in _KINDS:
        return None
    try:
        user, cluster, ident = (name_of(part) for part in parts[4:])
        msgspec.convert(ident, RequestId)
    except (ValueError, UnicodeDecodeError, msgspec.ValidationError):
        return None
    whole = [token(user), token(cluster), token(ident)] == parts[4:]
    fit = user.isprintable() and 0 < len(user) <= MAX_USER and _CLUSTER(cluster)
    return Address(user, cluster, parts[2], ident) if whole and fit else None


def read(address: Address, body: bytes) -> AnyRequest | Fault:
    """The request in a body, or what is wrong with it: the field, its value, what is allowed."""
    try:
        raw = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
        return Fault("invalid", one_line(f"body: is no JSON: {e}", limit=300), is_dead=True)
    kind = next(kind for tag, kind in _KINDS.items() if tag.partition(".")[0] == address.verb)
    try:
        request: AnyRequest = msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as e:
        what, _, where = str(e).partition(" - at `$")
        field = where.rstrip("`").lstrip(".")
        return Fault("invalid", one_line(f"{field}: {what}" if field else what, limit=300))
    if request.id != address.id:
        return Fault("invalid", f"id: {request.id!r} is not the subject's {address.id!r}")
    if request.cluster != address.cluster:
        said = one_line(request.cluster, limit=60)
        return Fault("invalid", f"cluster: {said!r} is not the subject's {address.cluster!r}")
    if unknown := [one_line(name, limit=60) for name in _unknown(raw, request)]:
        return Fault("invalid", f"{', '.join(unknown[:MAX_NAMED])}: there is no such field")
    return request


def decide_request(address: Address, request: AnyRequest, seen: Seen, settings: Settings, now: datetime) -> Verdict:
    """What becomes of a request that could be read."""
    if fault := not_allowed(address, settings):
        return fault
    match request:
        case HoldRequest():
            return _hold(address, request, seen, settings, now)
        case ReleaseRequest():
            return _release(address, request, seen, settings)
        case CancelDrainRequest():
            return _cancel(address, request, seen, settings, now)


def not_allowed(address: Address, settings: Settings) -> Fault | None:
    """Whether the user may not ask for this at all. What the user may not see is not told."""
    if not _may(address, settings.requests):
        what = f"user {address.user!r} may not ask for {address.verb} on cluster {address.cluster!r}"
        return Fault("denied", f"{what}; whoever may is listed in the settings under requests.allow")
    names = [cluster.name for cluster in settings.clusters]
    if address.cluster not in names:
        return Fault("not-found", f"cluster: {address.cluster!r}: there is none of that name; want {_some(names)}")
    return None


def _may(address: Address, rights: RequestSettings, *, override: bool = False) -> bool:
    return any(
        right.user == address.user
        and address.verb in right.verbs
        and (address.cluster in right.clusters or right.clusters == [ALL])
        and (right.override or not override)
        for right in rights.allow
    )


def _hold(address: Address, request: HoldRequest, seen: Seen, settings: Settings, now: datetime) -> Verdict:
    spec = msgspec.structs.replace(
        request.spec, cluster=request.spec.cluster or address.cluster, reason=_clean(request.spec.reason)
    )
    wrong = list(_faults(address, spec, now))
    if wrong:
        return Fault("invalid", one_line("; ".join(wrong), limit=600))
    if strangers := list(_strangers(spec.workers, seen.workers)):
        return Fault("not-found", one_line("; ".join(strangers), limit=600))
    selected = [w for w in seen.workers if selects(spec.workers, w)]
    if not selected:
        return Fault("not-found", "spec.workers.selector: no worker's pod has these labels")
    if spec.workers.selector and len(selected) == len(seen.workers) > 1:
        return Fault("invalid", SELECTS_ALL)
    if seen.in_work >= (most := settings.requests.max_in_work):
        return Fault("busy", f"{seen.in_work} requests are in work; requests.max_in_work lets {most} be so")
    name = request.name or address.hold_name
    namespace = settings.cluster(address.cluster).namespace
    return Place(namespace=namespace, name=name, spec=spec, workers=len(selected))


def _faults(address: Address, spec: HoldSpec, now: datetime) -> Iterator[str]:
    if spec.cluster != address.cluster:
        yield f"spec.cluster: {one_line(spec.cluster, limit=60)!r} is not the request's {address.cluster!r}"
    yield from (one_line(fault, limit=300) for fault in faults_of(spec))
    if len(spec.reason) > MAX_REASON:
        yield f"spec.reason: has {len(spec.reason)} characters; at most {MAX_REASON} are allowed"
    if spec.expires_at is not None and spec.expires_at <= now:
        yield f"spec.expiresAt: {spec.expires_at.isoformat()} is past; want a time to come"
    for field in ("names", "nodes", "partitions"):
        if len(getattr(spec.workers, field) or ()) > MAX_NAMES:
            yield f"spec.workers.{field}: more than {MAX_NAMES}; use hostlist or a selector"


def _strangers(wanted: WorkerSelector, workers: Sequence[Worker]) -> Iterator[str]:
    """What names nobody."""
    known = {
        "names": {w.name for w in workers},
        "nodes": {w.node_name for w in workers if w.node_name},
        "partitions": {p for w in workers if w.slurm for p in w.slurm.partitions},
    }
    for field, there in known.items():
        if strange := [name for name in getattr(wanted, field) or () if name not in there]:
            yield f"spec.workers.{field}: {_some(strange)}: no worker of the cluster is called or found so"
    listed = hostlist.expand(wanted.hostlist) if wanted.hostlist is not None else []
    if strange := [name for name in listed if name not in known["names"]]:
        yield f"spec.workers.hostlist: {_some(strange)}: no worker of the cluster is called so"


def _release(address: Address, request: ReleaseRequest, seen: Seen, settings: Settings) -> Verdict:
    name = one_line(request.hold, limit=120)
    hold = next((h for h in seen.holds if h.metadata.name == request.hold), None)
    if hold is None or hold.metadata.deletion_timestamp is not None or _home(hold, settings) != address.cluster:
        return Fault("not-found", f"hold: {name!r}: there is none of that name for cluster {address.cluster!r}")
    overrides = hold.requested_by != address.user
    if overrides and not request.override:
        what = f"hold: {name!r} is of {hold.owner or 'somebody'}, not of {address.user!r}"
        return Fault("denied", f"{what}; to insist, set override, and say why")
    if overrides and not _may(address, settings.requests, override=True):
        return Fault("denied", f"override: user {address.user!r} has no such right on cluster {address.cluster!r}")
    if overrides and not request.why.strip():
        return Fault("invalid", f"why: is empty; say why the hold of {hold.owner or 'somebody'} is ended")
    held = [w.ref for w in seen.workers if hold.spec is not None and selects(hold.spec.workers, w)]
    return End(
        holds=[_ending(hold, held if overrides else [])],
        outcome="released",
        workers=len(held),
        by=owner_of(address.user),
        why=_clean(request.why),
    )


def _cancel(address: Address, request: CancelDrainRequest, seen: Seen, settings: Settings, now: datetime) -> Verdict:
    name = one_line(request.worker, limit=64)
    worker = next((w for w in seen.workers if w.name == request.worker), None)
    if worker is None:
        return Fault("not-found", f"worker: {name!r}: there is none of that name in cluster {address.cluster!r}")
    on_it = [h for h in seen.holds if _stands(h, worker, settings, now)]
    mine, others = [], []
    for hold in on_it:
        count = sum(selects(hold.spec.workers, w) for w in seen.workers) if hold.spec else 0
        if hold.requested_by == address.user and count == 1:
            mine.append(hold)
        else:
            others.append(f"hold/{hold.metadata.namespace}/{hold.metadata.name} of {hold.owner} ({count} workers)")
    others += [f"{v.id} of {v.owner}" for v in standing(worker, settings.policy, now) if not v.id.startswith("hold/")]
    if others:
        return Fault("denied", f"worker: {name!r} is kept out by {_some(others)}; these are not ended by cancel-drain")
    if not mine:
        return Fault("not-found", f"worker: {name!r}: no hold of user {address.user!r} stands on it")
    holds = [_ending(hold, []) for hold in mine]
    return End(holds=holds, outcome="cancelled", workers=1, by=owner_of(address.user), why=_clean(request.why))


def _stands(hold: Hold, worker: Worker, settings: Settings, now: datetime) -> bool:
    spec = hold.spec
    if spec is None or hold.metadata.deletion_timestamp is not None or _home(hold, settings) != worker.cluster:
        return False
    return not faults_of(spec) and (spec.expires_at is None or spec.expires_at > now) and selects(spec.workers, worker)


def _home(hold: Hold, settings: Settings) -> str:
    """The cluster that a Hold is for; empty when it does not say, and its namespace has several."""
    if hold.spec is not None and hold.spec.cluster:
        return hold.spec.cluster
    here = [cluster.name for cluster in settings.clusters if cluster.namespace == hold.metadata.namespace]
    return here[0] if len(here) == 1 else ""


def _ending(hold: Hold, overridden: Sequence[WorkerRef]) -> Ending:
    meta, spec = hold.metadata, hold.spec
    view = HoldView(
        id=f"hold/{meta.namespace}/{meta.name}",
        hold_class=spec.hold_class if spec else HoldClass.MANUAL,
        owner=hold.owner or "unknown",
        reason=_clean(spec.reason) if spec else "",
        since=meta.creation_timestamp,
    )
    return Ending(namespace=meta.namespace, name=meta.name, uid=meta.uid, view=view, overridden=list(overridden))


def _unknown(raw: Any, made: msgspec.Struct, path: str = "") -> Iterator[str]:
    """Fields that nobody reads: a slip in `expiresAt` must not make a hold that never ends."""
    if not isinstance(raw, dict):
        return
    known = {field.encode_name: field.name for field in msgspec.structs.fields(made)}
    for key, value in raw.items():
        if key not in known:
            if path or key != made.__struct_config__.tag_field:
                yield f"{path}{key}"
        elif isinstance(inner := getattr(made, known[key]), msgspec.Struct):
            yield from _unknown(value, inner, f"{path}{key}.")


def _clean(text: str) -> str:
    """On one line; its length is judged afterwards."""
    return one_line(text, limit=len(text) + 1)


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(one_line(name, limit=120) for name in names[:MAX_NAMED])
    return f"{shown} and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else shown
