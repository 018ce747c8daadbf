"""One thing has one name in all logs."""

import ast
import re
from pathlib import Path

from lockstep.runtime.telemetry import KEYS

ROOT = Path(__file__).parents[3]
METHODS = {"debug", "info", "warning", "error", "exception", "critical", "bind"}


def log_calls(tree: ast.AST) -> list[ast.Call]:
    """Calls such as `log.info(…)` and `self._log.warning(…)`."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [
        call
        for call in calls
        if isinstance(call.func, ast.Attribute)
        and call.func.attr in METHODS
        and ast.unparse(call.func.value).rpartition(".")[2].lstrip("_") == "log"
    ]


def test_the_keys_of_all_log_lines_are_on_the_list() -> None:
    """A key that is not there is either another word for one that is, or belongs there."""
    found = {
        f"{path.relative_to(ROOT)}:{call.lineno} {keyword.arg}"
        for folder in ("libs", "services")
        for path in (ROOT / folder).rglob("*.py")
        for call in log_calls(ast.parse(path.read_text()))
        for keyword in call.keywords
        if keyword.arg not in KEYS | {None, "exc_info"}
    }
    assert not found


def test_messages_begin_with_a_capital_and_end_without_a_stop() -> None:
    """And what varies is in the keys, not in the message."""
    wrong = {
        f"{path.relative_to(ROOT)}:{call.lineno}"
        for folder in ("libs", "services")
        for path in (ROOT / folder).rglob("*.py")
        for call in log_calls(ast.parse(path.read_text()))
        if call.args
        and isinstance(message := call.args[0], ast.Constant)
        and (not str(message.value)[:1].isupper() or str(message.value).endswith("."))
    }
    assert not wrong


def test_the_page_names_every_key_and_no_other() -> None:
    """Whoever searches the logs reads there what to search for."""
    text = (ROOT / "docs/logs.md").read_text(encoding="utf-8")
    table = text[text.index("| Key | What |") :]
    named = {key for row in table.splitlines()[2:] for key in re.findall(r"`([a-z_]+)`", row.split("|")[1])}

    assert named == KEYS
