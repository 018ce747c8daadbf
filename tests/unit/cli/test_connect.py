"""What a command may reach, and what it leaves behind."""

import logging

import structlog

from lockstep.cli.connect import Reach
from lockstep.runtime.settings import Settings


async def test_logs_are_quiet_while_a_command_runs_and_as_before_after_it() -> None:
    """Whoever runs a command within a process of its own goes on logging."""
    before, handlers = structlog.get_config(), list(logging.getLogger().handlers)
    async with Reach(Settings(clusters=[])):
        assert structlog.get_config() != before
    assert structlog.get_config() == before
    assert logging.getLogger().handlers == handlers
