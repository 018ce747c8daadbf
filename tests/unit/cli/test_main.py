"""The command as a whole: exit codes, one line an error, no traceback."""

from importlib import import_module
from pathlib import Path

import pytest

from lockstep.base.errors import BadInput, Fatal, LockstepError, Reject, Retry
from lockstep.cli import version
from lockstep.cli.completion import commands_of
from lockstep.cli.connect import settings_of
from lockstep.cli.exits import MEANINGS, Exit, Stop, code_of, lines_of
from lockstep.cli.main import main
from lockstep.cli.parser import build
from lockstep.kube import errors as kube
from lockstep.slurm import errors as slurm
from tests.unit.cli.seen import args

CLUSTERS = "clusters: [{name: main, namespace: slurm, url: 'http://x', token_file: /t}]\n"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Stop(Exit.NOT_FOUND, "x"), 3),
        (BadInput(["x"]), 2),
        (kube.Invalid("x"), 2),
        (kube.Denied("x"), 5),
        (slurm.Denied("x"), 5),
        (kube.NotFound("x"), 3),
        (slurm.NoSuchNode("x"), 3),
        (kube.Unreachable("x"), 4),
        (kube.Busy("x"), 4),
        (slurm.Unreachable("x"), 4),
        (Retry("x"), 4),
        (kube.Conflict("x"), 1),
        (slurm.Refused(["x"]), 1),
        (Reject("x"), 1),
        (Fatal("x"), 1),
    ],
)
def test_each_error_has_its_exit_code(error: LockstepError, code: int) -> None:
    """Scripts can tell bad input, not found, unreachable and not allowed apart."""
    assert code_of(error) == code


def test_every_exit_code_is_explained_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    """`--help` of the command and of each subcommand lists them."""
    for words in (["--help"], ["hold", "--help"]):
        with pytest.raises(SystemExit):
            main(words)
        text = capsys.readouterr().out
        assert all(f"  {code.value}  {meaning}" in text for code, meaning in MEANINGS.items())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["gte"], "invalid choice: 'gte'"),
        (["get", "nodes"], "invalid choice: 'nodes'"),
        (["hold", "gpu-7"], "required: --reason"),
        (["hold", "gpu-7", "--reason", "r", "--class", "slurm"], "invalid choice: 'slurm'"),
        (["get", "workers", "--hel"], "unrecognized arguments: --hel"),
        (["events", "--since\x1b[2J"], "unrecognized arguments"),
    ],
)
def test_a_command_line_that_cannot_be_read_is_one_line_and_code_2(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without the usage, without control characters, and abbreviations are not guessed."""
    with pytest.raises(SystemExit) as ended:
        main(words)

    told = capsys.readouterr().err
    assert ended.value.code == 2
    assert said in told
    assert told.count("\n") == 1
    assert "\x1b" not in told


def test_bad_input_is_told_fault_by_fault_before_anything_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    """Every fault has a line of its own."""
    code = main(["hold", "gpu-7", "--reason", "x" * 10_000, "--deadline", "soon", "--name", "?"])

    lines = capsys.readouterr().err.splitlines()
    assert code == Exit.BAD_INPUT
    assert [line.split(":")[1].strip() for line in lines] == ["--reason", "--name '?'", "--deadline"]
    assert all(len(line) < 300 for line in lines)


def test_settings_that_cannot_be_used_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file, the path in it, and what is allowed."""
    path = tmp_path / "lockstep.yaml"
    path.write_text(CLUSTERS + "polll: {}\n")

    assert main(["get", "workers", "--config", str(path)]) == Exit.BAD_INPUT
    assert "polll: there is no such setting" in capsys.readouterr().err
    assert main(["get", "workers", "--config", str(tmp_path / "none")]) == Exit.BAD_INPUT
    assert "cannot be read" in capsys.readouterr().err


def test_an_interrupt_ends_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C is an answer."""

    def interrupted(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(version, "run", interrupted)

    assert main(["version"]) == Exit.INTERRUPTED


def test_an_error_is_one_bounded_line() -> None:
    """Whatever a server answers."""
    (line,) = lines_of(kube.Unreachable("a\nb\x1b" + "x" * 5000))

    assert line.isprintable()
    assert len(line) <= 600


def test_every_command_has_a_module() -> None:
    """The parser's commands and the modules are the same."""
    for command in commands_of(build()):
        assert callable(import_module(f"lockstep.cli.{command.name.replace('-', '_')}").run)


def test_options_are_laid_over_the_settings(tmp_path: Path) -> None:
    """The command line wins over the file."""
    path = tmp_path / "lockstep.yaml"
    path.write_text(CLUSTERS + "nats: {url: 'nats://file:4222', creds_file: /c}\nkube: {context: file}\n")
    words = ["get", "workers", "--config", str(path), "--nats", "nats://here:4222", "--context", "here"]

    settings = settings_of(args(*words), {})

    assert (settings.nats.url, settings.nats.creds_file, settings.kube.context) == ("nats://here:4222", "", "here")
    assert [c.name for c in settings.clusters] == ["main"]


def test_without_a_file_the_environment_says_where_nats_is() -> None:
    """A laptop needs a kubeconfig and at most one variable."""
    settings = settings_of(args("get", "workers"), {"LOCKSTEP_NATS_URL": "nats://here:4222"})

    assert (settings.clusters, settings.nats.url) == ([], "nats://here:4222")


@pytest.mark.parametrize("url", ["here:4222", "nats://user:secret@here", "nats://a b"])
def test_an_address_of_nats_that_cannot_be_used_is_refused(url: str) -> None:
    """A password does not belong on a command line."""
    with pytest.raises(BadInput, match=r"--nats .*want nats://"):
        settings_of(args("get", "workers", "--nats", url), {})


def test_standalone_needs_clusters(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot guess where slurmrestd is."""
    monkeypatch.delenv("LOCKSTEP_CONFIG", raising=False)

    assert main(["standalone"]) == Exit.BAD_INPUT
    assert "clusters: none are set" in capsys.readouterr().err
