"""What `lockstep doctor` asks of Kubernetes."""

import asyncio
from collections.abc import Sequence
from typing import TypeVar

import aiohttp
import msgspec

from lockstep.base.clock import now
from lockstep.cli import checks
from lockstep.cli.checks import Check, fail, ok, warn
from lockstep.cli.connect import Reach
from lockstep.cli.kube_only import WORKERS
from lockstep.cli.rights import DEPLOYMENT_RIGHTS, LEASE_RIGHTS, REQUEST_RIGHTS, RIGHTS, Right, service_of
from lockstep.cli.who import whoami
from lockstep.contracts.hold import GROUP, VERSION
from lockstep.contracts.policy import Protect
from lockstep.kube.access import Access, read_access
from lockstep.kube.errors import Denied, NotFound
from lockstep.kube.session import tls_of
from lockstep.kube.wire import ObjectMeta, Page, Pdb
from lockstep.pod_watcher.model import selector_of
from lockstep.runtime.settings import ClusterSettings

T = TypeVar("T")
POLICY = "hold-owner.lockstep.sh"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
OPERATOR = "app.kubernetes.io/name=slurm-operator"
"""The label of slurm-operator's pods, as its chart sets it."""

UNSEEN = "not looked at: a service's account may not; an administrator's may"


class _Named(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


async def server(reach: Reach) -> list[Check]:
    """Version, who we are, clock, and how long our credentials last."""
    kube, raw = await reach.kube(), await reach.raw()
    version = await kube.server_version()
    user = await whoami(reach)
    access = await read_access(raw.settings)
    found = [checks.kubernetes_version(version.major, version.minor, version.text)]
    found.append(ok("kubernetes", f"reached as {user or 'an unknown user'}"))
    found.append(await _clock(access))
    expiry = checks.token("kubernetes", access.authorization, now())
    return [*found, expiry] if expiry else found


async def _clock(access: Access) -> Check:
    """The API server's clock, by the Date of its answer, whatever the answer is."""
    sent = now()
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session,
            session.get(f"{access.server.host}/version", ssl=tls_of(access.server)) as answer,
        ):
            return checks.skew("kubernetes", checks.date_of(answer.headers.get("Date", "")), sent, now())
    except (aiohttp.ClientError, TimeoutError, OSError) as e:
        return warn("kubernetes", f"its clock cannot be read: {type(e).__name__}", "see the other lines about it")


async def installed(reach: Reach) -> list[Check]:
    """The Hold resource, and the policies that write its owner."""
    raw = await reach.raw()
    try:
        await raw.request("GET", f"/apis/{GROUP}/{VERSION}")
    except NotFound:
        return [fail("holds", "the Hold resource is not installed", "kubectl apply -f deploy/crds/hold.yaml")]
    found = [ok("holds", f"the Hold resource is served as {GROUP}/{VERSION}")]
    for kind in ("mutatingadmissionpolicies", "validatingadmissionpolicies"):
        try:
            await raw.request("GET", f"{ADMISSION}/{kind}/{POLICY}")
        except NotFound:
            hint = "kubectl apply -f deploy/policies/hold-owner.yaml (Kubernetes 1.36 or later)"
            found.append(warn("holds", f"nobody writes who created a Hold: no {kind} {POLICY}", hint))
        except Denied:
            found.append(ok("holds", f"whether {kind} {POLICY} exists, may not be seen"))
        else:
            found.append(ok("holds", f"{kind} {POLICY} is there"))
    return found


async def rights(reach: Reach, clusters: Sequence[ClusterSettings]) -> list[Check]:
    """Whether whoever runs this may do what each service must do; with a service's account, what that one must."""
    if not clusters:
        return [ok("rights", "not checked: no clusters are set")]
    kube, lease = await reach.kube(), reach.settings.lease
    spaces = sorted({c.namespace for c in clusters})

    async def missing(right: Right, namespace: str, name: str = "") -> str:
        about = {"group": right.group, "namespace": namespace, "subresource": right.subresource, "name": name}
        allowed = await kube.can_i(right.verb, right.resource, **about)
        return "" if allowed else f"{right}" + (f" in {namespace}" if namespace else "")

    found = []
    requests = {"drain, for requests,": REQUEST_RIGHTS} if reach.settings.requests.allow else {}
    table = RIGHTS | requests
    if own := service_of(await whoami(reach)):
        table = {own: []} | {name: wanted for name, wanted in table.items() if name.startswith(own)}
    for service, wanted in table.items():
        asked = [(r, space, "") for r in wanted for space in (spaces if r.namespaced else [""])]
        name = f"lockstep-{service.partition(',')[0].replace('_', '-')}"
        asked += [(r, reach.settings.lease_namespace, name) for r in LEASE_RIGHTS if lease.enabled]
        if service == "slurm_poller" and (deployment := reach.settings.health.deployment):
            asked += [(r, reach.settings.lease_namespace, deployment) for r in DEPLOYMENT_RIGHTS]
        lacks = [text for text in await asyncio.gather(*(missing(*each) for each in asked)) if text]
        if lacks:
            hint = "give them by RBAC, or run doctor as the service's account"
            found.append(fail("rights", f"{service} may not: {', '.join(lacks)}", hint))
        else:
            found.append(ok("rights", f"{service} has all {len(asked)} that it needs"))
    return found


async def budgets_over_workers(reach: Reach, clusters: Sequence[ClusterSettings]) -> list[Check]:
    """Disruption budgets over the worker pods."""
    if service_of(await whoami(reach)):
        return [ok("budgets", UNSEEN)]
    kube, raw = await reach.kube(), await reach.raw()
    if clusters:
        each = [await kube.list_pods(namespace=c.namespace, label_selector=selector_of(c)) for c in clusters]
        pods = [pod for some in each for pod in some]
    else:
        pods = await kube.list_pods(label_selector=WORKERS)
    pdbs: list[Pdb] = []
    for namespace in sorted({pod.metadata.namespace for pod in pods}):
        path = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
        pdbs += msgspec.json.decode(await raw.request("GET", path), type=Page[Pdb]).items
    return checks.budgets(pods, pdbs)


async def neighbour(reach: Reach) -> list[Check]:
    """Whether slurm-operator runs here too, and who of the two writes what."""
    if service_of(await whoami(reach)):
        return [ok("neighbour", UNSEEN)]
    kube, policy = await reach.kube(), reach.settings.policy
    pods = await kube.list_pods(label_selector=OPERATOR)
    if not pods:
        return [ok("neighbour", "slurm-operator does not run here")]
    where = f"slurm-operator runs in namespace {pods[0].metadata.namespace}"
    found = []
    if policy.conditions:
        hint = "set policy.conditions: false, so that only slurm-operator writes them"
        found.append(warn("neighbour", f"{where}; both write the pod conditions SlurmNodeState*", hint))
    if policy.protect is not Protect.OFF:
        hint = (
            "slurm-operator sets the label while jobs run and takes it away after; set policy.protect: off to leave it"
        )
        found.append(warn("neighbour", f"{where}; both write the label pod-protect", hint))
    if policy.pod_cordon:
        hint = "set policy.pod_cordon: false; it waits for the end of our drain, and ours for that of its annotation"
        found.append(warn("neighbour", f"{where}; both answer the annotation pod-cordon", hint))
    return found or [ok("neighbour", f"{where}; conditions, protection and pod-cordon are left to it")]
