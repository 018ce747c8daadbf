"""What becomes of a request: every way to be wrong is named, nobody asks for more than is allowed."""

import json
from typing import Any

import msgspec
import pytest

from lockstep.contracts.facts import SlurmNode
from lockstep.contracts.hold import HoldClass, HoldSpec, WorkerSelector
from lockstep.contracts.requests import AnyRequest, CancelDrainRequest, HoldRequest, ReleaseRequest
from lockstep.contracts.subjects import request_subject
from lockstep.drain.decide_request import Address, End, Fault, Place, Seen, address_of, decide_request, read
from lockstep.fleet.worker import Worker
from lockstep.kube import keys
from lockstep.kube.wire import Hold, ManagedMeta
from lockstep.runtime.settings import ClusterSettings, RequestRight, RequestSettings, Settings
from tests.builders import NOW, a_node, a_pod, a_slurm_node, a_worker, ago

OPS = RequestRight(user="ops", verbs=["hold", "release", "cancel-drain"], clusters=["main"])
BOSS = RequestRight(user="boss", verbs=["release"], clusters=["*"], override=True)


def settings(*allow: RequestRight, clusters: tuple[str, ...] = ("main", "test"), **more: Any) -> Settings:
    """Two clusters that share a namespace, and these rights."""
    known = [ClusterSettings(name=name, namespace="slurm", url="http://a", key_file="/k") for name in clusters]
    return Settings(clusters=known, requests=RequestSettings(allow=list(allow or (OPS, BOSS)), **more))


def worker(name: str, **fields: Any) -> Worker:
    """A worker of the main cluster on a Kubernetes node of its own."""
    slurm = SlurmNode(cluster="main", name=name, base="IDLE", partitions=["gpu"])
    pod = a_pod(name=name, worker=name, node=f"host-{name}", labels={"app": "slurmd", "rack": f"r-{name}"})
    node = a_node(name=f"host-{name}")
    return a_worker(name=name, slurm=slurm, pod=pod, node_name=node.name, node=node, **fields)


FLEET = [worker("gpu-1"), worker("gpu-2"), worker("gpu-3")]


def a_hold(name: str = "dimm", by: str = "ops", *, request: str = "r-0", cluster: str = "main", **spec: Any) -> Hold:
    """A Hold that stands for a request of `by`; without `by` one that ana made on Kubernetes."""
    notes = {keys.REQUESTED_BY: by, keys.REQUEST: request} if by else {keys.OWNER: "ana@example.com"}
    meta = ManagedMeta(name=name, namespace="slurm", uid=f"uid-{name}", annotations=notes, creation_timestamp=ago(60))
    wanted: dict[str, Any] = {"workers": WorkerSelector(names=["gpu-1"]), "reason": "DIMM", "cluster": cluster}
    return Hold(metadata=meta, spec=HoldSpec(**(wanted | spec)))


def hold_request(workers: dict[str, Any] | None = None, **fields: Any) -> HoldRequest:
    """A request for a hold on gpu-1; `spec` is laid over the usual one."""
    spec = {"workers": workers or {"names": ["gpu-1"]}, "reason": "DIMM B2"} | fields.pop("spec", {})
    body = {"id": "r-1", "cluster": "main", "verb": "hold.v1", "spec": spec} | fields
    return msgspec.convert(body, HoldRequest)


def judged(request: AnyRequest, user: str = "ops", **more: Any) -> Any:
    """The verdict."""
    seen = Seen(workers=more.pop("workers", FLEET), holds=more.pop("holds", []), in_work=more.pop("in_work", 0))
    address = address_of(request_subject(request, user))
    assert address is not None
    return decide_request(address, request, seen, more.get("settings") or settings(**more), NOW)


def refused(request: AnyRequest, user: str = "ops", **more: Any) -> Fault:
    """The fault."""
    verdict = judged(request, user, **more)
    assert isinstance(verdict, Fault)
    return verdict


# ---- what came


