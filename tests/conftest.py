"""For all tests: one clean start of the event loop, and assertions of helpers that say what they compared."""

import asyncio

import pytest

pytest.register_assert_rewrite("tests.chains")

# On Python 3.11 pytest-asyncio would otherwise find (and never close) the loop that the policy makes by itself, and a
# random later test would fail by the ResourceWarning.
asyncio.set_event_loop(None)
