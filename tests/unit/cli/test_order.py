"""`lockstep hold`: what is asked for, and what is refused before anything is changed."""

import pytest

from lockstep.base.errors import BadInput
from lockstep.cli.exits import Exit, Stop
from lockstep.cli.hold import manifest
from lockstep.cli.order import Order, faults, name_for, order_of
from lockstep.contracts.hold import AtDeadline, Drain, DrainPolicy, HoldClass, LabelSelector, WorkerSelector
from tests.builders import NOW, a_slurm_node, ago
from tests.unit.cli.seen import a_fleet, args, parts

FLEET = a_fleet(*parts(1), *parts(2), *parts(7))


def ordered(*words: str) -> Order:
    """The order of a whole command line; the reason is given."""
    asked = args("hold", "--reason", "DIMM B2", *words)
    assert not faults(asked, NOW)
    return order_of(asked, FLEET, ["main"])


def test_workers_become_a_hold_in_the_namespace_of_their_cluster() -> None:
    """The plain case: one worker, one reason."""
    order = ordered("gpu-7")

    assert (order.namespace, order.name, order.selected) == ("slurm", "gpu-7-dimm-b2", ["gpu-7"])
    assert order.spec.workers == WorkerSelector(names=["gpu-7"])
    assert order.spec.cluster == "main"
    assert order.spec.hold_class is HoldClass.MANUAL
    assert order.spec.drain == Drain()


def test_every_option_reaches_the_hold() -> None:
    """Class, expiry, policy, deadline, what happens then, and the name."""
    order = ordered(
        *("gpu-7", "--class", "maintenance", "--expires", "2h", "--name", "swap"),
        *("--deadline", "90m", "--at-deadline", "requeue"),
    )

    assert order.name == "swap"
    assert order.spec.hold_class is HoldClass.MAINTENANCE
    assert order.spec.expires_at == ago(-7200)
    assert order.spec.drain == Drain(policy=DrainPolicy.WAIT, deadline="90m", at_deadline=AtDeadline.REQUEUE)


def test_a_dry_run_is_a_manifest_that_kubectl_takes() -> None:
    """What is printed is the Hold that would be created."""
    assert manifest(ordered("gpu-7")) == {
        "apiVersion": "lockstep.sh/v1alpha1",
        "kind": "Hold",
        "metadata": {"name": "gpu-7-dimm-b2", "namespace": "slurm"},
        "spec": {"workers": {"names": ["gpu-7"]}, "reason": "DIMM B2", "cluster": "main", "drain": {}},
    }


@pytest.mark.parametrize(
    ("words", "wanted", "selected"),
    [
        (["gpu-[1-2]"], WorkerSelector(names=["gpu-1", "gpu-2"]), ["gpu-1", "gpu-2"]),
        (["--hostlist", "gpu-[1-2]"], WorkerSelector(hostlist="gpu-[1-2]"), ["gpu-1", "gpu-2"]),
        (["--nodes", "host-7"], WorkerSelector(nodes=["host-7"]), ["gpu-7"]),
        (["--partitions", "gpu"], WorkerSelector(partitions=["gpu"]), ["gpu-1", "gpu-2", "gpu-7"]),
        (
            ["--selector", "rack=1"],
            WorkerSelector(selector=LabelSelector(match_labels={"rack": "1"})),
            ["gpu-1", "gpu-7"],
        ),
    ],
)
def test_workers_are_chosen_in_one_of_five_ways(words: list[str], wanted: WorkerSelector, selected: list[str]) -> None:
    """The Hold keeps the way that was chosen; the workers of now are told."""
    order = ordered(*words)

    assert (order.spec.workers, order.selected) == (wanted, selected)


