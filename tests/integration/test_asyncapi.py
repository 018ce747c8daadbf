"""AsyncAPI's own schema and parser read our document. Needs Node and its package manager."""

import json
import subprocess
from pathlib import Path
from shutil import which
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / "proto/tools"
DOCUMENT = ROOT / "proto/asyncapi.json"
NEWER_EXISTS = "asyncapi-latest-version"
"""What the parser says of 3.0, which more generators read than 3.1."""


@pytest.fixture(scope="session")
def validate() -> Any:
    """Runs `validate.mjs` with the packages that the lock file names: the exit code and the answers."""
    node, npm = which("node"), which("npm")
    assert all((node, npm)), "AsyncAPI's parser needs Node 18 or newer and npm, Debian's packages nodejs and npm"
    lock, there = TOOLS / "package-lock.json", TOOLS / "node_modules/.package-lock.json"
    if not there.exists() or there.stat().st_mtime < lock.stat().st_mtime:
        command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        done = subprocess.run(command, cwd=TOOLS, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"`npm ci` in proto/tools failed, is the package registry in reach?\n{done.stderr}"
        there.touch()

    def run(*documents: Path) -> tuple[int, dict[str, Any]]:
        command = [node, "validate.mjs", *map(str, documents)]
        done = subprocess.run(command, cwd=TOOLS, capture_output=True, text=True, check=False)
        return done.returncode, json.loads(done.stdout)

    return run


@pytest.mark.timeout(300)
def test_the_official_parser_finds_nothing_wrong(validate: Any) -> None:
    """No error and no warning. The first time the packages are fetched, which takes a while."""
    code, answers = validate(DOCUMENT)
    answer = answers[str(DOCUMENT)]

    assert code == 0
    assert [found for found in answer["found"] if found["code"] != NEWER_EXISTS] == []
    assert answer["channels"] == len(json.loads(DOCUMENT.read_text("utf-8"))["channels"])


@pytest.mark.parametrize("breaking", ["action", "reference"])
def test_the_official_parser_finds_what_is_wrong(validate: Any, breaking: str, tmp_path: Path) -> None:
    """An action that is none, a reference to nothing: so the check above can fail."""
    document = json.loads(DOCUMENT.read_text("utf-8"))
    match breaking:
        case "action":
            document["operations"]["send-event.hold.placed.v1"]["action"] = "shout"
        case _:
            document["components"]["messages"]["event.hold.placed.v1"]["payload"] = {"$ref": "#/components/schemas/No"}
    broken = tmp_path / "asyncapi.json"
    broken.write_text(json.dumps(document), "utf-8")
    code, answers = validate(broken)

    assert code == 1, answers
