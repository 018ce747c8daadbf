import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.lab.processes import ProcessError, Processes, marked

SLEEP = ["sleep", "600"]


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Supervision with a state folder of its own; nothing survives the test."""
    found = Processes(tmp_path / "state", tmp_path / "logs")
    yield found
    found.stop_all(timeout_s=1)


def test_a_process_is_known_to_the_next_command(processes: Processes, tmp_path: Path) -> None:
    """Another object on the same folder, as in another command, sees and ends the process."""
    pid = processes.start("one", SLEEP)
    later = Processes(tmp_path / "state", tmp_path / "logs")
    assert later.pid("one") == pid
    later.stop("one")
    assert not processes.alive("one")


def test_starting_twice_keeps_the_first(processes: Processes) -> None:
    """`up` on a running lab starts nothing twice."""
    assert processes.start("one", SLEEP) == processes.start("one", SLEEP)


def test_a_killed_process_comes_back_as_it_was_started(processes: Processes) -> None:
    """`restart` needs no arguments, also after a kill: command, environment and user are on record."""
    processes.start(
        "one", ["sh", "-c", 'echo "$COLOUR $(id -u)"; exec sleep 600'], env={"COLOUR": "red"}, uid=65534, gid=65534
    )
    _wait_for_output(processes, "red 65534\n")
    processes.kill("one")
    assert not processes.alive("one")
    processes.restart("one")
    _wait_for_output(processes, "red 65534\nred 65534\n")


def test_a_pid_that_was_given_to_somebody_else_is_not_touched(processes: Processes, tmp_path: Path) -> None:
    """A record whose start time does not match is that of a process long gone."""
    processes.start("one", SLEEP)
    processes.kill("one")
    time.sleep(0.05)  # the kernel counts start times in hundredths of a second
    stranger = processes.start("two", SLEEP)
    record = tmp_path / "state" / "processes" / "one.json"
    text = record.read_text()
    old = text.split('"pid": ')[1].split(",")[0]
    record.write_text(text.replace(f'"pid": {old}', f'"pid": {stranger}'))
    assert not processes.alive("one")
    processes.kill("one")
    assert processes.pid("two") == stranger


def test_a_frozen_process_is_alive_and_can_be_stopped(processes: Processes) -> None:
    """SIGTERM waits at a frozen process until it goes on; `stop` sees to that."""
    pid = processes.start("one", SLEEP)
    processes.pause("one")
    assert _state(pid) == "T"
    assert processes.alive("one")
    begun = time.monotonic()
    processes.stop("one", timeout_s=5)
    assert not processes.alive("one")
    assert time.monotonic() - begun < 3


def test_a_process_that_ignores_sigterm_is_killed(processes: Processes) -> None:
    """`stop` asks first, and does not ask twice."""
    processes.start("deaf", ["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done"])
    _wait_for_output(processes, "ready\n", "deaf")
    processes.stop("deaf", timeout_s=0.3)
    assert not processes.alive("deaf")


def test_helpers_that_left_their_parent_are_found_by_their_mark(processes: Processes, tmp_path: Path) -> None:
    """As containerd's shims: own session, parent dead, no record."""
    processes.start("parent", ["sh", "-c", "setsid sh -c 'echo ready; exec sleep 600' & wait"])
    _wait_for_output(processes, "ready\n", "parent")
    processes.kill("parent")
    assert [name for _, name in marked(state=tmp_path / "state")] == ["parent"]
    processes.stop_all(timeout_s=1)
    assert not list(marked(state=tmp_path / "state"))


def test_the_end_of_one_lab_leaves_another_one_alone(processes: Processes, tmp_path: Path) -> None:
    """The mark names the state folder."""
    other = Processes(tmp_path / "other", tmp_path / "logs")
    other.start("one", SLEEP)
    processes.start("one", SLEEP)
    processes.stop_all(timeout_s=1)
    assert other.alive("one")
    other.stop_all(timeout_s=1)


def test_nothing_of_the_callers_environment_is_passed_on(processes: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token in a developer's shell must not end up in a daemon."""
    monkeypatch.setenv("SECRET_TOKEN", "s3cret")
    pid = processes.start("one", SLEEP)
    assert b"s3cret" not in Path(f"/proc/{pid}/environ").read_bytes()


def test_a_program_that_does_not_exist_is_an_error_with_its_name(processes: Processes) -> None:
    """The text names the process and the program."""
    with pytest.raises(ProcessError, match=r"web cannot be started.*no-such-program"):
        processes.start("web", ["/no-such-program"])


def test_a_process_that_ended_by_itself_is_not_alive(processes: Processes) -> None:
    """Also while its starter lives and has not waited for it: a zombie is no process."""
    pid = processes.start("short", ["true"])
    _wait(lambda: not processes.alive("short"))
    with pytest.raises(ProcessError, match="not running"):
        processes.pid("short")
    with pytest.raises(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _wait_for_output(processes: Processes, text: str, name: str = "one") -> None:
    _wait(lambda: processes.log(name).read_text() == text)


def _wait(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.01)
