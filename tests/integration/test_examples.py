"""The examples, run as they stand against all services and a real NATS with users."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import pytest_asyncio

from tests.fakes.nats import NatsWithUsers, nats_with_users
from tests.integration.whole import Site, whole
from tests.lab.build import NATSCLI, build

pytestmark = pytest.mark.asyncio(loop_scope="module")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
ALLOW = [{"user": "ops", "verbs": ["hold", "release"], "clusters": ["main"]}]


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="server")
async def _server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[NatsWithUsers]:
    async with nats_with_users(tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="site")
async def _site(server: NatsWithUsers, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    ours = server.of("lockstep")
    nats = {"url": ours.url, "user": ours.user, "password_file": ours.password_file}
    async with whole(tmp_path_factory.mktemp("site"), nats=nats, requests={"allow": ALLOW}) as site:
        yield site


@pytest.fixture(name="env")
def _env(server: NatsWithUsers, tmp_path: Path) -> dict[str, str]:
    """What the examples read, and a context of the `nats` command with the same user."""
    ops = server.of("ops")
    context = tmp_path / "nats" / "context"
    context.mkdir(parents=True)
    secret = Path(ops.password_file).read_text().strip()
    (context / "ops.json").write_text(json.dumps({"url": ops.url, "user": ops.user, "password": secret}))
    build(NATSCLI)
    return {
        **os.environ,
        "PATH": f"{NATSCLI.folder}:{os.environ['PATH']}",
        "XDG_CONFIG_HOME": str(tmp_path),
        "NATS_CONTEXT": "ops",
        "NATS_URL": ops.url,
        "NATS_USER": ops.user,
        "NATS_PASSWORD_FILE": str(ops.password_file),
    }


@asynccontextmanager
async def started(*command: str | Path, env: dict[str, str]) -> AsyncIterator[asyncio.subprocess.Process]:
    """A program that runs inside the context."""
    process = await asyncio.create_subprocess_exec(
        *map(str, command),
        env=env,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.communicate()


async def line(process: asyncio.subprocess.Process, word: str) -> str:
    """The first line with that word."""
    assert process.stdout is not None
    async with asyncio.timeout(30):
        told = []
        async for raw in process.stdout:
            told.append(raw.decode())
            if word in told[-1]:
                return told[-1]
    raise AssertionError(f"it ended without {word!r}: {''.join(told)}")


async def ran(*command: str | Path, env: dict[str, str]) -> tuple[int, str]:
    """Exit code and output of a program that ends by itself."""
    async with started(*command, env=env) as process, asyncio.timeout(60):
        out, _ = await process.communicate()
        assert process.returncode is not None
        return process.returncode, out.decode()


async def test_the_subscriber_is_thirty_lines() -> None:
    """What a stranger has to read before anything works."""
    code = [text for text in (EXAMPLES / "python/subscribe.py").read_text().splitlines() if text.strip()]
    assert len(code) <= 35


@pytest.mark.parametrize("language", ["python", "go"])
async def test_a_subscriber_tells_who_is_drained_and_goes_on_where_it_ended(
    site: Site, env: dict[str, str], language: str, tmp_path: Path
) -> None:
    """The second run is told what happened meanwhile, and only that."""
    command: list[str | Path] = [sys.executable, EXAMPLES / "python/subscribe.py", language]
    if language == "go":
        subprocess.run(["go", "build", "-o", tmp_path / "example", "."], cwd=EXAMPLES / "go", check=True)
        subprocess.run(["go", "vet", "./..."], cwd=EXAMPLES / "go", check=True)
        command = [tmp_path / "example", language]
    first, second = ("gpu-1", "gpu-2") if language == "python" else ("gpu-3", "gpu-4")
    await site.run("hold", first, "--reason", "firmware", "--through", "kubernetes")
    async with started(*command, env=env) as process:
        assert f"main/{first} on host-{first[-1]} is drained" in await line(process, first)
    await site.run("hold", second, "--reason", "firmware", "--through", "kubernetes")
    await site.until(second, phase="drained")
    async with started(*command, env=env) as process:
        assert process.stdout is not None
        async with asyncio.timeout(30):
            text = (await process.stdout.readline()).decode()
        assert f"main/{second} " in text


async def test_the_automation_acts_on_a_drained_worker_and_releases_it(
    site: Site, env: dict[str, str], tmp_path: Path
) -> None:
    """The command runs while the worker is out of service; the same line again does nothing twice."""
    wish = ["--user", "ops", "--worker", "gpu-5", "--id", "fw-5", "--reason", "firmware 1.2", "--drained-within", "30"]
    automation = [sys.executable, EXAMPLES / "python/automation.py", *wish, "--"]

    code, out = await ran(*automation, "false", env=env)
    assert (code, "the command failed" in out) == (1, True)
    assert (await site.workers())["gpu-5"]["phase"] == "drained"

    code, out = await ran(*automation, "touch", tmp_path / "done", env=env)
    assert (code, out.splitlines()) == (0, ["gpu-5 is drained", "gpu-5 is released"])
    assert (tmp_path / "done").exists()
    await site.until("gpu-5", phase="idle", protected=True)


async def test_the_automation_says_why_it_is_refused(env: dict[str, str], site: Site) -> None:
    """Nothing is done then."""
    wish = [
        "--user",
        "ops",
        "--worker",
        "gpu-99",
        "--id",
        "no",
        "--reason",
        "x",
        "--drained-within",
        "30",
        "--",
        "true",
    ]
    code, out = await ran(sys.executable, EXAMPLES / "python/automation.py", *wish, env=env)
    assert code == 1
    assert "gpu-99" in out
    assert "gpu-99" not in await site.workers()


async def test_the_shell_watches_and_asks(site: Site, env: dict[str, str]) -> None:
    """With `nats` and `jq` alone."""
    assert shutil.which("jq")
    async with started(EXAMPLES / "shell/watch.sh", "lockstep.event.hold.>", env=env) as watching:
        await asyncio.sleep(2)
        code, out = await ran(EXAMPLES / "shell/hold.sh", "ops", "main", "gpu-6", "by-hand", 'a "reason"', env=env)
        assert (code, out.splitlines()[-1]) == (0, "done: drained")
        assert "main/gpu-6  hold.placed.v1" in await line(watching, "gpu-6")
    code, out = await ran(EXAMPLES / "shell/hold.sh", "ops", "main", "gpu-77", "by-hand-2", "x", env=env)
    assert code == 1
    assert "refused: " in out
    assert "gpu-77" in out
