"""`docs/cli.md` says what the command does."""

from pathlib import Path

import pytest

from lockstep.cli.completion import commands_of
from lockstep.cli.exits import MEANINGS, Exit
from lockstep.cli.parser import build

TEXT = (Path(__file__).parents[3] / "docs" / "cli.md").read_text(encoding="utf-8")
COMMANDS = commands_of(build())


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c.name)
def test_every_command_and_option_is_described(command: object) -> None:
    """An option that nobody wrote down is one that nobody finds."""
    name, _, options, _ = command  # type: ignore[misc]
    missing = [o.names[-1] for o in options if o.names[-1] != "--help" and not any(n in TEXT for n in o.names)]

    assert f"lockstep {name}" in TEXT or f"lockstep\n{name}" in TEXT
    assert missing == []


def test_every_exit_code_is_in_the_table() -> None:
    """The table is the enumeration."""
    for code, meaning in MEANINGS.items():
        assert f"| {code.value} | {meaning} |" in TEXT
    assert {f"| {code.value} |" in TEXT for code in Exit} == {True}
