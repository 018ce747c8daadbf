"""Every command and option there is. Help, completion and the documentation are made from this."""

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn

from lockstep.base.text import one_line
from lockstep.cli.exits import MAX_LINE, MEANINGS, Exit
from lockstep.contracts.hold import AtDeadline, DrainPolicy, HoldClass

EPILOG = "exit codes:\n" + "\n".join(f"  {code.value}  {text}" for code, text in MEANINGS.items())
FORMS = ("table", "wide", "json", "yaml", "name")
OWN_CLASSES = tuple(c.value for c in HoldClass if c not in {HoldClass.SLURM, HoldClass.CORDON})
"""The classes that a Hold may have; the other two are for what stands in Slurm or on a node itself."""


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        """Ends with the code for bad input."""
        sys.stderr.write(f"{self.prog}: {one_line(message, limit=MAX_LINE)}; see `{self.prog} --help`\n")
        raise SystemExit(Exit.BAD_INPUT)


def build() -> Parser:
    """The parser of the whole command. `args.command` names the module in `lockstep.cli` that does it."""
    parser = Parser(
        prog="lockstep",
        description="Slurm on Kubernetes, in step: who is out of service, why, and until when.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    common = _common()
    for add in (
        _get,
        _why,
        _hold,
        _release,
        _cancel_drain,
        _events,
        _story,
        _diff,
        _dead,
        _doctor,
        _standalone,
        _forward,
        _uninstall_cleanup,
    ):
        add(commands, common)
    completion = _command(commands, "completion", "print the completion script of a shell")
    completion.add_argument("shell", choices=("bash", "zsh", "fish"))
    _command(commands, "version", "print the version")
    return parser


def _common() -> Parser:
    """What every command that talks to a system takes."""
    common = Parser(add_help=False, allow_abbrev=False)
    group = common.add_argument_group("where")
    group.add_argument(
        "--config", metavar="FILE", help="settings (default: $LOCKSTEP_CONFIG, else found by kubeconfig)"
    )
    group.add_argument("--kubeconfig", metavar="FILE", help="how to reach Kubernetes (default: as kubectl)")
    group.add_argument("--context", metavar="NAME", help="the kubeconfig's context")
    group.add_argument("--nats", metavar="URL", help="where the facts are (default: from the settings)")
    group.add_argument("-c", "--cluster", metavar="NAME", help="only this Slurm cluster")
    return common


_Commands = argparse._SubParsersAction  # noqa: SLF001  argparse has no public name for it


def _command(commands: "_Commands[Parser]", name: str, text: str, *parents: Parser) -> Parser:
    return commands.add_parser(
        name,
        help=text,
        description=text[0].upper() + text[1:] + ".",
        parents=parents,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def _form(parser: Parser, choices: Sequence[str] = FORMS) -> None:
    parser.add_argument("-o", "--output", choices=choices, default=choices[0], help="form of the answer")


def _get(commands: "_Commands[Parser]", common: Parser) -> None:
    get = _command(commands, "get", "list workers, holds or clusters", common)
    get.add_argument("what", choices=("workers", "holds", "clusters"))
    get.add_argument("names", metavar="NAME", nargs="*", help="only these")
    get.add_argument("--held", action="store_true", help="only workers that are out of service")
    get.add_argument("-l", "--selector", metavar="LABELS", help="only workers whose pod has these labels")
    _form(get)


def _why(commands: "_Commands[Parser]", common: Parser) -> None:
    why = _command(commands, "why", "say why a worker is out of service, and what ends it", common)
    why.add_argument("worker", metavar="WORKER", help="a worker's name, or cluster/name")
    _form(why, ("text", "json", "yaml"))


def _hold(commands: "_Commands[Parser]", common: Parser) -> None:
    hold = _command(commands, "hold", "take workers out of service", common)
    which = hold.add_argument_group("which workers (one of these)")
    which.add_argument("workers", metavar="WORKER", nargs="*", help="workers' names, or host lists such as gpu-[1-8]")
    which.add_argument("--hostlist", metavar="LIST", help="a host list, kept as it is written")
    which.add_argument("--nodes", metavar="NODE", nargs="+", help="the workers on these Kubernetes nodes")
    which.add_argument("--selector", metavar="LABELS", help="workers whose pod has these labels, now and later")
    which.add_argument("--partitions", metavar="NAME", nargs="+", help="all workers of these Slurm partitions")
    hold.add_argument("--reason", required=True, help="why, for those who ask (at most 200 characters)")
    hold.add_argument("--class", dest="hold_class", choices=OWN_CLASSES, default=HoldClass.MANUAL.value)
    hold.add_argument("--expires", metavar="WHEN", help="ends by itself: 2h, or 2026-12-01T06:00:00Z")
    hold.add_argument("--policy", choices=_words(DrainPolicy), default="wait", help="what happens to running jobs")
    hold.add_argument("--deadline", metavar="TIME", help="how long to wait for jobs, such as 2h")
    hold.add_argument("--at-deadline", choices=_words(AtDeadline), help="what happens to jobs then (default: keep)")
    hold.add_argument("--name", help="name of the Hold (default: from worker and reason)")
    hold.add_argument("--dry-run", action="store_true", help="only print what would be created")
    hold.add_argument("--wait", action="store_true", help="show the drain until it is done")
    _way(hold)


def _release(commands: "_Commands[Parser]", common: Parser) -> None:
    release = _command(commands, "release", "end holds: your own, or with --override anybody's", common)
    release.add_argument("names", metavar="NAME|WORKER", nargs="+", help="a hold's name or id, or a worker")
    release.add_argument("--all-mine", action="store_true", help="all holds of mine on the worker")
    release.add_argument("--override", action="store_true", help="end somebody else's hold where it lives; recorded")
    release.add_argument("--why", metavar="TEXT", default="", help="why you override it")
    _way(release)


def _cancel_drain(commands: "_Commands[Parser]", common: Parser) -> None:
    cancel = _command(commands, "cancel-drain", "end your holds on one worker, if nothing else keeps it out", common)
    cancel.add_argument("worker", metavar="WORKER", help="a worker's name, or cluster/name")
    cancel.add_argument("--why", metavar="TEXT", default="", help="why, for the record")
    _way(cancel)


def _way(parser: Parser) -> None:
    """Which way a wish goes."""
    way = parser.add_argument_group("which way")
    way.add_argument(
        "--through",
        choices=("auto", "kubernetes", "nats"),
        default="auto",
        help="with your rights on Kubernetes, or as a request over NATS (auto: Kubernetes where there is a kubeconfig)",
    )
    way.add_argument("--nats-user", metavar="NAME", help="who you are on NATS (default: nats.user, else your login)")
    way.add_argument("--request-id", metavar="ID", help="id of the request; the same again is the same request")
    _form(parser, ("text", "json"))


def _dead(commands: "_Commands[Parser]", common: Parser) -> None:
    dead = _command(commands, "dead", "list, show or send again what a service could not handle", common)
    dead.add_argument("what", choices=("list", "show", "replay"))
    dead.add_argument("numbers", metavar="SEQ", nargs="*", type=int, help="which, by the sequence that `list` shows")
    _form(dead, ("table", "json"))


def _events(commands: "_Commands[Parser]", common: Parser) -> None:
    events = _command(commands, "events", "show what happened", common)
    _stretch(events, "how far back, such as 10m or 2d, or a time (default: 1h; with --follow: now)")
    which = events.add_argument_group("which events")
    which.add_argument("--worker", metavar="WORKER", action="append", help="only these workers: a name or a host list")
    which.add_argument("--kind", metavar="TYPE", action="append", help="only these, such as hold or hold.placed")
    which.add_argument("--node", metavar="NODE", help="only this Kubernetes node, and workers while on it")
    which.add_argument("--hold", metavar="HOLD", help="only what names this hold: an id, or a Hold's name")
    which.add_argument("--block", metavar="NAME", help="only the workers of this block of Slurm's topology")
    _form(events, ("text", "json"))


def _story(commands: "_Commands[Parser]", common: Parser) -> None:
    story = _command(commands, "story", "tell what happened to one worker, each event under its cause", common)
    story.add_argument("worker", metavar="WORKER", help="a worker's name, or cluster/name; also one that is gone")
    _stretch(story, "how far back, such as 2d, or a time (default: all that is kept)")
    story.add_argument("--html", metavar="FILE", help="write it as one page that needs nothing else")
    _form(story, ("text", "json"))


def _stretch(parser: Parser, since: str) -> None:
    parser.add_argument("-f", "--follow", action="store_true", help="go on with what happens")
    parser.add_argument("--since", metavar="TIME", help=since)
    parser.add_argument("--until", metavar="TIME", help="up to when (default: now)")


def _diff(commands: "_Commands[Parser]", common: Parser) -> None:
    diff = _command(commands, "diff", "say what changed between two moments", common)
    diff.add_argument("then", metavar="T1", help="how long ago, such as 2h, or a time")
    diff.add_argument("now", metavar="T2", nargs="?", default="now", help="the same (default: now)")
    _form(diff, ("table", "json", "yaml"))


def _doctor(commands: "_Commands[Parser]", common: Parser) -> None:
    doctor = _command(commands, "doctor", "check settings, connections, rights and versions", common)
    _form(doctor, ("table", "json"))


def _standalone(commands: "_Commands[Parser]", common: Parser) -> None:
    _command(commands, "standalone", "run all services in this process, with a NATS server of its own", common)


def _forward(commands: "_Commands[Parser]", common: Parser) -> None:
    _command(commands, "forward", "post events to the HTTP endpoints of the settings", common)


def _uninstall_cleanup(commands: "_Commands[Parser]", common: Parser) -> None:
    text = "remove what the services wrote to Kubernetes, once they have ended"
    cleanup = _command(commands, "uninstall-cleanup", text, common)
    cleanup.add_argument("--dry-run", action="store_true", help="only print what would be removed")
    cleanup.add_argument("--yes", action="store_true", help="do not ask")
    cleanup.add_argument("--force", action="store_true", help="also while a service leads")
    cleanup.add_argument("--holds", action="store_true", help="people's Holds too")
    cleanup.add_argument("--undrain", action="store_true", help="lift the drains in Slurm whose reason is Lockstep's")
    _form(cleanup, ("text", "json"))


def _words(kind: type[DrainPolicy | AtDeadline]) -> tuple[str, ...]:
    return tuple(word.value.lower() for word in kind)
