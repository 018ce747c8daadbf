"""The events of a worker's life, told by all services over a real NATS; Kubernetes and Slurm are fakes."""

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from lockstep.base.clock import monotonic
from tests.chains import Chains, Event, check_cordon_and_uncordon, kind_of, named, only, turns
from tests.integration.whole import Site, whole


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    """Three workers."""
    async with whole(tmp_path, workers=3) as site:
        yield site


async def told(site: Site, kind: str, is_it: Callable[[Event], object] = lambda _: True) -> Chains:
    """All events, as soon as there is one of this kind of which this is true."""
    end = monotonic() + 20
    while True:
        out = (await site.run("events", "--since", "5m", "-o", "json")).out
        chains = Chains(json.loads(line) for line in out.splitlines())
        if any(is_it(event) for event in named(chains.events, kind)):
            return chains
        assert monotonic() < end, [kind_of(event) for event in chains.events]


def cordon(site: Site, name: str, *, on: bool) -> None:
    """As kubectl does."""
    fields = [{"manager": "kubectl-cordon", "fieldsV1": {"f:spec": {"f:unschedulable": {}}}}]
    site.kube.put("nodes", name, spec={"unschedulable": on}, metadata={"managedFields": fields if on else []})


async def test_a_cordon_under_a_job_is_told_from_the_cordon_to_the_way_back(site: Site) -> None:
    """One cordon, one job that ends, one uncordon: each step once, in the order of causes, and back to a person."""
    job = site.slurm.start_job(["gpu-1"])
    await site.until("gpu-1", phase="busy")
    cordon(site, "host-1", on=True)
    await told(site, "drain.waiting", lambda e: e.get("waiting_for"))
    site.slurm.end_job(job)
    await told(site, "worker.unprotected")
    cordon(site, "host-1", on=False)
    chains = await told(site, "slurm-node.phase-changed", lambda e: e["after"] == "idle")

    chains.check_order()
    events = chains.about("gpu-1", "host-1")
    began = next(i for i, event in enumerate(events) if kind_of(event) == "node.cordoned")
    check_cordon_and_uncordon(chains, events[began:], job)
    assert [w["name"] for w in events[began]["workers"]] == ["gpu-1"]


async def test_an_administrators_drain_is_told_and_is_its_own_cause(site: Site) -> None:
    """Slurm's change is what the hold came from, and its end what ended it; we write nothing."""
    node = site.slurm.nodes["gpu-2"]
    node.flags.add("DRAIN")
    node.reason, node.reason_at = "bad DIMM", 1
    site.slurm.touch()
    await told(site, "drain.drained")
    node.flags.discard("DRAIN")
    node.reason, node.reason_at = "", 0
    site.slurm.touch()
    chains = await told(site, "drain.ended")

    chains.check_order()
    events = chains.about("gpu-2", "host-2")
    steps = ["hold.respected", "drain.started", "drain.drained", "hold.released", "drain.ended"]
    assert only(events, steps) == steps
    assert turns(named(events, "slurm-node.reason-changed")) == ["", "bad DIMM", ""]
    assert [e for e in named(events, "worker") if kind_of(e) != "worker.protected"] == []
    (drained,), (ended,) = named(events, "drain.drained"), named(events, "drain.ended")
    assert chains.causes(drained)[-1] == "slurm-node.state-changed"
    assert chains.causes(ended) == ["drain.ended", "hold.released", "slurm-node.state-changed"]


async def test_a_condition_holds_and_its_end_frees(site: Site) -> None:
    """Both ends lead back to what the node said; the event names the worker."""
    for status in ("True", "False"):
        shown = [{"type": "Ready", "status": "True"}, {"type": "DiskPressure", "status": status, "reason": "Full"}]
        site.kube.put("nodes", "host-3", status={"conditions": shown, "nodeInfo": {"bootID": "b"}})
        chains = await told(site, "drain.drained" if status == "True" else "worker.drain-lifted")

    chains.check_order()
    events = chains.about("gpu-3", "host-3")
    came, went = named(events, "node.condition-changed")
    assert [(e["condition"], e["before"], e["after"]) for e in (came, went)] == [
        ("DiskPressure", "", "True"),
        ("DiskPressure", "True", "False"),
    ]
    assert [w["name"] for w in came["workers"]] == ["gpu-3"]
    (drain_set,), (lifted,) = named(events, "worker.drain-set"), named(events, "worker.drain-lifted")
    assert chains.causes(drain_set)[1:] == ["drain.started", "hold.placed", "node.condition-changed"]
    assert chains.causes(lifted)[1:] == ["drain.ended", "hold.released", "node.condition-changed"]


async def test_the_request_is_the_cause_of_the_hold_that_it_made(site: Site) -> None:
    """Its id is on the Hold; a Hold that cannot be used is refused because of it too."""
    marked = {"annotations": {"lockstep.sh/request": "r-1"}}
    site.kube.put("holds", "dimm", "slurm", metadata=marked, spec={"workers": {"names": ["gpu-1"]}, "reason": "DIMM"})
    site.kube.put("holds", "bad", "slurm", metadata=marked, spec={"workers": {"names": []}, "reason": "DIMM"})
    await told(site, "hold.refused")
    chains = await told(site, "hold.placed")

    (placed,), (refused,) = named(chains.events, "hold.placed"), named(chains.events, "hold.refused")
    assert (placed["cause_id"], refused["cause_id"]) == ("r-1", "r-1")


async def test_a_node_that_goes_takes_its_hold_along(site: Site) -> None:
    """The hold ended because the node did."""
    cordon(site, "host-1", on=True)
    await told(site, "worker.drain-set")
    site.kube.remove("nodes", "host-1")
    chains = await told(site, "hold.released")

    (gone,), (released,) = named(chains.events, "node.gone"), named(chains.events, "hold.released")
    assert chains.causes(released) == ["hold.released", "node.gone"]
    assert [w["name"] for w in gone["workers"]] == ["gpu-1"]
