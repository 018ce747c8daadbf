"""What a real kube-apiserver makes of a Hold: what it refuses, what it shows, what cannot change, and whose it is.

Needs root. The control plane is one of its own, beside any lab that is up.
"""

import asyncio
import json

import pytest

from lockstep.kube import keys
from tests.contract.kube_site import Object, Site
from tests.integration.control_plane import ControlPlane

pytestmark = pytest.mark.timeout(1200)


def manifest(name: str, spec: Object, **annotations: str) -> str:
    """A Hold as a person writes it."""
    meta = {"name": name, "namespace": "slurm", "annotations": annotations}
    return json.dumps({"apiVersion": "lockstep.sh/v1alpha1", "kind": "Hold", "metadata": meta, "spec": spec})


async def kubectl(
    plane: ControlPlane,
    *arguments: str,
    user: str = "ana@example.com",
    manifest: str = "",
    group: str = "system:masters",
) -> str:
    """Run kubectl as a person; what it printed, or why it failed."""
    asked = (*arguments, f"--as={user}", f"--as-group={group}")
    try:
        return await asyncio.to_thread(plane.kube.kubectl, *asked, input=manifest or None)
    except RuntimeError as e:
        return str(e)


GOOD: Object = {"workers": {"names": ["gpu-7"]}, "reason": "DIMM"}


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        pytest.param({"reason": "x"}, "spec.workers: Required value", id="no workers"),
        pytest.param(GOOD | {"workers": {}}, "give exactly one of names, hostlist", id="none chosen"),
        pytest.param(
            GOOD | {"workers": {"names": ["a"], "nodes": ["b"]}}, "give exactly one of names", id="two chosen"
        ),
        pytest.param(GOOD | {"workers": {"names": []}}, "should have at least 1 items", id="empty list"),
        pytest.param(GOOD | {"workers": {"names": ["a b"]}}, "spec.workers.names[0]", id="not a name"),
        pytest.param(GOOD | {"workers": {"hostlist": "a;b"}}, "spec.workers.hostlist", id="not a host list"),
        pytest.param(GOOD | {"workers": {"selector": {"matchLabels": {}}}}, "at least 1 properties", id="every pod"),
        pytest.param(GOOD | {"workers": {"names": ["a"] * 1025}}, "must have at most 1024 items", id="too many"),
        pytest.param(GOOD | {"reason": ""}, "spec.reason", id="no reason"),
        pytest.param(GOOD | {"reason": "  "}, "want more than spaces", id="blank reason"),
        pytest.param(GOOD | {"reason": "a\nb"}, "want one line without control characters", id="two lines"),
        pytest.param(GOOD | {"reason": "a\u202eb"}, "want one line without control characters", id="turned text"),
        pytest.param(GOOD | {"reason": "x" * 201}, "may not be more than 200", id="long reason"),
        pytest.param(GOOD | {"class": "slurm"}, 'Unsupported value: "slurm"', id="a class that is not for people"),
        pytest.param(GOOD | {"expiresAt": "2030-01-01T00:00:00"}, "must be of type date-time", id="no zone"),
        pytest.param(GOOD | {"drain": {"deadline": "soon"}}, "spec.drain.deadline", id="no duration"),
        pytest.param(GOOD | {"drain": {"policy": "Kill"}}, 'Unsupported value: "Kill"', id="no policy"),
        pytest.param(GOOD | {"drain": {"atDeadline": "Cancel"}}, "atDeadline needs a deadline", id="no deadline"),
    ],
)
async def test_a_bad_hold_is_refused_with_a_word_on_what_is_wrong(plane: ControlPlane, spec: Object, said: str) -> None:
    """BR-159: at the door, with the field, not later in a log."""
    assert said in await kubectl(plane, "create", "-f", "-", manifest=manifest("bad", spec))


async def test_a_hold_reads_well(plane: ControlPlane, site: Site) -> None:
    """What people see, also of text that is not ASCII, and with the defaults filled in."""
    spec = GOOD | {"reason": "Größe 日本 'q' = $x", "expiresAt": "2030-01-01T06:00:00+01:00"}
    assert "created" in await kubectl(plane, "create", "-f", "-", manifest=manifest(site.mark, spec))
    hold = await site.kube.get_hold("slurm", site.mark)
    assert hold is not None
    assert hold.spec is not None
    assert (hold.fault, hold.spec.reason, hold.owner) == ("", "Größe 日本 'q' = $x", "ana@example.com")
    await site.kube.set_hold_status("slurm", site.mark, hold.status, uid=hold.metadata.uid)
    [header, line] = (await kubectl(plane, "-n", "slurm", "get", "hold", site.mark)).splitlines()
    assert header.split() == ["NAME", "CLASS", "PHASE", "SELECTED", "DRAINED", "OWNER", "EXPIRES", "AGE", "REASON"]
    assert line.split()[:5] == [site.mark, "manual", "Pending", "0", "0"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"workers": {"names": ["another"]}}, "workers cannot be changed"),
        ({"class": "update"}, "class cannot be changed"),
        ({"cluster": "another"}, "cluster cannot be changed"),
    ],
)
async def test_whom_a_hold_is_for_cannot_change(plane: ControlPlane, site: Site, change: Object, said: str) -> None:
    """The reason and the deadline may; a hold on others is another hold."""
    await kubectl(plane, "create", "-f", "-", manifest=manifest(site.mark, GOOD))
    patch = ("-n", "slurm", "patch", "hold", site.mark, "--type=merge", "-p")
    assert said in await kubectl(plane, *patch, json.dumps({"spec": change}))
    assert "patched" in await kubectl(
        plane, *patch, json.dumps({"spec": {"reason": "other", "drain": {"deadline": "2h"}}})
    )


