"""Of the exam of an API server: objects that we create ourselves."""

from datetime import UTC, datetime

import msgspec
import pytest

from lockstep.contracts.hold import (
    Condition,
    Drain,
    DrainPolicy,
    HoldPhase,
    HoldSpec,
    HoldStatus,
    JobBrief,
    WaitingFor,
    WorkerCounts,
    WorkerSelector,
)
from lockstep.kube import keys
from lockstep.kube.errors import AlreadyExists, Conflict, Invalid, NotFound
from lockstep.kube.port import Regarding
from lockstep.kube.wire import Lease, LeaseSpec, ObjectMeta
from tests.contract.kube_site import Site


class MakesExam:
    """Budgets, Holds, Events and leases."""

    async def test_there_is_never_a_second_budget_over_the_same_pods(self, site: Site) -> None:
        """With two budgets over one pod the eviction API answers 500, so slurm-operator's is as good as ours."""
        pods = keys.protected(site.mark)
        path = f"/apis/policy/v1/namespaces/{site.namespace}/poddisruptionbudgets"
        other = {"spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"exam": site.mark}}}}
        await site.yard.create(path, other | {"metadata": {"name": f"other-{site.mark}"}})
        assert await site.kube.ensure_pdb(site.namespace, keys.pdb_name(site.mark), pods)
        made = await site.yard.read(f"{path}/slurm-workers-pdb-{site.mark}")
        assert made["spec"] == {"maxUnavailable": 0, "selector": {"matchLabels": pods}}
        assert not await site.kube.ensure_pdb(site.namespace, keys.pdb_name(site.mark), pods)
        assert not await site.kube.ensure_pdb(site.namespace, "by-another-name", pods)

    async def test_a_hold_is_created_told_and_released(self, site: Site) -> None:
        """Status is written as a whole: what is empty now does not stay."""
        kube, ns, name = site.kube, site.namespace, site.mark
        spec = HoldSpec(
            workers=WorkerSelector(names=["w-1"]),
            reason="DIMM ü ✓",
            expires_at=datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC),
            drain=Drain(policy=DrainPolicy.REQUEUE, deadline="2h"),
        )
        hold = await kube.create_hold(ns, name, spec, annotations={"note": "x"})
        assert (hold.spec, hold.fault, hold.metadata.annotations["note"]) == (spec, "", "x")
        with pytest.raises(AlreadyExists):
            await kube.create_hold(ns, name, spec)
        uid = hold.metadata.uid
        job = JobBrief(id=4242, user="u", partition="p", state="RUNNING", ends=datetime(2030, 1, 1, tzinfo=UTC))
        counts = WorkerCounts(selected=1, draining=1)
        waiting = HoldStatus(
            phase=HoldPhase.DRAINING,
            owner="ana",
            message="waits",
            observed_generation=1,
            workers=counts,
            waiting_for=[WaitingFor(worker="w-1", jobs=[job])],
            conditions=[Condition(type="Accepted", status="True", reason="Fine", last_transition_time=spec.expires_at)],
        )
        for status in (waiting, HoldStatus(workers=WorkerCounts(selected=1))):
            await kube.set_hold_status(ns, name, status, uid=uid)
            told = await kube.get_hold(ns, name)
            assert told is not None
            assert (told.status, told.spec) == (status, spec)
        with pytest.raises(Conflict):
            await kube.set_hold_status(ns, name, waiting, uid="another")
        with pytest.raises(NotFound):
            await kube.set_hold_status(ns, "none", waiting, uid=uid)
        with pytest.raises(Conflict):
            await kube.delete_hold(ns, name, uid="another")
        assert [h.metadata.name for h in await kube.list_holds(namespace=ns) if h.metadata.uid == uid] == [name]
        assert await kube.delete_hold(ns, name, uid=uid)
        assert not await kube.delete_hold(ns, name, uid=uid)

    async def test_an_empty_name_never_means_all(self, site: Site) -> None:
        """DELETE on the collection would release every hold."""
        spec = HoldSpec(workers=WorkerSelector(names=["w-1"]), reason="x")
        await site.kube.create_hold(site.namespace, site.mark, spec)
        for name in ("", ".", "..", "a/b", f"{site.mark}?x=y"):
            with pytest.raises(Invalid):
                await site.kube.delete_hold(site.namespace, name)
        assert await site.kube.get_hold(site.namespace, site.mark)

    async def test_the_same_news_is_one_event_with_a_count(self, site: Site) -> None:
        """`kubectl describe` shows x3, not three lines; Events about nodes live in `default`."""
        node = Regarding(kind="Node", name=site.mark, uid=site.mark)
        for _ in range(3):
            await site.kube.emit_event(node, reason="HoldReasserted", message="held by\nana", kind="Warning")
        await site.kube.emit_event(node, reason="HoldReasserted", message="held by bob", kind="Warning")
        stored = await site.yard.read("/api/v1/namespaces/default/events")
        ours = [e for e in stored["items"] if e["involvedObject"]["name"] == site.mark]
        assert sorted((e["count"], e["message"]) for e in ours) == [(1, "held by bob"), (3, "held by ana")]

    async def test_a_lease_is_replaced_only_at_its_version(self, site: Site) -> None:
        """Two who saw the same version: one wins. Times keep their microseconds."""
        kube = site.kube
        at = datetime(2030, 1, 1, 0, 0, 0, 0, tzinfo=UTC)
        spec = LeaseSpec(
            holder_identity="a",
            lease_duration_seconds=15,
            acquire_time=at,
            renew_time=at,
            lease_transitions=170_000_000,
        )
        lease = Lease(metadata=ObjectMeta(name=site.mark, namespace=site.namespace), spec=spec)
        made = await kube.create_lease(lease)
        assert made.spec == spec
        with pytest.raises(AlreadyExists):
            await kube.create_lease(lease)
        later = msgspec.structs.replace(spec, holder_identity=None, renew_time=at.replace(microsecond=123456))
        assert (await kube.update_lease(msgspec.structs.replace(made, spec=later))).spec == later
        with pytest.raises(Conflict):
            await kube.update_lease(made)
        read = await kube.get_lease(site.namespace, site.mark)
        assert read is not None
        assert read.spec == later