@pytest.mark.parametrize("user", ["ops", "ana@example.com", "büro 7", "a.b*>", "UABC"])
def test_a_subject_says_who_asks_for_what(user: str) -> None:
    """As `request_subject` makes it, whatever the name."""
    subject = request_subject(hold_request(), user)
    assert address_of(subject) == Address(user, "main", "hold", "r-1")


@pytest.mark.parametrize(
    "subject",
    [
        "lockstep.request.hold.v1.ops.main",
        "lockstep.request.hold.v1.ops.main.r.1",
        "lockstep.request.hold.v2.ops.main.r",
        "lockstep.request.reboot.v1.ops.main.r",
        "lockstep.request.hold.v1._.main.r",
        "lockstep.request.hold.v1._zz.main.r",
        "lockstep.request.hold.v1.ops._site.r",
        "lockstep.request.hold.v1.ops.ma_3ein.r",
        "lockstep.request.hold.v1._6f_70_73.main.r",
        "lockstep.request.hold.v1.a_0ab.main.r",
        "lockstep.request.hold.v1.ops.main._2a",
        f"lockstep.request.hold.v1.{'u' * 121}.main.r",
        f"lockstep.request.hold.v1.ops.main.{'r' * 129}",
    ],
)
def test_a_subject_that_is_none_of_ours_is_no_request(subject: str) -> None:
    """Also one that says the same in other letters: one request has one subject."""
    assert address_of(subject) is None


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"spec": {"workers": {"names": ["a"]}, "reason": 7}}, "spec.reason: Expected `str`, got `int`"),
        ({"spec": {"workers": {"names": ["a"]}}}, "spec: Object missing required field `reason`"),
        ({"spec": {"workers": {"names": "a"}, "reason": "x"}}, "spec.workers.names: Expected `array | null`"),
        ({"id": "r-2"}, "id: 'r-2' is not the subject's 'r-1'"),
        ({"cluster": "test"}, "cluster: 'test' is not the subject's 'main'"),
        ({"verb": "release.v1"}, "verb: Invalid value 'release.v1'"),
        ({"spec": {"workers": {"names": ["a"]}, "reason": "x", "till": "2h"}}, "spec.till: there is no such field"),
        ({"spec": {"workers": {"name": ["a"]}, "reason": "x"}}, "spec.workers.name: there is no such field"),
        ({"urgent": True}, "urgent: there is no such field"),
        ({"name": "Not A Name"}, "name: Expected `str` matching regex"),
        ({"spec": {"workers": {"names": ["a"]}, "reason": "x", "class": "v"}}, "spec.class: Invalid enum value 'v'"),
        ({"spec": {"workers": {"names": ["a"]}, "reason": "x", "expiresAt": "2026-12-01T00:00:00"}}, "spec.expiresAt:"),
    ],
)
def test_a_body_that_is_wrong_names_the_field(body: dict[str, Any], named: str) -> None:
    """The field, what it holds, what is allowed; also a field that nobody would read."""
    good = {"id": "r-1", "cluster": "main", "verb": "hold.v1", "spec": {"workers": {"names": ["a"]}, "reason": "x"}}
    fault = read(Address("ops", "main", "hold", "r-1"), json.dumps(good | body).encode())
    assert isinstance(fault, Fault)
    assert (fault.code, fault.is_dead) == ("invalid", False)
    assert named in fault.fault


@pytest.mark.parametrize("body", [b"", b"{", b"\xff\xfe", b"[" * 5000])
def test_a_body_that_is_no_json_is_refused_and_kept(body: bytes) -> None:
    """Somebody must look at it."""
    fault = read(Address("ops", "main", "hold", "r-1"), body)
    assert isinstance(fault, Fault)
    assert fault.is_dead
    assert fault.fault.startswith("body: is no JSON")


def test_a_good_body_is_read() -> None:
    """As the contract says."""
    request = hold_request()
    assert read(Address("ops", "main", "hold", "r-1"), msgspec.json.encode(request)) == request


# ---- who may


