"""The examples that people are shown, on real workers with real jobs."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.e2e.guard import in_step
from tests.e2e.site import Site, eventually
from tests.lab.build import NATSCLI, build

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_the_automation_waits_for_the_job_acts_and_gives_the_worker_back(site: Site, tmp_path: Path) -> None:
    """Its command runs behind a closed door, and never beside a job."""
    job, done = site.job("gpu-2"), tmp_path / "done"
    wish = ["--user", "ops", "--worker", "gpu-2", "--id", f"e2e-fw-{job}", "--reason", "firmware 1.2"]
    command = [sys.executable, EXAMPLES / "python/automation.py", *wish, "--drained-within", "60", "--", "touch", done]
    env = {**os.environ, "NATS_URL": site.lab.nats.url}
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as automation:
        eventually("DRAIN", lambda: site.slurm("gpu-2").drained)
        assert site.slurm("gpu-2").reason == "lockstep: nats:ops: firmware 1.2"
        assert automation.poll() is None
        assert not done.exists()
        site.cancel(job)
        told, _ = automation.communicate(timeout=60)

    assert (automation.returncode, told.splitlines()) == (0, ["gpu-2 is drained", "gpu-2 is released"])
    assert done.exists()
    assert not in_step(site)["gpu-2"].drained


def test_subscribers_in_three_languages_are_told_of_the_same_worker(site: Site, tmp_path: Path) -> None:
    """Python, Go and the shell, as they stand, each from the same stream."""
    (tmp_path / "nats/context").mkdir(parents=True)
    (tmp_path / "nats/context/lab.json").write_text(json.dumps({"url": site.lab.nats.url}))
    build(NATSCLI)
    subprocess.run(["go", "build", "-o", tmp_path / "subscribe", "."], cwd=EXAMPLES / "go", check=True)
    env = {
        **os.environ,
        "PATH": f"{NATSCLI.folder}:{os.environ['PATH']}",
        "XDG_CONFIG_HOME": str(tmp_path),
        "NATS_CONTEXT": "lab",
        "NATS_URL": site.lab.nats.url,
    }
    mark = tmp_path.name.replace("_", "-")
    told = f"main/gpu-3 on {site.host('gpu-3')} is drained"
    programs = {
        told: [sys.executable, EXAMPLES / "python/subscribe.py", f"python-{mark}"],
        f"{told}\n": [tmp_path / "subscribe", f"go-{mark}"],
        "main/gpu-3  drain.drained.v1": [EXAMPLES / "shell/watch.sh", "lockstep.event.drain.>"],
    }
    with ExitStack() as stack:
        logs = {}
        for number, (words, command) in enumerate(programs.items()):
            log = logs[words] = tmp_path / f"{number}.log"
            stack.enter_context(running(command, env, log))
        time.sleep(1)
        hold = [EXAMPLES / "shell/hold.sh", "ops", "main", "gpu-3", f"by-hand-{mark}", "fan noise"]
        held = subprocess.run(hold, env=env, capture_output=True, text=True, check=False, timeout=60)
        assert (held.returncode, held.stdout.splitlines()[-1]) == (0, "done: drained"), held.stderr
        for words, log in logs.items():
            eventually(words, lambda words=words, log=log: words in log.read_text())
    site.lockstep.cli("release", f"by-hand-{mark}", "--through", "nats", "--nats-user", "ops")
    assert not in_step(site)["gpu-3"].drained


@contextmanager
def running(command: Sequence[str | Path], env: dict[str, str], log: Path) -> Iterator[None]:
    """A program that runs inside the context, with all that it starts."""
    with log.open("w") as out:
        process = subprocess.Popen(command, env=env, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
