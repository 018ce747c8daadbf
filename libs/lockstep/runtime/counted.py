"""Counts and times the requests to Kubernetes, on top of what makes them a part of a trace."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from lockstep.base.calls import Call, Calling, Request
from lockstep.base.clock import monotonic
from lockstep.runtime.metrics import KUBE_CALLS, KUBE_REQUESTS

UNANSWERED = "none"


class _Counted:
    """A call whose status is remembered."""

    def __init__(self, inner: Call) -> None:
        self._inner = inner
        self.code = UNANSWERED

    @property
    def headers(self) -> Mapping[str, str]:
        return self._inner.headers

    def answered(self, status: int) -> None:
        self.code = str(status)
        self._inner.answered(status)


def counted(inner: Calling) -> Calling:
    """`inner`, and each request counted by method, route and status, and timed until the head of its answer."""

    @contextmanager
    def around(request: Request) -> Iterator[Call]:
        began = monotonic()
        with inner(request) as call:
            told = _Counted(call)
            try:
                yield told
            finally:
                KUBE_CALLS.labels(request.method).observe(monotonic() - began)
                KUBE_REQUESTS.labels(request.method, request.route, told.code).inc()

    return around