@pytest.mark.parametrize(
    ("user", "request_"),
    [
        ("guest", hold_request()),
        ("OPS", hold_request()),
        ("ops", hold_request(cluster="test")),
        ("ops", hold_request(cluster="elsewhere")),
        ("boss", hold_request()),
    ],
)
def test_nobody_asks_for_what_is_not_written_out(user: str, request_: AnyRequest) -> None:
    """User, verb and cluster must all be named; whether a cluster exists is not told to those who may not ask."""
    fault = refused(request_, user)
    assert fault.code == "denied"
    assert f"user {user!r} may not ask for hold on cluster {request_.cluster!r}" in fault.fault


def test_by_default_nobody_may_ask_for_anything() -> None:
    """Rights are given, never presumed."""
    assert refused(hold_request(), settings=Settings(clusters=settings().clusters)).code == "denied"


def test_a_star_means_every_cluster_but_not_one_that_does_not_exist() -> None:
    """It must stand alone and be written out."""
    every = RequestRight(user="ops", verbs=["hold"], clusters=["*"])
    assert isinstance(judged(hold_request(), settings=settings(every)), Place)
    fault = refused(hold_request(cluster="elsewhere"), settings=settings(every))
    assert fault.code == "not-found"
    assert fault.fault == "cluster: 'elsewhere': there is none of that name; want main, test"


# ---- hold


def test_a_hold_is_placed_as_it_was_asked_for() -> None:
    """In the cluster's namespace, for the cluster, under a name made from the request."""
    place = judged(hold_request({"hostlist": "gpu-[1-2]"}, spec={"class": "maintenance"}))
    assert isinstance(place, Place)
    assert (place.namespace, place.workers) == ("slurm", 2)
    assert place.spec == HoldSpec(
        cluster="main",
        workers=WorkerSelector(hostlist="gpu-[1-2]"),
        reason="DIMM B2",
        hold_class=HoldClass.MAINTENANCE,
    )
    assert place.name.startswith("req-")
    assert judged(hold_request(name="dimm")).name == "dimm"


def test_requests_of_other_users_clusters_and_ids_have_holds_of_other_names() -> None:
    """Two requests never share a Hold by accident."""
    addresses = [Address(u, c, "hold", i) for u in ("a", "b") for c in ("main", "test") for i in ("1", "2")]
    assert len({address.hold_name for address in addresses}) == 8


def test_a_reason_is_cleaned_as_everywhere() -> None:
    """Control characters do not reach Slurm."""
    assert judged(hold_request(spec={"reason": " bad\x07\nfan\u202e "})).spec.reason == "bad fan"


@pytest.mark.parametrize(
    ("workers", "spec", "code", "named"),
    [
        ({}, {"workers": {}}, "invalid", "spec.workers: nothing given; want exactly one selector"),
        ({"names": ["gpu-1"], "hostlist": "gpu-2"}, {}, "invalid", "names, hostlist given; want exactly one"),
        ({"names": []}, {}, "invalid", "spec.workers.names: is empty"),
        ({"selector": {"matchLabels": {}}}, {}, "invalid", "spec.workers.selector: is empty"),
        ({"hostlist": "gpu-[1-"}, {}, "invalid", "spec.workers.hostlist:"),
        ({"blocks": ["b1"]}, {}, "invalid", "spec.workers.blocks: needs the topology service"),
        ({"names": [f"n-{i}" for i in range(1025)]}, {}, "invalid", "spec.workers.names: more than 1024"),
        ({}, {"reason": "  "}, "invalid", "spec.reason: is empty"),
        ({}, {"reason": "x" * 201}, "invalid", "spec.reason: has 201 characters; at most 200"),
        ({}, {"class": "slurm"}, "invalid", "spec.class: slurm is for what stands in Slurm itself"),
        ({}, {"cluster": "test"}, "invalid", "spec.cluster: 'test' is not the request's 'main'"),
        ({}, {"expiresAt": "2026-12-01T12:00:00Z"}, "invalid", "spec.expiresAt: 2026-12-01T12:00:00+00:00 is past"),
        ({}, {"drain": {"deadline": "9999h"}}, "invalid", "spec.drain.deadline: 9999h is longer than a year"),
        ({"names": ["gpu-1", "gpu-9", "x"]}, {}, "not-found", "spec.workers.names: gpu-9, x: no worker"),
        (
            {"hostlist": "gpu-[1-9]"},
            {},
            "not-found",
            "gpu-4, gpu-5, gpu-6, gpu-7, gpu-8 and 1 more: no worker",
        ),
        ({"nodes": ["host-gpu-1", "host-x"]}, {}, "not-found", "spec.workers.nodes: host-x: no worker"),
        ({"partitions": ["gpu", "cpu"]}, {}, "not-found", "spec.workers.partitions: cpu: no worker"),
        ({"selector": {"matchLabels": {"app": "nginx"}}}, {}, "not-found", "no worker's pod has these labels"),
        ({"selector": {"matchLabels": {"app": "slurmd"}}}, {}, "invalid", "takes every worker of the cluster"),
    ],
)
def test_a_hold_that_makes_no_sense_is_refused(
    workers: dict[str, Any], spec: dict[str, Any], code: str, named: str
) -> None:
    """The rules of Hold resources, and no worker that does not exist."""
    fault = refused(hold_request(workers, spec=spec))
    assert (fault.code, named in fault.fault) == (code, True), fault.fault


