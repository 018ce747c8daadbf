"""Of the exam of an API server: what is there, and what changes."""

import asyncio
from contextlib import aclosing

from lockstep.contracts.hold import HoldSpec, WorkerSelector
from lockstep.kube.wire import Hold, Node, Pod
from tests.contract.kube_site import PATIENCE_S, Site


class ReadsExam:
    """Lists, single objects, versions and watches."""

    async def test_lists_come_page_by_page(self, site: Site) -> None:
        """All of them, in pages, filtered by the server."""
        for i in range(7):
            await site.pod(f"{site.mark}-{i}", odd=str(i % 2))
        found = await site.kube.list_pods(label_selector=f"exam={site.mark}")
        odd = await site.kube.list_pods(namespace=site.namespace, label_selector=f"exam={site.mark},odd=1")
        assert [p.metadata.name for p in found] == [f"{site.mark}-{i}" for i in range(7)]
        assert len(odd) == 3
        assert found[0].metadata.namespace == site.namespace
        assert found[0].spec.node_name == "nobody"

    async def test_what_is_not_there_is_none(self, site: Site) -> None:
        """Not found is an answer."""
        assert await site.kube.get_node("none") is None
        assert await site.kube.get_pod(site.namespace, "none") is None
        assert await site.kube.get_hold(site.namespace, "none") is None
        assert await site.kube.get_lease(site.namespace, "none") is None

    async def test_versions_are_understood(self, site: Site) -> None:
        """BR-153: `36+` is 36."""
        version = await site.kube.server_version()
        assert (version.major, version.minor) == (1, 36)
        assert version.text.startswith("v1.36.")

    async def test_a_watch_tells_what_there_is_and_then_what_changes(self, site: Site) -> None:
        """List, synced, changes with before and after, and what went."""
        first = f"{site.mark}-a"
        await site.pod(first)
        path = f"/api/v1/namespaces/{site.namespace}/pods"
        selector = f"exam={site.mark}"
        async with aclosing(site.kube.watch(Pod, namespace=site.namespace, label_selector=selector)) as watch:
            told = [await anext(watch), await anext(watch)]
            assert [d.kind for d in told] == ["changed", "synced"]
            await site.pod(f"{site.mark}-b")
            await site.yard.patch(f"{path}/{site.mark}-b", {"metadata": {"labels": {"x": "y"}}})
            await site.yard.delete(f"{path}/{first}")
            kinds = []
            while "gone" not in kinds:
                async with asyncio.timeout(PATIENCE_S):
                    delta = await anext(watch)
                kinds.append(delta.kind)
                if delta.kind == "changed" and delta.before and delta.after and delta.after.metadata.labels.get("x"):
                    assert "x" not in delta.before.metadata.labels
            assert delta.before is not None
            assert delta.before.metadata.name == first
            assert kinds.count("changed") >= 2

    async def test_holds_and_nodes_are_watched_too(self, site: Site) -> None:
        """Each kind has the same watch."""
        node = await site.node()
        async with aclosing(site.kube.watch(Node)) as nodes, aclosing(site.kube.watch(Hold)) as holds:
            names = set()
            while node not in names:
                delta = await anext(nodes)
                names.add(delta.after.metadata.name if delta.after else "")
            while (await anext(holds)).kind != "synced":
                pass
            spec = HoldSpec(workers=WorkerSelector(nodes=[node]), reason="x")
            await site.kube.create_hold(site.namespace, site.mark, spec)
            async with asyncio.timeout(PATIENCE_S):
                told = await anext(holds)
            assert told.after is not None
            assert (told.after.metadata.name, told.after.spec) == (site.mark, spec)
