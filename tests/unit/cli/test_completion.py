"""`lockstep completion`, tried in a real bash."""

import subprocess

import pytest

from lockstep.cli.completion import commands_of, script
from lockstep.cli.parser import build


def completed(line: str) -> list[str]:
    """What bash offers at the end of a command line."""
    words = line.split(" ")
    program = script("bash") + (
        f"COMP_WORDS=({' '.join(f'{w!r}' for w in words)}); COMP_CWORD={len(words) - 1}; _lockstep\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(["bash", "-u"], input=program, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "offers"),
    [
        ("lockstep re", ["release"]),
        ("lockstep get w", ["workers"]),
        ("lockstep get workers --he", ["--help", "--held"]),
        ("lockstep get workers -o j", ["json"]),
        ("lockstep why gpu-7 -o t", ["text"]),
        ("lockstep hold gpu-7 --policy ", ["wait", "requeue", "cancel"]),
        ("lockstep hold gpu-7 --at-", ["--at-deadline"]),
        ("lockstep hold gpu-7 --reason ", []),
        ("lockstep story gpu-7 --h", ["--help", "--html"]),
        ("lockstep story gpu-7 -o ", ["text", "json"]),
        ("lockstep events --no", ["--node"]),
        ("lockstep diff 2h -o y", ["yaml"]),
        ("lockstep completion f", ["fish"]),
        ("lockstep frobnicate ", []),
    ],
)
def test_bash_offers_what_the_parser_takes(line: str, offers: list[str]) -> None:
    """Commands, words, options and the values of options."""
    assert completed(line) == offers


def test_bash_offers_every_command() -> None:
    """A new command is offered without anybody thinking of it."""
    commands = [command.name for command in commands_of(build())]

    assert completed("lockstep ") == [*commands, "--help"]


def test_the_scripts_of_zsh_and_fish_name_every_command() -> None:
    """zsh runs bash's function; fish has lines of its own, with the help texts quoted."""
    zsh, fish = script("zsh"), script("fish")

    assert zsh.startswith("#compdef lockstep\n")
    assert "bashcompinit" in zsh
    for command in ("get", "why", "hold", "release", "events", "story", "diff", "doctor", "standalone"):
        assert f"-a {command} -d '" in fish
    assert r"somebody else\'s hold" in fish
