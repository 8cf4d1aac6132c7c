"""The scheduler's own HTTP server: health, metrics, configuration and a look inside."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
from aiohttp import web
from prometheus_client.exposition import choose_encoder
from prometheus_client.gc_collector import GCCollector
from prometheus_client.metrics_core import Metric
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector, CollectorRegistry

from ksched.configuration import configz
from ksched.metrics import Metrics
from ksched.scheduler import Scheduler
from ksched.web.health import Check, Health, Report
from ksched.web.views import decisions_view, queue_view, story_view

SHUTDOWN_SECONDS: Final = 5.0
DEFAULT_LIMIT: Final = 500
MAX_LIMIT: Final = 10_000

_PATHS: Final = (
    "/healthz",
    "/livez",
    "/readyz",
    "/metrics",
    "/configz",
    "/debug/queue",
    "/debug/decisions",
    "/debug/story/{namespace}/{name}",
)


class WebServer:
    """Answers for one scheduler at a time, which may be replaced.

    ``live`` and ``ready`` are the checks behind its health.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        metrics: Metrics,
        *,
        live: Mapping[str, Check],
        ready: Mapping[str, Check],
    ) -> None:
        self.scheduler = scheduler
        self._health = {
            "healthz": Health("healthz", live),
            "livez": Health("livez", live),
            "readyz": Health("readyz", {**live, **ready}),
        }
        self._collectors: list[Collector] = [metrics, *_process_collectors()]

    @asynccontextmanager
    async def listening(
        self, host: str, port: int, ssl_context: ssl.SSLContext | None = None
    ) -> AsyncIterator[str]:
        """Serve while the block runs and give the URL; raises ``OSError`` if the port is taken."""
        runner = web.AppRunner(
            self._application(), access_log=None, shutdown_timeout=SHUTDOWN_SECONDS
        )
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port, ssl_context=ssl_context).start()
            scheme = "https" if ssl_context else "http"
            shown = f"[{host}]" if ":" in host else host
            yield f"{scheme}://{shown}:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()

    def _application(self) -> web.Application:
        application = web.Application()
        application.add_routes(
            [
                web.get("/", self._index),
                web.get("/{endpoint:healthz|livez|readyz}", self._health_of),
                web.get("/{endpoint:healthz|livez|readyz}/{check}", self._one_check),
                web.get("/metrics", self._metrics),
                web.get("/configz", self._configz),
                web.get("/debug/queue", self._queue),
                web.get("/debug/decisions", self._decisions),
                web.get("/debug/story/{namespace}/{name}", self._story),
            ]
        )
        return application

    async def _index(self, request: web.Request) -> web.Response:
        return _json({"paths": _PATHS})

    async def _health_of(self, request: web.Request) -> web.Response:
        health = self._health[request.match_info["endpoint"]]
        verbose = "verbose" in request.query
        return _answer(health.report(verbose, request.query.getall("exclude", ())))

    async def _one_check(self, request: web.Request) -> web.Response:
        health, check = self._health[request.match_info["endpoint"]], request.match_info["check"]
        if check not in health:
            raise web.HTTPNotFound
        return _answer(health.report_one(check))

    async def _metrics(self, request: web.Request) -> web.Response:
        # Numbers are read here, between two tasks, and so belong together. Writing them out takes
        # longer than the loop may be kept, so a thread does it.
        metrics = [metric for one in self._collectors for metric in one.collect()]
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        body = await asyncio.to_thread(encode, _Collected(metrics))
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def _configz(self, request: web.Request) -> web.Response:
        return _json({"componentconfig": configz(self.scheduler.configuration)})

    async def _queue(self, request: web.Request) -> web.Response:
        return _json(queue_view(self.scheduler, _limit(request)))

    async def _decisions(self, request: web.Request) -> web.Response:
        return _json(decisions_view(self.scheduler, _limit(request)))

    async def _story(self, request: web.Request) -> web.Response:
        pod = f"{request.match_info['namespace']}/{request.match_info['name']}"
        view = story_view(self.scheduler, pod)
        if view is None:
            raise web.HTTPNotFound(text=f"pod {pod}: not known to this scheduler\n")
        return _json(view)


class _Collected(Collector):
    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def _process_collectors() -> list[Collector]:
    """``process_*`` and ``python_*``, kept out of the process-wide registry."""
    registry = CollectorRegistry()
    return [
        ProcessCollector(registry=None),
        PlatformCollector(registry=None),
        GCCollector(registry=registry),
    ]


def _answer(report: Report) -> web.Response:
    headers = {"X-Content-Type-Options": "nosniff"}
    return web.Response(text=report.text, status=200 if report.is_healthy else 500, headers=headers)


def _json(content: Any) -> web.Response:
    body = msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"
    return web.Response(body=body, content_type="application/json")


def _limit(request: web.Request) -> int:
    text = request.query.get("limit", str(DEFAULT_LIMIT))
    if not text.isdecimal() or not 0 < int(text) <= MAX_LIMIT:
        raise web.HTTPBadRequest(text=f"limit: got {text!r}, wanted 1 to {MAX_LIMIT}\n")
    return int(text)