@pytest.mark.parametrize(
    ("workers", "count"),
    [
        ({"names": ["gpu-1", "gpu-3"]}, 2),
        ({"nodes": ["host-gpu-2"]}, 1),
        ({"partitions": ["gpu"]}, 3),
        ({"hostlist": "gpu-[1-3]"}, 3),
        ({"selector": {"matchLabels": {"rack": "r-gpu-2"}}}, 1),
    ],
)
def test_each_way_to_say_which_workers_is_counted(workers: dict[str, Any], count: int) -> None:
    """The answer has the number."""
    assert judged(hold_request(workers)).workers == count


def test_more_requests_than_the_settings_let_be_in_work_are_refused_with_the_numbers() -> None:
    """Bounded, and whoever is refused can see why."""
    fault = refused(hold_request(), in_work=3, max_in_work=3)
    assert (fault.code, fault.fault) == ("busy", "3 requests are in work; requests.max_in_work lets 3 be so")
    assert isinstance(judged(hold_request(), in_work=2, max_in_work=3), Place)


# ---- release


def release(hold: str = "dimm", **fields: Any) -> ReleaseRequest:
    """A request to end a Hold."""
    return ReleaseRequest(id="r-2", cluster="main", hold=hold, **fields)


def test_the_user_who_asked_for_a_hold_ends_it() -> None:
    """Nothing is recorded as an override."""
    end = judged(release(), holds=[a_hold()])
    assert isinstance(end, End)
    assert (end.outcome, end.workers, end.by) == ("released", 1, "nats:ops")
    assert [(one.namespace, one.name, one.uid, one.overridden) for one in end.holds] == [
        ("slurm", "dimm", "uid-dimm", [])
    ]


@pytest.mark.parametrize(
    ("by", "owner"), [("eve", "nats:eve"), ("", "ana@example.com")], ids=["another user's", "a person's"]
)
def test_somebody_elses_hold_needs_the_right_the_wish_and_a_reason(by: str, owner: str) -> None:
    """Each is missed by name; with all three it ends and the workers of which it is told are named."""
    hold = a_hold(by=by)
    both = [OPS, BOSS]
    first = refused(release(), holds=[hold])
    assert (first.code, f"is of {owner}, not of 'ops'" in first.fault) == ("denied", True)
    second = refused(release(override=True, why="now"), holds=[hold], settings=settings(*both))
    assert (second.code, "override: user 'ops' has no such right" in second.fault) == ("denied", True)
    third = refused(release(override=True), "boss", holds=[hold], settings=settings(*both))
    assert (third.code, third.fault) == ("invalid", f"why: is empty; say why the hold of {owner} is ended")
    end = judged(release(override=True, why="needed\nnow"), "boss", holds=[hold], settings=settings(*both))
    assert isinstance(end, End)
    assert (end.by, end.why) == ("nats:boss", "needed now")
    assert [worker.name for worker in end.holds[0].overridden] == ["gpu-1"]
    assert end.holds[0].view.owner == owner


