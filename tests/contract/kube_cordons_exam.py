"""Of the exam of an API server: whose cordon it is, and who lifts it."""

from lockstep.kube import keys
from tests.contract.kube_site import Site


class CordonsExam:
    """Our cordon and others'."""

    async def test_our_cordon_is_marked_and_lifted(self, site: Site) -> None:
        """BR-002: the mark stands while our cordon does."""
        node = await site.node()
        assert await site.kube.cordon(node, mark=True)
        stored = await site.read_node(node)
        assert stored["spec"]["unschedulable"] is True
        assert stored["metadata"]["annotations"][keys.MIRRORED_CORDON] == "true"
        assert not await site.kube.cordon(node, mark=True)
        assert await site.kube.uncordon(node)
        stored = await site.read_node(node)
        assert "unschedulable" not in stored["spec"]
        assert keys.MIRRORED_CORDON not in stored["metadata"].get("annotations", {})
        assert not await site.kube.uncordon(node)

    async def test_a_foreign_cordon_is_left_alone(self, site: Site) -> None:
        """BR-002, BR-033: neither marked nor lifted; only a person who insists lifts it."""
        node = await site.node()
        await site.yard.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})
        assert not await site.kube.cordon(node, mark=True)
        assert not await site.kube.uncordon(node)
        stored = await site.read_node(node)
        assert stored["spec"]["unschedulable"] is True
        assert keys.MIRRORED_CORDON not in stored["metadata"].get("annotations", {})
        assert await site.kube.uncordon(node, only_ours=False)

    async def test_a_user_who_lifts_our_mirror_has_the_last_word(self, site: Site) -> None:
        """Her uncordon is not undone, and a cordon that she sets after it is hers and not ours to lift."""
        node = await site.node()
        assert await site.kube.cordon(node, mark=True)
        await site.yard.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": None}})
        assert not await site.kube.cordon(node, mark=True)

        await site.yard.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})
        assert not await site.kube.uncordon(node)
        assert (await site.read_node(node))["spec"]["unschedulable"] is True
