"""A watcher in a hurry, for the tests that ask for one."""

import pytest

from lockstep.pod_watcher import handlers


@pytest.fixture(name="quick")
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two heartbeats, and between two signs of life, lie 20 ms."""
    monkeypatch.setattr(handlers, "BEAT_S", 0.02)
    monkeypatch.setattr(handlers, "PROBE_S", 0.02)
    monkeypatch.setattr(handlers, "AGAIN_S", 0.02)
