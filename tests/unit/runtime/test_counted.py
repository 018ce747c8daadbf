"""Requests to Kubernetes, as the metrics count them."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from lockstep.base.calls import Call, Request, Untold
from lockstep.runtime.counted import counted
from lockstep.runtime.metrics import KUBE_CALLS, KUBE_REQUESTS

REQUEST = Request("PATCH", "https://api:6443", "/api/v1/nodes/host-7/status", "/api/v1/nodes/{name}/status")


class Traced(Untold):
    """A call that is part of a trace."""

    def __init__(self) -> None:
        self.headers = {"traceparent": "00-1-2-01"}
        self.statuses: list[int] = []

    def answered(self, status: int) -> None:
        """Told."""
        self.statuses.append(status)


CALL = Traced()


@contextmanager
def tracing(_: Request) -> Iterator[Call]:
    """Makes it so."""
    yield CALL


def count(code: str) -> float:
    """How many requests were answered so."""
    return float(KUBE_REQUESTS.labels("PATCH", REQUEST.route, code)._value.get())


def timed() -> float:
    """How many were timed."""
    return sum(s.value for f in KUBE_CALLS.collect() for s in f.samples if s.name.endswith("_count"))


def test_a_request_is_counted_by_its_status_and_stays_part_of_its_trace() -> None:
    """Without the names in its path."""
    before, known = count("409"), timed()
    with counted(tracing)(REQUEST) as call:
        assert call.headers == {"traceparent": "00-1-2-01"}
        call.answered(409)

    assert (count("409"), timed()) == (before + 1, known + 1)
    assert CALL.statuses[-1] == 409


def test_a_request_without_an_answer_is_counted_too() -> None:
    """And the error goes on."""
    before = count("none")
    with pytest.raises(TimeoutError), counted(tracing)(REQUEST):
        raise TimeoutError

    assert count("none") == before + 1
