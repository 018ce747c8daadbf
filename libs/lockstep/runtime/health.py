"""Whether the process lives, whether it is ready, and its metrics, over HTTP."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager

from aiohttp import web
from prometheus_client.exposition import choose_encoder

from lockstep.base.clock import monotonic
from lockstep.base.errors import Fatal
from lockstep.runtime.metrics import REGISTRY
from lockstep.runtime.settings import HealthSettings


class Health:
    """Gathers heartbeats and needs. All methods are quick and may be called from anywhere in the loop."""

    def __init__(self) -> None:
        self._beats: dict[str, tuple[float, float]] = {}
        self._needs: dict[str, Callable[[], str]] = {}
        self._observers: list[Callable[[], None]] = []
        self.stopping = False
        """Set when the process ends: it is no longer ready, and still lives."""

    def beat(self, task: str, *, within_s: float = 60.0) -> None:
        """The task lives; it will say so again `within_s`, or the process counts as dead."""
        self._beats[task] = (monotonic(), within_s)

    def end(self, task: str) -> None:
        """The task ended as it should; it is not waited for."""
        self._beats.pop(task, None)

    def need(self, name: str, why_not: Callable[[], str]) -> None:
        """Something without which the process is not ready. `why_not` answers "" when it is there."""
        self._needs[name] = why_not

    def observe(self, collect: Callable[[], None]) -> None:
        """Called before metrics are shown, to bring gauges up to date."""
        self._observers.append(collect)

    @contextmanager
    def observing(self, collect: Callable[[], None]) -> Iterator[None]:
        """As `observe`, while the context lasts."""
        self._observers.append(collect)
        try:
            yield
        finally:
            self._observers.remove(collect)

    def dead(self) -> Mapping[str, str]:
        """The tasks that have not said for too long that they live."""
        at = monotonic()
        return {
            task: f"no sign of life for {at - last:.0f} s"
            for task, (last, within_s) in self._beats.items()
            if at - last > within_s
        }

    def missing(self) -> Mapping[str, str]:
        """Why the process is not ready; empty when it is."""
        found = dict(self.dead())
        if self.stopping:
            found["process"] = "is stopping"
        for name, why_not in self._needs.items():
            if why := why_not():
                found[name] = why
        return found

    @asynccontextmanager
    async def serving(self, settings: HealthSettings) -> AsyncIterator[str]:
        """Serves /livez, /readyz and /metrics inside the context; the address.

        Raises:
            Fatal: the address cannot be had.
        """
        app = web.Application()
        app.router.add_get("/livez", self._livez)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1)
        await runner.setup()
        try:
            site = web.TCPSite(runner, settings.host, settings.port)
            try:
                await site.start()
            except OSError as e:
                raise Fatal(f"health.host, health.port: cannot listen on {settings.host}:{settings.port}: {e}") from e
            host, port = runner.addresses[0][:2]
            yield f"http://{host}:{port}"
        finally:
            await runner.cleanup()

    async def _livez(self, _: web.Request) -> web.Response:
        return _answer(self.dead())

    async def _readyz(self, _: web.Request) -> web.Response:
        return _answer(self.missing())

    async def _metrics(self, request: web.Request) -> web.Response:
        """OpenMetrics, which has exemplars, for who accepts it; else Prometheus' text format 0.0.4."""
        for collect in self._observers:
            collect()
        encode, content_type = choose_encoder(",".join(request.headers.getall("Accept", [])))
        body = await asyncio.to_thread(encode, REGISTRY)
        return web.Response(body=body, headers={"Content-Type": content_type})


def _answer(faults: Mapping[str, str]) -> web.Response:
    if not faults:
        return web.Response(text="ok\n")
    return web.Response(status=503, text="".join(f"{name}: {why}\n" for name, why in faults.items()))