def test_more_names_than_a_hold_may_list_become_a_host_list() -> None:
    """A thousand and some workers in one go are no problem of the person's."""
    fleet = a_fleet(*(a_slurm_node(name=f"gpu-{i}") for i in range(1, 1101)))

    order = order_of(args("hold", "--reason", "move", "gpu-[1-1100]"), fleet, ["main"])

    assert order.spec.workers == WorkerSelector(hostlist="gpu-[1-1100]")
    assert len(order.selected) == 1100


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["gpu-7", "--reason", "x" * 10_000], "--reason: has 10000 characters; at most 200"),
        (["gpu-7", "--reason", "  "], "--reason: is empty"),
        (["gpu-7", "--reason", "a\x1b[31mb"], "control or invisible characters"),
        (["gpu-7", "--reason", "a\nb"], "control or invisible characters"),
        (["--reason", "r"], "nothing given; want exactly one"),
        (["gpu-7", "--reason", "r", "--nodes", "host-7"], "workers, --nodes given; want exactly one"),
        (["gpu-7", "--reason", "r", "--deadline", "2 hours"], "--deadline: duration '2 hours': want hours"),
        (["gpu-7", "--reason", "r", "--deadline", "0s"], "want more than 0 seconds"),
        (["gpu-7", "--reason", "r", "--deadline", "1h", "--policy", "cancel"], "only --policy wait waits"),
        (["gpu-7", "--reason", "r", "--at-deadline", "cancel"], "needs a --deadline"),
        (["gpu-7", "--reason", "r", "--expires", "yesterday"], "--expires 'yesterday': want a time to come"),
        (["gpu-7", "--reason", "r", "--expires", "2026-12-01T06:00:00Z"], "want a time to come"),
        (["gpu-7", "--reason", "r", "--expires", "2027-12-01T06:00:00"], "want a time to come"),
        (["gpu-7", "--reason", "r", "--expires", "9" * 40 + "h"], "want a time to come"),
        (["gpu-7", "--reason", "r", "--name", "Not_A_Name"], "--name 'Not_A_Name': want at most 63 small letters"),
    ],
)
def test_bad_input_is_refused_with_field_value_and_what_is_allowed(words: list[str], said: str) -> None:
    """Each fault is one sentence, and is found without asking any system."""
    assert any(said in fault for fault in faults(args("hold", *words), NOW))


def test_all_faults_are_told_at_once() -> None:
    """Nobody mends a command line one fault at a time."""
    asked = args("hold", "--reason", "", "--deadline", "soon", "--expires", "never", "--name", "?")

    assert len(faults(asked, NOW)) == 5


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["gpu-8"], "worker 'gpu-8': there is none of that name; nearest: gpu-"),
        (["gpu-[7-8]"], "worker 'main/gpu-8'|worker 'gpu-8'"),
        (["--hostlist", "gpu-[1-3]"], "gpu-3"),
        (["--nodes", "host-8"], "--nodes 'host-8': no worker is there; nearest: host-"),
        (["--partitions", "cpu"], "--partitions 'cpu': no worker is there; nearest: gpu"),
        (["--selector", "rack=9"], "no worker's pod has these labels"),
    ],
)
def test_a_hold_for_nobody_is_not_created(words: list[str], said: str) -> None:
    """What names nobody is a slip, and the nearest names help."""
    with pytest.raises(Stop, match=said) as told:
        ordered(*words)

    assert told.value.code is Exit.NOT_FOUND


@pytest.mark.parametrize("text", ["", "rack", "rack=1,", "rack!=1", "rack=1,rack=2", "=", "rack="])
def test_a_selector_must_name_labels_with_values(text: str) -> None:
    """An empty or half selector is refused; a Hold can only ask for equality."""
    with pytest.raises(BadInput, match=r"--selector"):
        ordered("--selector", text)


def test_a_selector_that_takes_every_worker_is_refused() -> None:
    """The whole cluster goes out of service only by name."""
    fleet = a_fleet(*parts(1), *parts(7))

    with pytest.raises(BadInput, match=r"takes every worker"):
        order_of(args("hold", "--reason", "r", "--selector", "rack=1"), fleet, ["main"])


def test_workers_of_two_clusters_need_two_holds() -> None:
    """A Hold is for one cluster."""
    fleet = a_fleet(a_slurm_node(), a_slurm_node(cluster="test"))

    with pytest.raises(BadInput, match=r"clusters main, test"):
        order_of(args("hold", "--reason", "r", "main/gpu-7", "test/gpu-7"), fleet, ["main", "test"])


@pytest.mark.parametrize(
    ("worker", "reason", "name"),
    [
        ("gpu-7", "DIMM B2 swap, ticket 4711", "gpu-7-dimm-b2-swap-ticket"),
        ("", "move rack 4", "move-rack-4"),
        ("", "¿?", "hold"),
        ("gpu-7", "x" * 200, "gpu-7-" + "x" * 54),
    ],
)
def test_a_hold_is_named_after_worker_and_reason(worker: str, reason: str, name: str) -> None:
    """The proposed name is one that Kubernetes takes, with room for a number."""
    assert name_for(worker, reason) == name