@pytest.mark.parametrize(
    "holds",
    [
        pytest.param([], id="none"),
        pytest.param([a_hold("fan")], id="another name"),
        pytest.param([a_hold(cluster="test")], id="another cluster"),
        pytest.param([a_hold(cluster="")], id="a cluster that nobody named, of two in the namespace"),
    ],
)
def test_a_hold_that_is_not_of_the_cluster_is_not_found(holds: list[Hold]) -> None:
    """A right on one cluster ends nothing of another that shares its namespace."""
    fault = refused(release(), holds=holds)
    assert (fault.code, fault.fault) == ("not-found", "hold: 'dimm': there is none of that name for cluster 'main'")


def test_a_hold_without_a_cluster_is_of_the_only_one_in_its_namespace() -> None:
    """As the watcher reads it."""
    alone = settings(OPS, clusters=("main",))
    assert isinstance(judged(release(), holds=[a_hold(cluster="")], settings=alone), End)


# ---- cancel-drain


def cancel(worker: str = "gpu-1", **fields: Any) -> CancelDrainRequest:
    """A request to end a drain."""
    return CancelDrainRequest(id="r-3", cluster="main", worker=worker, **fields)


def test_all_own_holds_on_the_one_worker_are_ended() -> None:
    """Those on others, and those whose time is over, are not touched."""
    holds = [
        a_hold("one"),
        a_hold("two"),
        a_hold("old", expires_at=ago(1)),
        a_hold("other", workers=WorkerSelector(names=["gpu-2"])),
        a_hold("elsewhere", cluster="test"),
    ]
    end = judged(cancel(), holds=holds)
    assert isinstance(end, End)
    assert ([one.name for one in end.holds], end.outcome) == (["one", "two"], "cancelled")


@pytest.mark.parametrize(
    ("more", "fleet", "named"),
    [
        pytest.param([a_hold("eves", by="eve")], FLEET, "hold/slurm/eves of nats:eve (1 workers)", id="another user's"),
        pytest.param([a_hold("anas", by="")], FLEET, "hold/slurm/anas of ana@example.com", id="a person's"),
        pytest.param(
            [a_hold("rack", workers=WorkerSelector(hostlist="gpu-[1-2]"))],
            FLEET,
            "hold/slurm/rack of nats:ops (2 workers)",
            id="for many",
        ),
        pytest.param(
            [],
            [msgspec.structs.replace(FLEET[0], node=a_node(name="host-gpu-1", unschedulable=True)), *FLEET[1:]],
            "cordon/host-gpu-1 of kubernetes",
            id="a cordon",
        ),
        pytest.param(
            [],
            [msgspec.structs.replace(FLEET[0], slurm=a_slurm_node("IDLE+DRAIN", name="gpu-1", reason="fan"))],
            "slurm/gpu-1 of slurm",
            id="an administrator's drain",
        ),
    ],
)
def test_while_others_keep_the_worker_out_nothing_is_ended_and_they_are_named(
    more: list[Hold], fleet: list[Worker], named: str
) -> None:
    """It would not come back into service, and whoever asked might think so."""
    fault = refused(cancel(), holds=[a_hold("mine"), *more], workers=fleet)
    assert (fault.code, named in fault.fault) == ("denied", True), fault.fault


def test_without_a_hold_of_ones_own_there_is_nothing_to_cancel() -> None:
    """Told apart from a worker that does not exist."""
    assert refused(cancel()).fault == "worker: 'gpu-1': no hold of user 'ops' stands on it"
    assert refused(cancel("gpu-9")).fault == "worker: 'gpu-9': there is none of that name in cluster 'main'"
