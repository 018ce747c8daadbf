"""Whose cordon it is: an event when it is somebody's, none when it is our own mirror."""

import msgspec

from lockstep.contracts.events import NodeCordoned, NodeUncordoned
from lockstep.kube import keys
from lockstep.pod_watcher.decide import news
from tests.unit.pod_watcher.as_read import AT, a_node, cordoned_by


def test_a_cordon_names_who_and_why() -> None:
    """The event carries what the API server knows of it."""
    after = cordoned_by("kubectl-cordon", **{keys.NODE_CORDON_REASON: "DIMM\nB2"})
    told = news(a_node(), after, AT)

    assert told.events == [
        NodeCordoned(id="n-1:8:cordoned", at=AT, node="host-3", by="kubectl-cordon", reason="DIMM B2")
    ]
    assert told.facts == [msgspec.structs.replace(after, read_at=AT)]


def test_our_own_mirror_is_no_event() -> None:
    """Neither when it comes nor when we take it away; the fact changes."""
    mirror = cordoned_by(keys.FIELD_MANAGER, **{keys.MIRRORED_CORDON: "true"})

    assert news(a_node(), mirror, AT).events == []
    assert news(mirror, a_node(), AT).events == []
    assert news(a_node(), mirror, AT).facts


def test_a_user_who_lifts_our_mirror_is_an_event() -> None:
    """She leaves our mark behind."""
    mirror = cordoned_by(keys.FIELD_MANAGER, **{keys.MIRRORED_CORDON: "true"})
    lifted = a_node(annotations={keys.MIRRORED_CORDON: "true"}, resourceVersion="9")

    assert [type(event) for event in news(mirror, lifted, AT).events] == [NodeUncordoned]


def test_a_user_takes_over_our_mirror() -> None:
    """A cordon of hers over ours is hers."""
    mirror = cordoned_by(keys.FIELD_MANAGER, **{keys.MIRRORED_CORDON: "true"})

    assert [type(event) for event in news(mirror, cordoned_by("kubectl-cordon"), AT).events] == [NodeCordoned]