async def test_nobody_can_claim_to_be_another(plane: ControlPlane, site: Site) -> None:
    """The owner is who asked, whatever the manifest says, and stays so, whoever changes the Hold."""

    async def owner() -> str:
        hold = await site.kube.get_hold("slurm", site.mark)
        assert hold is not None
        return hold.owner

    forged = manifest(site.mark, GOOD, **{keys.OWNER: "bob@example.com"})
    assert "created" in await kubectl(plane, "create", "-f", "-", manifest=forged)
    assert await owner() == "ana@example.com"
    hold = ("-n", "slurm", "annotate", "hold", site.mark, "--overwrite")
    for change in (f"{keys.OWNER}=bob@example.com", f"{keys.OWNER}-"):
        for user in ("ana@example.com", "bob@example.com"):
            said = await kubectl(plane, *hold, change, user=user)
            assert "says who created the Hold (ana@example.com) and cannot be changed" in said
    apply = ("apply", "--server-side", "--force-conflicts", "-f", "-")
    assert "cannot be changed" in await kubectl(plane, *apply, manifest=forged, user="bob@example.com")
    assert "annotated" in await kubectl(plane, *hold, "note=x", user="bob@example.com")
    assert await owner() == "ana@example.com"
    await kubectl(plane, "-n", "slurm", "delete", "hold", site.mark)
    assert "created" in await kubectl(plane, "create", "-f", "-", manifest=forged, user="eve@example.com")
    assert await owner() == "eve@example.com"


def role(group: str, *verbs: str) -> list[Object]:
    """The right of a group to do this with Holds."""
    rbac, meta = "rbac.authorization.k8s.io", {"name": f"exam-{group}"}
    rules = [{"apiGroups": ["lockstep.sh"], "resources": ["holds"], "verbs": list(verbs)}]
    subject = {"apiGroup": rbac, "kind": "Group", "name": group}
    ref = {"apiGroup": rbac, "kind": "ClusterRole", "name": meta["name"]}
    binding = {"apiVersion": f"{rbac}/v1", "kind": "ClusterRoleBinding", "metadata": meta}
    return [
        {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": meta, "rules": rules},
        binding | {"roleRef": ref, "subjects": [subject]},
    ]


async def test_only_who_may_delegate_says_for_whom_a_hold_was_made(plane: ControlPlane, site: Site) -> None:
    """The drain service makes Holds for those who ask over NATS; nobody else can claim one, or take one over."""
    verbs = ("get", "create", "update", "patch", "delete")
    for rule in [*role("people", *verbs), *role("services", *verbs, "delegate")]:
        await asyncio.to_thread(plane.kube.apply, rule)
    asked = manifest(site.mark, GOOD, **{keys.REQUESTED_BY: "ops", keys.REQUEST: "r-1"})
    hold = ("-n", "slurm", "annotate", "hold", site.mark, "--overwrite")

    refused = await kubectl(plane, "create", "-f", "-", manifest=asked, group="people")
    assert "ana@example.com may not delegate holds in slurm, and cannot set or change them" in refused
    assert "created" in await kubectl(plane, "create", "-f", "-", manifest=asked, user="drain", group="services")
    made = await site.kube.get_hold("slurm", site.mark)
    assert made is not None
    assert (made.owner, made.requested_by, made.request) == ("nats:ops", "ops", "r-1")
    assert made.metadata.annotations[keys.OWNER] == "drain"
    for change in (f"{keys.REQUESTED_BY}=ana", f"{keys.REQUESTED_BY}-", f"{keys.REQUEST}=r-2"):
        assert "cannot set or change them" in await kubectl(plane, *hold, change, group="people")
    assert "annotated" in await kubectl(plane, *hold, "note=x", group="people")
    assert "annotated" in await kubectl(plane, *hold, f"{keys.REQUEST}=r-2", user="drain", group="services")
    await kubectl(plane, "-n", "slurm", "delete", "hold", site.mark, group="people")
    assert "created" in await kubectl(plane, "create", "-f", "-", manifest=manifest(site.mark, GOOD), group="people")
    assert "cannot set or change them" in await kubectl(plane, *hold, f"{keys.REQUESTED_BY}=bob", group="people")
