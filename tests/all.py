"""`make test`: everything, what can go side by side side by side, and one summary at the end.

The first time the lab is built, which takes some minutes; nothing else runs then, so that no test is late for it. Most
tests wait most of the time: six parts go side by side, some with a lab of their own; more only starve each other on
two cores. Each part's output goes to `build/test/`, and is shown when the part fails.
"""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / ".venv" / "bin"
LOGS = ROOT / "build" / "test"
LANES = 6
"""How many parts run at a time."""
BESIDE = 5
"""How nice those are that run beside the lab's tests."""
INTEGRATION = "tests/integration"
ON_LAB = f"{INTEGRATION}/test_lab.py"
WITH_KUBERNETES = [
    f"{INTEGRATION}/kube",
    *(f"{INTEGRATION}/test_{name}.py" for name in ("chart", "rights", "compose", "images")),
]
"""The integration tests that start a control plane, all on the same ports, or build images."""
THROUGH_NATS = [f"{INTEGRATION}/{name}" for name in ("bus", "services", "test_gaps.py")]
"""Those of what NATS may do to us."""
BY_COMMANDS = [
    f"{INTEGRATION}/requests",
    *(f"{INTEGRATION}/test_{name}.py" for name in ("cli", "history", "events", "asyncapi")),
]
"""Those that run whole processes and commands, which takes processor time more than waiting."""
CHART = "tests/e2e/chart"
MAIN_JOB = [
    f"tests/e2e/test_{name}.py"
    for name in ("cordon", "holds", "foreign", "conditions", "progress", "protection", "cli", "random")
]
ON_CHART = [*MAIN_JOB, *(f"{CHART}/test_{name}.py" for name in ("failover", "three_servers", "upgrade", "uninstall"))]
"""The tests that try the installed chart: its own, and those of the main job, which are run in pods alone.

The upgrade changes things as fast as it can for as long as it takes, so it comes when little else runs any more.
"""
ON_PROCESSES = [
    "tests/e2e/test_protection.py::test_a_job_submitted_in_the_instant_of_the_cordon_is_never_killed",
    "tests/e2e/test_cli.py::test_without_nats_events_end_with_4_and_workers_are_read_from_kubernetes",
]
"""But not these: the hundred races, and because it is not the chart's NATS that the other one stops."""
OF_FAULTS = ["tests/e2e/test_faults.py", "tests/e2e/test_beside.py"]
"""They take long, mostly waiting; the other lab tests share a second lab."""
SUMMARY = re.compile(r"\d (passed|failed|errors?).* in [\d.]+s")
"""The line in which pytest says how many."""
COUNTS = re.compile(r"(\d+) (passed|failed|errors?|skipped)\b")
RUNNING: set[int] = set()
"""The sessions of the parts that run."""
ENDING = threading.Event()
"""No further part is begun."""


@dataclass
class Part:
    """One command of the whole, and what came of it."""

    name: str
    command: Sequence[str | Path]
    nice: int = 0
    """How willingly it leaves the processors to others."""
    code: int = -1
    took_s: float = 0.0
    cpu_s: float = 0.0
    """Processor time of all that it started."""
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def log(self) -> Path:
        """Where its output goes."""
        return LOGS / f"{self.name.replace(' ', '-')}.log"

    @property
    def ok(self) -> bool:
        """Whether it ended well, and ran a test if it is a test run."""
        return self.code == 0

    def run(self) -> "Part":
        """Run it to its end, in a session of its own.

        Linux shares the processors out among sessions (sched(7), autogroup), and each daemon of a lab has one: all
        parts together in a single session would starve.
        """
        if ENDING.is_set():
            return self
        begun = time.monotonic()
        print(f"  …                {self.name}", flush=True)
        with self.log.open("w") as log:
            command = ["nice", f"-n{self.nice}", *self.command]
            done = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
            RUNNING.add(done.pid)
            with suppress(OSError):
                Path(f"/proc/{done.pid}/autogroup").write_text(str(self.nice))
            _, status, used = os.wait4(done.pid, 0)
            RUNNING.discard(done.pid)
        self.code = done.returncode = os.waitstatus_to_exitcode(status)
        self.cpu_s = used.ru_utime + used.ru_stime
        self.took_s = time.monotonic() - begun
        lines = self.log.read_text(errors="replace").splitlines()
        outcome = next((line for line in reversed(lines) if SUMMARY.search(line)), "")
        for number, word in COUNTS.findall(outcome):
            self.counts[word.removesuffix("s")] = int(number)
        print(f"  {'ok    ' if self.ok else 'FAILED'} {self.took_s:7.1f} s  {self.name}", flush=True)
        if not self.ok:
            print("\n".join(lines[-80:]), flush=True)
        return self


