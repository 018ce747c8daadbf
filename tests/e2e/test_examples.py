"""The automation that people are shown, on a real worker with a real job."""

import os
import subprocess
import sys
from pathlib import Path

from tests.e2e.guard import in_step
from tests.e2e.site import Site, eventually

AUTOMATION = Path(__file__).resolve().parents[2] / "examples/python/automation.py"


def test_the_automation_waits_for_the_job_acts_and_gives_the_worker_back(site: Site, tmp_path: Path) -> None:
    """Its command runs behind a closed door, and never beside a job."""
    job, done = site.job("gpu-2"), tmp_path / "done"
    wish = ["--user", "ops", "--worker", "gpu-2", "--id", f"e2e-fw-{job}", "--reason", "firmware 1.2"]
    command = [sys.executable, AUTOMATION, *wish, "--drained-within", "60", "--", "touch", done]
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
