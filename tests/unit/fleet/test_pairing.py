"""How facts are joined into one worker, and what is believed of Slurm between a write and the next read."""

from datetime import datetime

import pytest

from lockstep.contracts.facts import Wrote
from lockstep.fleet.pairing import Site, believed, pair, workers_on
from lockstep.kube import keys
from lockstep.slurm import states
from tests.builders import (
    CLUSTER,
    HOST,
    KEY,
    a_desired,
    a_hold,
    a_job,
    a_node,
    a_pod,
    a_slurm_node,
    a_table,
    a_worker,
    ago,
    wrote_drain,
    wrote_undrain,
)

SITE = Site()
HYBRID = Site(hybrid=frozenset({CLUSTER}))


def test_everything_known_about_a_worker_is_joined() -> None:
    """Slurm node, pod, Kubernetes node, jobs, Holds, and how fresh each source is."""
    worker = pair(a_table(a_slurm_node(), a_pod(), a_node(), a_job(), a_hold()), KEY, SITE)
    assert (worker.slurm, worker.pod, worker.node) == (a_slurm_node(), a_pod(), a_node())
    assert [job.job_id for job in worker.jobs] == [42]
    assert [hold.name for hold in worker.holds] == ["dimm"]
    assert (worker.slurm_as_of, worker.jobs_as_of, worker.kube_as_of) == (ago(1), ago(1), ago(1))


def test_the_newest_living_pod_counts() -> None:
    """A terminating or failed pod gives way, also to one that started earlier."""
    old = a_pod(name="old", uid="1", started_at=ago(900))
    new = a_pod(name="new", uid="2", started_at=ago(60))
    going = a_pod(name="going", uid="3", started_at=ago(5), deleting_since=ago(1))
    failed = a_pod(name="failed", uid="4", started_at=ago(4), phase="Failed")
    worker = pair(a_table(going, old, failed, new), KEY, SITE)
    assert worker.pod == new
    assert {pod.name for pod in worker.other_pods} == {"old", "going", "failed"}


def test_a_worker_whose_pod_is_away_is_still_on_its_last_node() -> None:
    """So its cordon, and a Hold on the node, go on standing, and the node's mirror is taken back when they end."""
    table = a_table(a_slurm_node(), a_node(), a_desired(kube_node=HOST, had_pod=True))
    assert pair(table, KEY, SITE).node == a_node()
    assert list(workers_on(table, HOST, [CLUSTER], SITE)) == [KEY]


def test_a_pending_pod_is_still_on_its_last_node() -> None:
    """It has been told no other yet."""
    table = a_table(a_node(), a_pod(node="", ready=False), a_desired(kube_node=HOST))
    assert pair(table, KEY, SITE).node_name == HOST
    assert list(workers_on(table, HOST, [CLUSTER], SITE)) == [KEY]


def test_a_pod_that_moved_leaves_its_last_node() -> None:
    """The old node's cordon is no longer its affair."""
    table = a_table(a_node(), a_node(name="host-8"), a_pod(node="host-8"), a_desired(kube_node=HOST))
    assert pair(table, KEY, SITE).node_name == "host-8"
    assert list(workers_on(table, HOST, [CLUSTER], SITE)) == []
    assert list(workers_on(table, "host-8", [CLUSTER], SITE)) == [KEY]


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        ({keys.SLURM_NODE_NAME: "gpu-7"}, True),
        ({keys.SLURM_NODE_NAME: "gpu-7", keys.CLUSTER: "other"}, False),
        ({}, False),
    ],
)
def test_a_host_without_pods_is_found_by_its_label(labels: dict[str, str], found: bool) -> None:
    """Where workers may have no pod; the label names the Slurm node."""
    table = a_table(a_slurm_node(), a_node(labels=labels))
    worker = pair(table, KEY, HYBRID)
    assert worker.hybrid
    assert (worker.node is not None) == found
    assert (list(workers_on(table, HOST, [CLUSTER], HYBRID)) == [KEY]) == found


def test_a_worker_that_had_a_pod_never_becomes_one_without() -> None:
    """Where both kinds exist, a pod that is away is away: its Slurm node must not pass for a host's."""
    table = a_table(a_slurm_node(), a_node(name="gpu-7"), a_desired(had_pod=True, kube_node="gpu-7"))
    assert not pair(table, KEY, HYBRID).hybrid
    assert list(workers_on(table, "gpu-7", [CLUSTER], HYBRID)) == [KEY]


@pytest.mark.parametrize(
    ("state", "wrote", "as_of", "drained"),
    [
        pytest.param("IDLE", wrote_drain(drained_at=ago(2)), ago(3), True, id="DRAIN answered, not read"),
        pytest.param("IDLE", wrote_drain(drained_at=ago(2)), ago(2), True, id="DRAIN answered in the moment of a read"),
        pytest.param("IDLE", wrote_drain(drained_at=ago(2)), ago(1), False, id="read after it: somebody resumed"),
        pytest.param("IDLE+DRAIN", wrote_undrain(undrained_at=ago(2)), ago(3), False, id="UNDRAIN answered, not read"),
        pytest.param("IDLE+DRAIN", wrote_undrain(undrained_at=ago(2)), ago(1), True, id="read after it: drained anew"),
        pytest.param("IDLE+DRAIN", None, ago(1), True, id="nothing written"),
        pytest.param("IDLE+UNDRAIN+DRAIN", wrote_drain(drained_at=ago(2)), ago(3), True, id="DRAIN ends an UNDRAIN"),
        pytest.param("IDLE", wrote_drain(drained_at=ago(2)), None, True, id="Slurm was never read"),
    ],
)
def test_our_answered_write_is_believed_until_a_read_can_show_it(
    state: str, wrote: Wrote | None, as_of: datetime | None, drained: bool
) -> None:
    """After that the read is right, whatever we wrote."""
    slurm = believed(a_worker(state=state, wrote=wrote, slurm_as_of=as_of))
    assert slurm is not None
    assert states.is_drain(slurm.base, slurm.flags) == drained
    if wrote is not None and as_of != ago(1):
        assert slurm.reason == wrote.words


def test_a_hold_that_counts_for_nobody_selects_nobody() -> None:
    """Refused as a whole, by its uid."""
    table = a_table(a_hold(), a_hold("other"))
    worker = pair(table, KEY, Site(refused=frozenset({"hold-dimm"})))
    assert [hold.name for hold in worker.holds] == ["other"]


def test_a_worker_that_nothing_is_known_of_is_empty() -> None:
    """No fact, no view: nothing is invented."""
    worker = pair(a_table(), KEY, SITE)
    assert (worker.slurm, worker.pod, worker.node, worker.desired, worker.wrote) == (None, None, None, None, None)
    assert worker.key == KEY