def pytest(name: str, *arguments: str, nice: int = 0, lab: str = "") -> Part:
    """A part that is a test run, if it starts a lab, with one of that name beside others."""
    python = BIN / "python"
    apart = [python, "-m", "tests.lab", "apart", lab] if lab else []
    return Part(name, [*apart, python, "-m", "pytest", "-q", "--durations=25", *arguments], nice)


def parts() -> list[Part]:
    """All of them, in the order in which they are begun: those with a lab and long ones first."""
    all_of_labs = (str(file.relative_to(ROOT)) for file in sorted(ROOT.glob("tests/e2e/test_*.py")))
    others = [name for name in all_of_labs if name not in {*OF_FAULTS, *MAIN_JOB}]
    plain = [f"--ignore={name}" for name in (ON_LAB, *WITH_KUBERNETES, *THROUGH_NATS, *BY_COMMANDS)]
    not_in_pods = [f"--deselect={name}" for name in ON_PROCESSES]
    return [
        pytest("chart tests", "--timeout=600", "--installed", *not_in_pods, *ON_CHART, lab="chart"),
        pytest("lab tests 1", "--timeout=600", *ON_PROCESSES, *others, lab="one"),
        pytest("lab tests 2", "--timeout=600", *OF_FAULTS, lab="two"),
        pytest("integration tests 1", INTEGRATION, *plain),
        pytest("integration tests 2", *BY_COMMANDS),
        pytest("integration tests 3", *THROUGH_NATS),
        pytest("integration tests 4", *WITH_KUBERNETES),
        pytest("unit and contract tests", "tests/unit", "tests/contract", nice=BESIDE),
        pytest("tests of the lab", ON_LAB, lab="three"),
        Part("types", ["make", "--no-print-directory", "types"], BESIDE),
        Part("lint", ["make", "--no-print-directory", "lint"], BESIDE),
        Part("import contracts", ["make", "--no-print-directory", "imports"], BESIDE),
    ]


def end(number: int, _: FrameType | None) -> None:
    """Tell all that runs what we were told, and begin nothing more."""
    ENDING.set()
    for session in tuple(RUNNING):
        with suppress(ProcessLookupError):
            os.killpg(session, number)


def main(only: str = "") -> int:
    """Run all parts, or those whose names begin with `only`; the exit code says whether all went well."""
    LOGS.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    build = Part("build the lab", [BIN / "python", "-m", "tests.lab", "build"])
    if not build.run().ok:
        return summary([build], time.monotonic() - begun)
    wanted = [part for part in parts() if part.name.startswith(only)]
    with ThreadPoolExecutor(LANES) as pool:
        list(pool.map(Part.run, wanted))
    return summary([build, *wanted], time.monotonic() - begun)


def summary(parts: Sequence[Part], took_s: float) -> int:
    """Print the table and the totals; returns the exit code."""
    print(f"\n{'part':<28}{'':<8}{'time':>9}{'processor':>11}   tests")
    for part in parts:
        tests = ", ".join(f"{number} {word}" for word, number in part.counts.items())
        verdict = "ok" if part.ok else "not run" if part.code == -1 else "FAILED"
        print(f"{part.name:<28}{verdict:<8}{part.took_s:>7.1f} s{part.cpu_s:>9.1f} s   {tests}")
    bad = [part.name for part in parts if not part.ok]
    passed = sum(part.counts.get("passed", 0) for part in parts)
    failed = sum(part.counts.get(word, 0) for part in parts for word in ("failed", "error"))
    print(f"\n{took_s:.0f} s; logs in {LOGS.relative_to(ROOT)}/" + (f"; not well: {', '.join(bad)}" if bad else ""))
    print(f"{passed} passed, {failed or len(bad)} failed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
