"""`lockstep completion`: the completion scripts of shells, made from the parser, so that they never differ from it."""

import argparse
from argparse import Namespace
from collections.abc import Iterator
from typing import NamedTuple

from lockstep.cli.exits import Exit
from lockstep.cli.parser import build


class Option(NamedTuple):
    """An option of a command."""

    names: list[str]
    help: str
    takes_value: bool
    choices: list[str]
    """What its value may be; empty: anything."""
    is_file: bool


class Command(NamedTuple):
    """A command, and what may follow it."""

    name: str
    help: str
    options: list[Option]
    words: list[str]
    """Words that may stand as they are, such as `workers`."""


def run(args: Namespace) -> int:
    """Prints the script of one shell."""
    print(script(args.shell), end="")
    return Exit.OK


def script(shell: str) -> str:
    """The script of a shell: `bash`, `zsh` or `fish`."""
    commands = commands_of(build())
    match shell:
        case "fish":
            lines = [*_fish(commands)]
        case "zsh":
            lines = ["#compdef lockstep", "autoload -U +X bashcompinit && bashcompinit", *_bash(commands)]
        case _:
            lines = [*_bash(commands)]
    return "\n".join(lines) + "\n"


def commands_of(parser: argparse.ArgumentParser) -> list[Command]:
    """Every command of the parser."""
    found = []
    for action in _actions(parser):
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001  argparse has no public name for it
            helps = {a.dest: a.help or "" for a in action._choices_actions}  # noqa: SLF001  nor for this
            for name, sub in action.choices.items():
                own = _actions(sub)
                options = [_option(a) for a in own if a.option_strings]
                words = [str(c) for a in own if not a.option_strings for c in a.choices or ()]
                found.append(Command(name, helps[name], options, words))
    return found


def _actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return parser._actions  # noqa: SLF001  argparse has no public name for it


def _option(action: argparse.Action) -> Option:
    choices = [str(choice) for choice in action.choices or ()]
    return Option(list(action.option_strings), action.help or "", action.nargs != 0, choices, action.metavar == "FILE")


def _bash(commands: list[Command]) -> Iterator[str]:
    yield "_lockstep() {"
    yield '    local cur="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" words='
    yield "    COMPREPLY=()"
    yield '    if [ "$COMP_CWORD" -eq 1 ]; then'
    yield f'        COMPREPLY=($(compgen -W "{" ".join(c.name for c in commands)} --help" -- "$cur"))'
    yield "        return"
    yield "    fi"
    yield '    case "${COMP_WORDS[1]} $before" in'
    for how, patterns in _values(commands).items():
        yield f"        {'|'.join(patterns)}) COMPREPLY=($({how})); return ;;"
    yield "    esac"
    yield '    case "${COMP_WORDS[1]}" in'
    for command in commands:
        words = [*command.words, *(name for option in command.options for name in option.names)]
        yield f'        {command.name}) words="{" ".join(words)}" ;;'
    yield "    esac"
    yield '    COMPREPLY=($(compgen -W "$words" -- "$cur"))'
    yield "}"
    yield "complete -o default -F _lockstep lockstep"


def _values(commands: list[Command]) -> dict[str, list[str]]:
    """How the value after an option is completed in bash; an option that is alike everywhere is named once."""
    ways: dict[str, dict[str, str]] = {}
    for command in commands:
        for option in (o for o in command.options if o.takes_value):
            words = f'compgen -W "{" ".join(option.choices)}" -- "$cur"' if option.choices else "true"
            how = 'compgen -f -- "$cur"' if option.is_file else words
            for name in option.names:
                ways.setdefault(name, {})[command.name] = how
    patterns: dict[str, list[str]] = {}
    for name, by_command in ways.items():
        if len(set(by_command.values())) == 1:
            patterns.setdefault(next(iter(by_command.values())), []).append(f'*" {name}"')
        else:
            for command_name, how in by_command.items():
                patterns.setdefault(how, []).append(f'"{command_name} {name}"')
    return patterns


def _fish(commands: list[Command]) -> Iterator[str]:
    yield "complete -c lockstep -f"
    for command in commands:
        yield f"complete -c lockstep -n __fish_use_subcommand -a {command.name} -d {_quoted(command.help)}"
        seen = f"-n '__fish_seen_subcommand_from {command.name}'"
        if command.words:
            yield f"complete -c lockstep {seen} -a '{' '.join(command.words)}'"
        for option in command.options:
            names = " ".join(f"-l {n[2:]}" if n.startswith("--") else f"-s {n[1:]}" for n in option.names)
            value = " -r -F" if option.is_file else f" -x -a '{' '.join(option.choices)}'" if option.takes_value else ""
            yield f"complete -c lockstep {seen} {names}{value} -d {_quoted(option.help)}"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
